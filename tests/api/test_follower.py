"""A worker that follows the state files: failures are tried again, and a switch does not list the folder."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fullrank.bundle import Bundle, open_bundle
from fullrank.errors import BundleError
from fullrank_service.base.errors import BundleRefused
from fullrank_service.base.metrics import Metrics
from fullrank_service.models import follower
from fullrank_service.models.loader import available as available_versions
from fullrank_service.models.registry import Registry
from fullrank_service.models.state import ActiveState, write_state
from fullrank_service.models.workers import converged, reports
from tests.api.conftest import Root
from tests.api.support import at, make_bundle

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pause before a failure is tried again."""
    monkeypatch.setattr(follower, "_RETRY_S", 0.05)


@asynccontextmanager
async def worker(
    root: Path, metrics: Metrics | None = None, **options: Any
) -> AsyncIterator[Registry]:
    registry = Registry(root, metrics or Metrics(), poll_s=0.01, **options)
    await registry.start()
    try:
        yield registry
    finally:
        await registry.close()


class Failing:
    """Opens bundles; the one of this version fails, until ``works`` is set."""

    def __init__(self, version: str) -> None:
        self.version, self.works = version, threading.Event()

    def __call__(self, path: Path) -> Bundle:
        if path.name == self.version and not self.works.is_set():
            raise BundleError(f"{path}: not this time")
        return open_bundle(path)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_bundle_that_failed_at_start_is_served_when_it_is_repaired(root: Root) -> None:
    """No version was activated and every requested version is loaded: a bundle to serve is still missing."""
    write_state(root.path, ActiveState(0, loaded=(root.bm25,)))
    opener = Failing(root.learned)
    async with worker(root.path, preload=False, opener=opener) as registry:
        assert registry.serving.active is None
        assert list(registry.serving.models) == [root.bm25]
        opener.works.set()
        await until(lambda: registry.serving.active == root.learned)
        assert not registry.failures


async def test_a_requested_load_that_failed_is_tried_again(root: Root) -> None:
    write_state(root.path, ActiveState(3, root.learned, loaded=(root.bm25,)))
    opener = Failing(root.bm25)
    async with worker(root.path, preload=False, opener=opener) as registry:
        assert list(registry.serving.models) == [root.learned]
        assert "not this time" in registry.failures[root.bm25]
        opener.works.set()
        await until(lambda: root.bm25 in registry.serving.models)
        assert registry.serving.active == root.learned
        assert not registry.failures


async def test_a_report_that_found_no_room_is_written_later(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise this worker would seem never to converge, and swaps would not wait for it."""

    full = Mock(side_effect=OSError(28, "No space left on device"))
    async with worker(root.path) as registry:
        with monkeypatch.context() as patch:
            patch.setattr("fullrank_service.models.livefile.os.write", full)
            write_state(root.path, ActiveState(2, root.bm25))
            await until(lambda: registry.serving.active == root.bm25)
        await until(lambda: [report.generation for report in reports(root.path)] == [2])
        assert converged(reports(root.path), 2)


async def test_preloading_stops_at_the_limit_of_loaded_models(tmp_path: Path) -> None:
    """With more bundle names than the limit, the newest load: none is verified only to be dropped again."""
    versions = [make_bundle(tmp_path, f"m{i}", created=at(i)) for i in range(5)]
    opened = []

    def opener(path: Path) -> Bundle:
        opened.append(path.name)
        return open_bundle(path)

    async with worker(tmp_path, max_loaded=3, opener=opener) as registry:
        assert opened == list(registry.serving.models) == versions[:1:-1]


async def test_models_beyond_the_limit_are_dropped_for_good(tmp_path: Path) -> None:
    """If each change of the state loaded it again, it would drop another model each time, and slow down rollbacks."""
    versions = [make_bundle(tmp_path, "m", created=at(i)) for i in range(6)]
    opened = []

    def opener(path: Path) -> Bundle:
        opened.append(path.name)
        return open_bundle(path)

    async with worker(tmp_path, preload=False, max_loaded=3, opener=opener) as registry:
        for version in versions[:3]:
            await registry.load(version)
        await registry.load(versions[1])  # asked for again: it stays longest
        for version in (versions[3], versions[4], versions[3]):
            await registry.activate(version)
        assert opened == [versions[5], *versions[:3], *versions[3:5]]
        assert set(registry.serving.models) == {versions[1], *versions[3:5]}
        # A dropped version can be requested again.
        assert (await registry.load(versions[0])).version == versions[0]
    opened.clear()
    async with worker(tmp_path, preload=False, max_loaded=3, opener=opener) as registry:
        assert opened == [versions[3], versions[0]]
        # The one that served before can be asked for too.
        assert (await registry.load(versions[4])).version == versions[4]
        assert set(registry.serving.models) == {versions[0], *versions[3:5]}


async def test_a_swap_is_counted_once_by_the_worker_that_was_asked(root: Root) -> None:
    """The version at start does not count, nor do swaps that a worker follows."""
    counted = Metrics(), Metrics()

    def found() -> list[dict[str, float]]:
        return [
            {
                sample.labels["result"]: sample.value
                for metric in text_string_to_metric_families(metrics.render().decode())
                for sample in metric.samples
                if sample.name == "fullrank_swaps_total"
            }
            for metrics in counted
        ]

    none = {"done": 0, "failed": 0, "refused": 0}
    async with worker(root.path, counted[0]) as one, worker(root.path, counted[1]) as two:
        assert found() == [none, none]
        await one.activate(root.bm25)
        assert two.serving.active == root.bm25
        assert found() == [{**none, "done": 1}, none]
        await one.load(root.learned)
        assert found() == [{**none, "done": 2}, none]
        manifest = root.path / "bm25" / root.bm25 / "manifest.json"
        manifest.chmod(0o644)
        manifest.write_text("{")
        with pytest.raises(BundleRefused):
            await two.activate(root.bm25)
        assert found() == [{**none, "done": 2}, {**none, "refused": 1}]


async def test_a_switch_does_not_list_the_folder(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with worker(root.path) as one, worker(root.path) as two:
        late = make_bundle(root.path, "late", created=at(3))
        looked: Counter[Path] = Counter()
        real = available_versions

        def available(path: Path) -> Any:
            looked[path] += 1
            return real(path)

        monkeypatch.setattr(follower, "available", available)
        for version in (late, root.bm25, root.learned):
            assert (await one.activate(version)).converged
            assert one.serving.active == two.serving.active == version
        assert not looked
