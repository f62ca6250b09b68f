"""An experiment is part of a generation: every worker has it, or none does."""

from __future__ import annotations

import pytest

from fullrank_service.base.errors import BundleRefused, ModelNotFound
from fullrank_service.models.state import read_state
from tests.api.conftest import Root
from tests.api.support import activate, models, registry, running, serving, until

pytestmark = pytest.mark.anyio


async def test_every_worker_follows_an_experiment(root: Root) -> None:
    options = {"poll_ms": 10, "preload": False}
    async with running(root.path, **options) as one, running(root.path, **options) as two:
        active = await serving(one)
        started = await registry(one).start_experiment(root.bm25, 0.2, 14)
        assert started.version == active == root.learned
        assert started.converged
        for worker in (one, two):
            found = registry(worker).serving
            assert found.experiment is not None
            assert (found.experiment.candidate, found.experiment.share) == (root.bm25, 0.2)
            assert found.generation == started.generation
            assert root.bm25 in found.models
            assert await serving(worker) == active
        stopped = await registry(two).stop_experiment()
        assert stopped.generation == started.generation + 1
        await until(lambda: generation(one), stopped.generation)
        assert registry(one).serving.experiment is registry(two).serving.experiment is None
        # Without an experiment there is nothing to stop.
        assert (await registry(two).stop_experiment()).generation == stopped.generation


async def generation(client: object) -> int:
    return registry(client).serving.generation  # type: ignore[arg-type]


async def test_an_experiment_goes_on_after_a_restart(root: Root) -> None:
    async with running(root.path) as client:
        await registry(client).start_experiment(root.bm25, 0.5, 3)
    async with running(root.path, preload=False) as client:
        found = registry(client).serving
        assert found.experiment is not None
        assert found.experiment.candidate == root.bm25
        assert {root.bm25, root.learned} <= set(found.models)


async def test_an_activation_ends_the_experiment(root: Root) -> None:
    async with running(root.path) as client:
        started = await registry(client).start_experiment(root.bm25, 0.5, 3)
        assert (await activate(client, root.bm25)).status_code == 200
        assert registry(client).serving.experiment is None
        assert (await models(client))["generation"] == started.generation + 1
        assert (await models(client))["previous"] == root.learned


async def test_an_experiment_needs_another_version(root: Root) -> None:
    async with running(root.path) as client:
        with pytest.raises(BundleRefused, match="no other version"):
            await registry(client).start_experiment(root.learned, 0.2, 14)
        with pytest.raises(ModelNotFound):
            await registry(client).start_experiment("absent-1", 0.2, 14)
        assert read_state(root.path) is None


async def test_without_its_candidate_the_active_version_serves(root: Root) -> None:
    async with running(root.path) as client:
        await registry(client).start_experiment(root.bm25, 0.5, 3)
    manifest = root.path / "bm25" / root.bm25 / "manifest.json"
    manifest.chmod(0o644)
    manifest.write_text("{")
    async with running(root.path) as client:
        assert await serving(client) == root.learned
        assert registry(client).serving.experiment is None
        assert (await client.get("/readyz")).status_code == 200
