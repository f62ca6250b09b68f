"""Measure the first searches of a service: after its start, after a swap, and of new workers in place of killed ones.

    python -m benchmarks.performance.first --bundles FOLDER [--repeat 5] [--workers 1 2] [--queries 1000] [--json]

FOLDER holds a trained model of Debian's package descriptions; it is copied, under two versions. One client sends 100
searches for distinct queries, one after another over one connection, as soon as /readyz answers 200 (after a swap: as
soon as the swap is answered), and then --queries more. The figures are the p50, p99 and maximum of both parts in
milliseconds, and the first p99 over the later one; each is the median over the repetitions.

With one worker there is no process that could start another, so none is killed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.performance.http import read_queries
from benchmarks.performance.servers import children, start, stop
from fullrank.bundle import find_bundle, read_manifest
from fullrank.bundle.manifest import MANIFEST
from fullrank_service.http.keys import create_key

BAR = 2.0
FIRST = 100
_FORK_S = 60


def two_versions(bundles: Path, folder: Path) -> tuple[str, str]:
    """Copy the newest bundle into a folder, as two versions; return their names, the older one first."""
    source = find_bundle(bundles, next(path.name for path in bundles.iterdir() if path.is_dir()))
    name, old = source.parent.name, source.name
    new = f"{name}-20990101t000000z-{old.rpartition('-')[2]}"
    for version in (old, new):
        shutil.copytree(source, folder / name / version)
    manifest = folder / name / new / MANIFEST
    manifest.chmod(0o644)
    manifest.write_text(replace(read_manifest(manifest.parent), version=new).dump(), "utf-8")
    return old, new


@dataclass(frozen=True)
class Client:
    """One connection to the service, which takes a key with all scopes."""

    connection: HTTPConnection
    key: str

    def call(self, method: str, path: str, body: object = None) -> None:
        """Send a request and read its answer. Raises RuntimeError where its status is not 200."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        self.connection.request(method, path, None if body is None else json.dumps(body), headers)
        reply = self.connection.getresponse()
        answer = reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{method} {path}: {reply.status} {answer[:300]!r}")

    def search(self, queries: Iterable[str]) -> list[float]:
        """Return the milliseconds of each search."""
        found = []
        for query in queries:
            began = time.perf_counter()
            self.call("POST", "/v1/search", {"query": query})
            found.append((time.perf_counter() - began) * 1000)
        return found


@contextmanager
def connected(url: str, key: str) -> Iterator[Client]:
    connection = HTTPConnection(url.removeprefix("http://"), timeout=60)
    try:
        yield Client(connection, key)
    finally:
        connection.close()


def figures(first: Sequence[float], later: Sequence[float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, values in (("first", first), ("later", later)):
        p50, p99 = np.percentile(values, [50, 99], method="inverted_cdf")
        found |= {f"{name}_p50": p50, f"{name}_p99": p99, f"{name}_max": max(values)}
    return found | {"ratio": found["first_p99"] / found["later_p99"]}


def run(
    root: Path, versions: tuple[str, str], workers: int, queries: Iterator[str], count: int
) -> dict[str, dict[str, float]]:
    """Measure one start, one swap, and new workers where there are several."""
    found: dict[str, dict[str, float]] = {}
    (root / "active.json").unlink(missing_ok=True)
    keys = root / "keys.json"
    keys.unlink(missing_ok=True)
    _, key = create_key(keys, ["search", "admin"])

    def measure(url: str) -> dict[str, float]:
        with connected(url, key) as client:
            first = client.search(islice(queries, FIRST))
            return figures(first, client.search(islice(queries, count)))

    settings = {"FULLRANK_BUNDLES": str(root), "FULLRANK_KEYS": str(keys)}
    process, url = start("fullrank_service.process.run", settings, "/readyz", workers)
    try:
        found["start"] = measure(url)
        with connected(url, key) as client:
            client.call("PUT", "/v1/models/aliases/default", {"version": versions[0]})
        found["swap"] = measure(url)
        if workers > 1:
            killed = children(process.pid)
            for worker in killed:
                os.kill(worker, signal.SIGKILL)
            _wait_for_others(process.pid, killed, url, key)
            found["new workers"] = measure(url)
    finally:
        stop(process)
    return found


def _wait_for_others(parent: int, killed: Sequence[int], url: str, key: str) -> None:
    end = time.monotonic() + _FORK_S
    while time.monotonic() < end:
        now = children(parent)
        if len(now) == len(killed) and not {*now} & {*killed}:
            with connected(url, key) as client, suppress(OSError, RuntimeError):
                client.call("GET", "/readyz")
                return
        time.sleep(0.01)
    raise RuntimeError(f"no new workers in {_FORK_S} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bundles", type=Path, required=True)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    total = given.repeat * len(given.workers) * 3 * (FIRST + given.queries)
    queries = iter(read_queries(total, seed=1))
    rows: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        versions = two_versions(given.bundles, Path(folder))
        for _ in range(given.repeat):
            for workers in given.workers:
                for event, row in run(
                    Path(folder), versions, workers, queries, given.queries
                ).items():
                    rows.setdefault(f"{workers} workers, {event}", []).append(row)
    report = {
        name: {key: round(median(row[key] for row in several), 2) for key in several[0]}
        for name, several in rows.items()
    }
    if given.json:
        print(json.dumps(report, indent=1))
        return
    for name, row in report.items():
        print(f"{name:24}", *(f"{key} {value:8.2f}" for key, value in row.items()))
    worst = max(row["ratio"] for row in report.values())
    print(f"worst ratio {worst:.2f}, bar {BAR:g}")


if __name__ == "__main__":
    main()
