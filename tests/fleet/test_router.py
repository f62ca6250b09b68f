"""The service of a fleet, as `fullrank serve --ray` starts it: equal answers, swaps and lost processes under load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from fleet.cluster import worker_environment
from fleet.jobs.index import index_set
from fleet.jobs.tasks import InProcess
from fleet.serving.actors import running_coordinator, stop_fleet
from fullrank.bundle import open_bundle
from tests.api.support import wait_for
from tests.golden.test_golden import WORDS
from tests.ports import free_port
from tests.unit.fleet.jobs.planted import QUIET, corpus_of, planted_bundle
from trainer.indexing.index import index

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).resolve().parents[2]
COUNT = 90


class Sets:
    """Two versions of a sharded bundle, and the same corpus unsharded."""

    def __init__(self, folder: Path) -> None:
        bundle = planted_bundle(folder / "bundles")
        self.root = folder / "sets"
        self.versions = []
        for count in (COUNT, COUNT + 10):
            (folder / str(count)).mkdir()
            corpus = corpus_of(folder / str(count), count)
            written = index_set(
                str(bundle),
                str(corpus),
                str(self.root),
                shards=2,
                runner=InProcess(),
                reporter=QUIET,
            )
            self.versions.append(written.version)
        self.whole = open_bundle(
            index(bundle, folder / str(COUNT), folder / "whole", reporter=QUIET).path
        )


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    return Sets(tmp_path_factory.mktemp("fleet"))


@contextmanager
def served(cluster: Any, sets: Sets, folder: Path) -> Iterator[str]:
    """Start a router with two replicas of each shard; gives its address."""
    (sets.root / "active.json").unlink(missing_ok=True)
    port = free_port()
    command = ["serve", "--bundles", str(sets.root), "--ray", cluster.address, "--port", str(port)]
    places = ["--state", str(folder / "state"), "--cache", str(folder / "cache")]
    process = subprocess.Popen(
        [sys.executable, "-m", "fullrank", *command, *places],
        cwd=REPOSITORY,
        env={**os.environ, **worker_environment(), "FULLRANK_EXPLORE": "0"},
        start_new_session=True,
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/readyz", process, seconds=120)
        yield f"http://127.0.0.1:{port}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)
        stop_fleet()


def activate(cluster: Any, sets: Sets, version: str) -> None:
    subprocess.run(
        [
            sys.executable,
            "-m",
            "fullrank",
            "bundles",
            "activate",
            f"{sets.root}/planted/{version}",
            "--ray",
            cluster.address,
        ],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )


class Load:
    """Searches in a thread until the block ends, and counts answers by status, version and certificate."""

    def __init__(self, address: str) -> None:
        self._client = httpx.Client(base_url=address, timeout=10)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.counts: Counter[tuple[int, str, bool]] = Counter()
        self.slowest_s = 0.0
        self.failed: list[str] = []

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            began = time.monotonic()
            answer = self._client.post("/v1/search", json={"query": WORDS[0], "limit": 5})
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            if answer.status_code != 200:
                self.failed.append(answer.text)
                continue
            body = answer.json()
            assert answer.headers["x-model-version"] == body["model"]
            self.counts[body["generation"], body["model"], body["certified"]] += 1


def test_a_fleet_answers_as_one_machine_through_swaps_and_deaths(
    cluster: Any, ray: Any, sets: Sets, tmp_path: Path
) -> None:
    first, second = sorted(sets.versions)
    with served(cluster, sets, tmp_path) as address, httpx.Client(base_url=address) as client:
        activate(cluster, sets, first)
        wait_until(client, first)
        for text in WORDS:
            expected = [(hit.id, hit.score) for hit in sets.whole.search(text, 20)]
            body = client.post("/v1/search", json={"query": text, "limit": 20}).json()
            assert [(hit["id"], hit["score"]) for hit in body["hits"]] == expected
            assert body["certified"]
        with Load(address) as load:
            for version in [second, first] * 3:
                activate(cluster, sets, version)
                wait_until(client, version)
            coordinator = running_coordinator()
            os.kill(ray.get(coordinator.pid.remote()), signal.SIGKILL)
            time.sleep(1)
            victim = ray.get_actor("shard-00000-0")
            os.kill(ray.get(victim.pid.remote()), signal.SIGKILL)
            time.sleep(2)
            frozen = ray.get(ray.get_actor("shard-00001-1").pid.remote())
            os.kill(frozen, signal.SIGSTOP)
            time.sleep(3)
            os.kill(frozen, signal.SIGCONT)
        assert load.failed == []
        assert all(is_certified for _, _, is_certified in load.counts)
        # Each generation is of one version.
        generations = {generation for generation, _, _ in load.counts}
        assert len(generations) == len({(g, version) for g, version, _ in load.counts})
        assert load.slowest_s < 2


def wait_until(client: httpx.Client, version: str) -> None:
    deadline = time.monotonic() + 30
    while client.get("/v1/search", params={"q": WORDS[0]}).json()["model"] != version:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_lost_shard_is_an_error_or_a_partial_answer(
    cluster: Any, ray: Any, sets: Sets, tmp_path: Path
) -> None:
    with served(cluster, sets, tmp_path) as address, httpx.Client(base_url=address) as client:
        pids = [ray.get(ray.get_actor(f"shard-00000-{place}").pid.remote()) for place in range(2)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            answer = client.post("/v1/search", json={"query": WORDS[0]}, timeout=10)
            assert answer.status_code == 503
            assert "shard 0 of 2" in answer.json()["detail"]
            asked = {"query": WORDS[0], "partial": True}
            body = client.post("/v1/search", json=asked, timeout=10).json()
            assert not body["certified"]
            assert 0 < body["covered"] < 1
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        deadline = time.monotonic() + 30
        while client.post("/v1/search", json={"query": WORDS[0]}).status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
