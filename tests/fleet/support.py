"""Two versions of a sharded bundle, a router over them, and searches under load that check every answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from benchmarks.fleet.serving import cloned
from fullrank.bundle import open_bundle
from fullrank_fleet.cluster import worker_environment
from fullrank_fleet.jobs.index import index_set
from fullrank_fleet.jobs.tasks import InProcess
from fullrank_fleet.serving.actors import stop_fleet
from fullrank_trainer.indexing import index
from tests.api.support import ANONYMOUS, wait_for
from tests.fleet.searching import Expected, Searches
from tests.golden.test_golden import WORDS
from tests.ports import free_port
from tests.unit.fleet.jobs.planted import QUIET, corpus_of, planted_bundle
from tests.waiting import wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
SHARDS, COUNT, LIMIT = 2, 90, 20


class Sets:
    """Two versions of a sharded bundle with different documents, and by version and text the hits of one bundle."""

    def __init__(self, folder: Path) -> None:
        bundle = planted_bundle(folder / "bundles", is_reordered=True)
        self.root = folder / "sets"
        self.expected: dict[str, Expected] = {}
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

    def another(self, number: int) -> str:
        """Make a further version, which no replica has loaded; those of even numbers are as the first."""
        source = self.versions[number % 2]
        version = f"{source}-{number}"
        cloned(self.root / "planted" / source, version)
        self.expected[version] = self.expected[source]
        return version

    def forget_active(self) -> None:
        (self.root / "active.json").unlink(missing_ok=True)


@contextmanager
def router(
    address: str,
    root: Path,
    folder: Path,
    *,
    inside: Sequence[str] = (),
    host: str = "127.0.0.1",
    **environment: str,
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run `fullrank serve --ray` with two replicas of each shard; gives its address and its process."""
    own = {"FULLRANK_DEADLINE_MS": "5000", "FULLRANK_ANONYMOUS": ANONYMOUS}
    port = free_port()
    command = [
        "serve",
        "--bundles",
        str(root),
        "--ray",
        address,
        "--host",
        host,
        "--port",
        str(port),
    ]
    places = ["--state", str(folder / "state"), "--cache", str(folder / "cache")]
    process = subprocess.Popen(
        [*inside, sys.executable, "-m", "fullrank", *command, *places],
        cwd=REPOSITORY,
        env={**os.environ, **worker_environment(), **own, **environment},
        start_new_session=True,
    )
    try:
        wait_for(f"http://{host}:{port}/readyz", process, seconds=120)
        yield f"http://{host}:{port}", process
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


def activate(
    address: str, sets: Sets, version: str, inside: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    bundle = f"{sets.root}/planted/{version}"
    return command("bundles", "activate", bundle, "--ray", address, inside=inside)


def command(*arguments: str, inside: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*inside, sys.executable, "-m", "fullrank", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def wait_until_served(url: str, version: str) -> None:
    def serves() -> bool:
        found = httpx.get(f"{url}/v1/search", params={"q": WORDS[0]})
        return found.is_success and bool(found.json()["model"] == version)

    wait_until(serves, f"{url} serves {version}")


def searches(url: str, sets: Sets) -> Searches:
    """Search for all words while the block runs, and compare each answer with that of its version."""
    return Searches(url, sets.expected, limit=LIMIT, pause_s=0.01)
