"""What a fleet adds to one machine: time and processor time by fan-out, hedges, swaps, recovery, indexing.

    python -m benchmarks.fleet.serving BUNDLE CORPUS [--queries 400] [--work DIR] [--json]

Starts a Ray cluster of two nodes on this machine, indexes CORPUS with the model of BUNDLE in 1, 2, 4 and 8 shards, and
sends the same searches (titles of documents, one after another) to `fullrank serve` over the unsharded index and to a
router over each set. The processor time of the router is that of its process, and its slope over the shards is the cost
of one more call. A swap is timed from the command to coordinator until it returns; a recovery from the SIGKILL of a
replica until the coordinator lists it again. Two cores cannot show a speed-up: these are costs, not scaling.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.harness.report import show
from benchmarks.performance.servers import Server, serving
from fleet.cluster import joined, node_environment
from fleet.jobs.index import index_set
from fleet.jobs.tasks import InProcess
from fleet.serving.actors import coordinator_of, result_of, stop_fleet
from fleet.serving.ray_app import VARIABLE, FleetSettings
from fullrank import open_bundle
from fullrank.progress import Reporter
from trainer.indexing.index import index

_SHARDS = (1, 2, 4, 8)
_WARM_UP = 50
_SWAPS = 10


@contextmanager
def cluster() -> Iterator[str]:
    """Run a Ray cluster of two nodes on this machine; gives its address."""
    os.environ.update(node_environment())
    from ray.cluster_utils import Cluster

    found: Any = Cluster()
    for _ in range(2):
        found.add_node(num_cpus=1, object_store_memory=80 << 20, include_dashboard=False)
    try:
        yield found.address
    finally:
        found.shutdown()


def measure(server: Server, texts: Sequence[str]) -> dict[str, float]:
    """Search each text in turn; return times, and the processor time of the serving process."""
    seconds = []
    with httpx.Client(base_url=server.url) as client:
        for number, text in enumerate([*texts[:_WARM_UP], *texts]):
            if number == _WARM_UP:
                cpu_s = server.cpu_s()
            began = time.perf_counter()
            answer = client.post("/v1/search", json={"query": text, "mode": "exact"})
            if number >= _WARM_UP:
                seconds.append(time.perf_counter() - began)
            answer.raise_for_status()
    return {
        "p50_ms": 1000 * statistics.median(seconds),
        "p99_ms": 1000 * float(np.quantile(seconds, 0.99)),
        "cpu_ms": 1000 * (server.cpu_s() - cpu_s) / len(texts),
    }


def measure_fleet(
    address: str,
    root: str,
    versions: Sequence[str],
    replicas: int,
    work: Path,
    texts: Sequence[str],
) -> dict[str, Any]:
    """Measure a router over a set; with a second version also swaps, with a second replica a recovery."""
    own = FleetSettings(address, root, replicas, str(work / "cache"))
    (Path(root) / "active.json").unlink(missing_ok=True)
    state = work / "state"
    state.mkdir(exist_ok=True)
    with joined(address) as ray:
        coordinator = coordinator_of(own.bundles, own.replicas, own.cache)
        try:
            result_of(coordinator.activate.remote(versions[0]))
            environment = {
                VARIABLE: own.as_json(),
                "FULLRANK_BUNDLES": str(state),
                "FULLRANK_CACHE_ENTRIES": "0",
            }
            module = "benchmarks.fleet.router"
            with serving(
                module, environment, "/readyz", sorted(os.sched_getaffinity(0))[:1]
            ) as server:
                found: dict[str, Any] = measure(server, texts)
            if len(versions) > 1:
                found["swap_s"] = statistics.median(
                    _swap_s(coordinator, versions[(number + 1) % 2]) for number in range(_SWAPS)
                )
            if replicas > 1:
                found["recovery_s"] = _recovery_s(ray, coordinator)
        finally:
            stop_fleet()
    return found


def _swap_s(coordinator: Any, version: str) -> float:
    began = time.perf_counter()
    result_of(coordinator.activate.remote(version))
    return time.perf_counter() - began


def _recovery_s(ray: Any, coordinator: Any) -> float:
    """Kill a replica; return the seconds until the coordinator lists it again."""
    snapshot = result_of(coordinator.follow.remote([], 0, 0.0))
    whole = [len(replicas) for replicas in snapshot.replicas]
    os.kill(ray.get(snapshot.replicas[0][0].actor.pid.remote()), signal.SIGKILL)
    began = time.perf_counter()
    is_lost = False
    while True:
        snapshot = result_of(coordinator.follow.remote([], snapshot.epoch, 1.0))
        now = [len(replicas) for replicas in snapshot.replicas]
        is_lost = is_lost or now != whole
        if is_lost and now == whole:
            return time.perf_counter() - began


def _processor_s() -> float:
    """Return the processor time of this process and its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(own.ru_utime + own.ru_stime for own in used)


def main() -> None:
    """Index, serve, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--queries", type=int, default=400)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    work = asked.work or Path(tempfile.mkdtemp(prefix="fullrank-fleet-"))
    quiet = Reporter(quiet=True)
    began = _processor_s()
    whole = index(asked.bundle, asked.corpus, work / "whole", "whole", processes=1, reporter=quiet)
    one_machine_s = _processor_s() - began
    opened = open_bundle(whole.path, verify=False)
    rows = np.random.default_rng(1).integers(len(opened.documents), size=4 * asked.queries)
    titles = [opened.documents.fields(row).get("title") for row in rows.tolist()]
    texts = [title for title in titles if isinstance(title, str) and title.strip()][: asked.queries]
    found: dict[str, Any] = {"documents": whole.documents, "queries": len(texts), "fleets": {}}
    sets: dict[int, list[str]] = {}
    began = _processor_s()
    for shards in (*_SHARDS, 1):
        name = f"set{shards}"
        written = index_set(
            str(asked.bundle), str(asked.corpus), str(work / name), name, shards=shards,
            runner=InProcess(), reporter=quiet,
        )  # fmt: skip
        sets.setdefault(shards, []).append(written.version)
        time.sleep(1)  # a version's time has seconds
    found["index_ms_a_document"] = {
        "one machine": round(1000 * one_machine_s / whole.documents, 4),
        "shards": round(1000 * (_processor_s() - began) / (len(_SHARDS) + 1) / whole.documents, 4),
    }
    plain = {"FULLRANK_BUNDLES": str(work / "whole"), "FULLRANK_CACHE_ENTRIES": "0"}
    with serving(
        "service.process.run", plain, "/readyz", sorted(os.sched_getaffinity(0))[:1]
    ) as server:
        found["plain"] = measure(server, texts)
    with cluster() as address:
        for shards in _SHARDS:
            replicas = 2 if shards == 2 else 1
            root = str(work / f"set{shards}")
            found["fleets"][shards] = measure_fleet(
                address, root, sets[shards], replicas, work, texts
            )
    cpu = [found["fleets"][shards]["cpu_ms"] for shards in _SHARDS]
    found["router_ms_a_shard"] = float(np.polyfit(_SHARDS, cpu, 1)[0])
    found["added_p50_ms"] = found["fleets"][1]["p50_ms"] - found["plain"]["p50_ms"]
    show(found, asked.json)


if __name__ == "__main__":
    main()
