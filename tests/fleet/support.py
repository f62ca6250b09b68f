"""Two versions of a sharded bundle, a router over them, and searches under load that check every answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from fleet.cluster import worker_environment
from fleet.jobs.index import index_set
from fleet.jobs.tasks import InProcess
from fleet.serving.actors import stop_fleet
from fullrank.bundle import open_bundle
from tests.api.support import wait_for
from tests.golden.test_golden import WORDS
from tests.ports import free_port
from tests.unit.fleet.jobs.planted import QUIET, corpus_of, planted_bundle
from trainer.indexing.index import index

REPOSITORY = Path(__file__).resolve().parents[2]
SHARDS, COUNT, LIMIT = 2, 90, 20
Answers = Mapping[str, list[tuple[str, float]]]


class Sets:
    """Two versions of a sharded bundle with different documents, and what each must answer.

    Attributes:
        root: Folder of the sets.
        versions: The older one first.
        expected: By version and text, (id, score) of the first hits of the same corpus in one bundle.
    """

    def __init__(self, folder: Path) -> None:
        bundle = planted_bundle(folder / "bundles")
        self.root = folder / "sets"
        self.expected: dict[str, Answers] = {}
        for number in range(2):
            (folder / f"corpus-{number}").mkdir()
            corpus = corpus_of(folder / f"corpus-{number}", COUNT, first=50 * number)
            written = index_set(
                str(bundle),
                str(corpus),
                str(self.root),
                shards=SHARDS,
                runner=InProcess(),
                reporter=QUIET,
            )
            whole = open_bundle(index(bundle, corpus, folder / "whole", reporter=QUIET).path)
            self.expected[written.version] = {
                text: [(hit.id, hit.score) for hit in whole.search(text, LIMIT)] for text in WORDS
            }
        self.versions = list(self.expected)

    def forget_active(self) -> None:
        """Let the next coordinator find nothing active."""
        (self.root / "active.json").unlink(missing_ok=True)


@contextmanager
def router(
    address: str, root: Path, folder: Path, **environment: str
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run `fullrank serve --ray` with two replicas of each shard; gives its address and its process."""
    port = free_port()
    command = ["serve", "--bundles", str(root), "--ray", address, "--port", str(port)]
    places = ["--state", str(folder / "state"), "--cache", str(folder / "cache")]
    process = subprocess.Popen(
        [sys.executable, "-m", "fullrank", *command, *places],
        cwd=REPOSITORY,
        env={**os.environ, **worker_environment(), "FULLRANK_EXPLORE": "0", **environment},
        start_new_session=True,
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/readyz", process, seconds=120)
        yield f"http://127.0.0.1:{port}", process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


@contextmanager
def served(address: str, sets: Sets, folder: Path) -> Iterator[str]:
    """Run a router over the first version, and stop its fleet at the end; gives its address."""
    sets.forget_active()
    try:
        with router(address, sets.root, folder) as (url, _):
            activate(address, sets, sets.versions[0])
            wait_until_served(url, sets.versions[0])
            yield url
    finally:
        stop_fleet()


def activate(address: str, sets: Sets, version: str) -> subprocess.CompletedProcess[str]:
    """Run `fullrank bundles activate`."""
    bundle = f"{sets.root}/planted/{version}"
    return subprocess.run(
        [sys.executable, "-m", "fullrank", "bundles", "activate", bundle, "--ray", address],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


def wait_until_served(url: str, version: str) -> None:
    """Wait until a router answers by a version."""

    def serves() -> bool:
        found = httpx.get(f"{url}/v1/search", params={"q": WORDS[0]})
        return found.is_success and bool(found.json()["model"] == version)

    wait_until(serves)


def wait_until(condition: Any, seconds: float = 60) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Load:
    """Searches in a thread until the block ends, and compares each answer with that of its version.

    Attributes:
        statuses: How many answers had which status.
        generations: Version of each generation that has answered.
        wrong: Answers that are not certified, or not those of their version.
        seconds: Of each answer.
    """

    def __init__(self, url: str, sets: Sets) -> None:
        self._url, self._sets = url, sets
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.statuses: Counter[int] = Counter()
        self.generations: dict[int, str] = {}
        self.wrong: list[Any] = []
        self.seconds: list[float] = []

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Assert that every search was answered, and by one version only."""
        assert self.wrong == []
        assert set(self.statuses) == {200}

    def _run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=10) as client:
            number = 0
            while not self._stop.wait(0.01):
                text = WORDS[number % len(WORDS)]
                number += 1
                began = time.monotonic()
                try:
                    answer = client.post("/v1/search", json={"query": text, "limit": LIMIT})
                except httpx.TransportError as error:
                    self.wrong.append(repr(error))
                    continue
                self.seconds.append(time.monotonic() - began)
                self.statuses[answer.status_code] += 1
                if answer.status_code == 200:
                    self._compare(text, answer.json())

    def _compare(self, text: str, body: dict[str, Any]) -> None:
        version, generation = body["model"], body["generation"]
        hits = [(hit["id"], hit["score"]) for hit in body["hits"]]
        is_own = self.generations.setdefault(generation, version) == version
        if not (is_own and body["certified"] and hits == self._sets.expected[version][text]):
            self.wrong.append(body)
