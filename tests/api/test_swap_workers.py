"""Hot swap by several workers: all of them switch, or none does."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from fullrank.bundle import Bundle, open_bundle
from fullrank.errors import BundleError
from fullrank_service.models.routes import LoadReply
from fullrank_service.models.state import PROPOSAL, lock, read_state
from tests.api.conftest import Root
from tests.api.support import (
    AUTH,
    Client,
    activate,
    at,
    make_bundle,
    models,
    registry,
    running,
    serving,
    until,
)

pytestmark = pytest.mark.anyio


async def test_another_worker_follows_an_activation(root: Root) -> None:
    async with running(root.path, poll_ms=20) as one, running(root.path, poll_ms=20) as two:
        assert (await activate(one, root.bm25)).status_code == 200
        await until(lambda: serving(two), root.bm25)
        assert (await models(two))["generation"] == 2
        late = make_bundle(root.path, "late", created=at(3))
        loaded = await one.post(f"/v1/models/{late}:load", headers=AUTH)
        LoadReply.model_validate(loaded.json())

        async def answers() -> int:
            body = {"query": "copy", "model": "late"}
            return (await two.post("/v1/search", json=body)).status_code

        await until(answers, 200)
        assert await serving(one) == await serving(two) == root.bm25


async def test_only_one_of_two_concurrent_swaps_succeeds(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(root.path) as client:
        with lock(root.path):  # as another worker would hold it
            assert (await activate(client, root.bm25)).status_code == 409
        answers = await asyncio.gather(*(activate(client, root.bm25) for _ in range(4)))
        codes = sorted(response.status_code for response in answers)
        assert codes[0] == 200
        assert set(codes) <= {200, 409}
        assert await serving(client) == root.bm25


async def test_the_list_of_workers_shows_that_they_converge(root: Root) -> None:
    async with running(root.path, poll_ms=10) as one, running(root.path, poll_ms=10) as two:
        for generation, version in enumerate((root.bm25, root.learned, root.bm25), start=2):
            reply = (await activate(one, version)).json()
            assert (reply["generation"], reply["workers"]) == (generation, 2)
            # The answer came when both were seen to serve it.
            assert reply["converged"] is True
            for client in (one, two):
                assert await serving(client) == version
                listed = await models(client)
                assert listed["converged"] is True
                assert [worker["generation"] for worker in listed["workers"]] == [generation] * 2
                assert {worker["version"] for worker in listed["workers"]} == {version}
                assert {worker["prepared"] for worker in listed["workers"]} <= {None, version}
    assert not list((root.path / ".workers").glob("*.json"))


async def test_no_worker_switches_if_one_cannot_load(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine the other worker may need longer than a second after the failure of this one.
    monkeypatch.setattr("fullrank_service.models.swap._GRACE_S", 30.0)

    def refuse(path: Path) -> Bundle:
        raise BundleError(f"{path}: this worker cannot")

    options = {"poll_ms": 10, "preload": False}
    async with running(root.path, **options) as one, running(root.path, **options) as two:
        registry(two)._loader.opener = refuse
        response = await activate(one, root.bm25)
        assert response.status_code == 409
        assert response.json()["type"].endswith("bundle-refused")
        assert "this worker cannot" in response.json()["detail"]
        assert registry(two)._presence.report.id in response.json()["detail"]
        assert registry(one)._presence.report.id not in response.json()["detail"]
        assert await serving(one) == await serving(two) == root.learned
        assert read_state(root.path) is None
        assert not (root.path / PROPOSAL).exists()
        # The prepared bundle is released.
        await until(lambda: prepared(one), set())
        registry(two)._loader.opener = open_bundle
        assert (await activate(one, root.bm25)).status_code == 200
        assert await serving(two) == root.bm25


async def test_a_worker_that_is_not_prepared_in_time_is_named(root: Root) -> None:
    older, gate = make_bundle(root.path, "learned", n_dense=8, created=at(0)), threading.Event()

    def slow(path: Path) -> Bundle:
        gate.wait(10)
        return open_bundle(path)

    options = {"poll_ms": 10, "preload": False, "swap_timeout_s": 1.0}
    async with running(root.path, poll_ms=10, preload=False) as one:
        # The first holds both by now, so that it is prepared in time on the slowest of machines.
        for version in (older, root.learned):
            assert (await activate(one, version)).status_code == 200
        async with running(root.path, **options) as two:
            registry(two)._loader.opener = slow
            response = await activate(two, older)
            assert response.status_code == 409
            assert "not prepared in time" in response.json()["detail"]
            assert registry(two)._presence.report.id in response.json()["detail"]
            assert registry(one)._presence.report.id not in response.json()["detail"]
            assert await serving(one) == await serving(two) == root.learned
            gate.set()


async def test_a_worker_that_starts_late_serves_what_the_others_serve(root: Root) -> None:
    async with running(root.path, poll_ms=10) as one:
        late = make_bundle(root.path, "late", created=at(3))
        async with running(root.path, poll_ms=10) as two:
            # No version was activated and a newer bundle exists: both workers still serve the same one.
            assert await serving(one) == await serving(two) == root.learned
        await activate(one, root.bm25)
        async with running(root.path, poll_ms=10) as two:
            assert await serving(two) == root.bm25
            assert (await models(two))["generation"] == 2
            assert (await activate(two, late)).json()["workers"] == 2
            assert await serving(one) == late


async def test_a_bundle_that_does_not_fit_in_memory_is_refused_with_the_numbers(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"poll_ms": 10, "preload": False}
    async with running(root.path, **options) as one, running(root.path, **options) as two:
        monkeypatch.setattr("fullrank_service.models.loader.available_bytes", lambda: 90_000_000)
        response = await activate(one, root.bm25)
        assert response.status_code == 409
        assert "each of 2 workers" in response.json()["detail"]
        assert "90.0 MB are available" in response.json()["detail"]
        monkeypatch.setattr("fullrank_service.models.loader.available_bytes", lambda: 120_000_000)
        assert (await activate(one, root.bm25)).status_code == 200
        # Both hold it by now: rolling to and fro asks for nothing more.
        monkeypatch.setattr("fullrank_service.models.loader.available_bytes", lambda: 0)
        assert (await activate(two, root.learned)).status_code == 200
        assert (await activate(two, root.bm25)).status_code == 200


async def test_the_proposal_of_a_dead_coordinator_is_void(root: Root) -> None:
    (root.path / PROPOSAL).write_text(
        '{"id": "x", "version": "y", "manifest_sha256": "", "host": ""}'
    )
    async with running(root.path, poll_ms=10) as client:
        await asyncio.sleep(0.05)
        assert registry(client)._presence.report.proposal is None
        assert (await activate(client, root.bm25)).status_code == 200
        assert not (root.path / PROPOSAL).exists()


async def prepared(client: Client) -> set[str]:
    return {w["prepared"] for w in (await models(client))["workers"] if w["prepared"]}
