"""What a fleet adds to one machine: time and processor time by fan-out, hedges, swaps, recovery, indexing.

    python -m benchmarks.fleet.serving BUNDLE CORPUS [--queries 400] [--work DIR] [--json]

Starts a Ray cluster of two nodes on this machine, indexes CORPUS with the model of BUNDLE in 1 to 16 shards, and
sends the same searches (titles of documents, one after another; then by eight clients at once, "busy") to `fullrank
serve` over the unsharded index and to a router over each set. The processor time of the router is that of its process,
and its slope over the shards is the cost of one more shard. A swap is timed from the command to coordinator until it
returns; a recovery from the SIGKILL of a replica until the coordinator lists it again. The hedge rate is the share of
calls of shards with a second replica that asked it as well. Two cores cannot show a speed-up: these are costs, not
scaling.
"""

from __future__ import annotations

import os
import resource
import signal
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.fleet.collection import cloned, sharded, titles
from benchmarks.fleet.faults import calls
from benchmarks.fleet.local import Fleet, cluster, fleet, parser, work_folder
from benchmarks.harness.report import show
from benchmarks.performance.servers import Server, serving
from fullrank.progress import Reporter
from fullrank_trainer.indexing.index import index

_SHARDS = (1, 2, 4, 8, 16)
_WARM_UP = 50
# Of the busy router.
_CLIENTS = 8
_SWAPS = 6
# A search of a busy machine is slow, not refused.
_SETTINGS = {"FULLRANK_DEADLINE_MS": "20000"}


def measure(server: Server, texts: Sequence[str], clients: int = 1) -> dict[str, float]:
    """Search each text in turn with each client; return times, and the processor time of the serving process."""
    with ThreadPoolExecutor(clients) as pool:
        _search(server.url, texts[:_WARM_UP])
        began, cpu_s = time.perf_counter(), server.cpu_s()
        runs = pool.map(partial(_search, server.url), [texts] * clients)
        seconds = [took for run in runs for took in run]
        return {
            "p50_ms": 1000 * statistics.median(seconds),
            "p99_ms": 1000 * float(np.quantile(seconds, 0.99)),
            "per_second": len(seconds) / (time.perf_counter() - began),
            "cpu_ms": 1000 * (server.cpu_s() - cpu_s) / len(seconds),
        }


def _search(url: str, texts: Sequence[str]) -> list[float]:
    """Search each text in turn; return the seconds."""
    seconds = []
    with httpx.Client(base_url=url, timeout=30) as client:
        for text in texts:
            began = time.perf_counter()
            answer = client.post("/v1/search", json={"query": text, "mode": "exact"})
            seconds.append(time.perf_counter() - began)
            answer.raise_for_status()
    return seconds


def measure_fleet(
    address: str, versions: Sequence[Path], replicas: int, work: Path, texts: Sequence[str]
) -> dict[str, Any]:
    """Measure a router over a set; with a second version also swaps, with a second replica a recovery.

    Args:
        address: Of the cluster.
        versions: Folders of sets.
        replicas: Of each shard.
        work: For the router and the cache.
        texts: What to search for.
    """
    names = [version.name for version in versions]
    with fleet(address, versions[0].parents[1], replicas, work, names[0], **_SETTINGS) as running:
        found: dict[str, Any] = measure(running.router, texts)
        made = calls(running.router.url)
        found["hedged"] = made["hedge"] / made["first"]
        found["busy"] = measure(running.router, texts, _CLIENTS)
        if len(names) > 1:
            found["swap_s"] = {
                "new versions": statistics.median(_swap_s(running, name) for name in names[1:]),
                "loaded versions": statistics.median(
                    _swap_s(running, name) for name in [names[-2], names[-1]] * 4
                ),
            }
        if replicas > 1:
            found["recovery_s"] = _recovery_s(running)
    return found


def _swap_s(running: Fleet, version: str) -> float:
    began = time.perf_counter()
    running.activate(version)
    return time.perf_counter() - began


def _recovery_s(running: Fleet) -> float:
    """Kill a replica; return the seconds until the coordinator lists it again."""
    snapshot = running.snapshot()
    whole = [len(replicas) for replicas in snapshot.replicas]
    os.kill(running.pid(0, 0), signal.SIGKILL)
    began = time.perf_counter()
    is_lost = False
    while True:
        snapshot = running.snapshot(snapshot.epoch, 1.0)
        now = [len(replicas) for replicas in snapshot.replicas]
        is_lost = is_lost or now != whole
        if is_lost and now == whole:
            return time.perf_counter() - began


def _slope(cpu_ms: Sequence[float]) -> float:
    return float(np.polyfit(_SHARDS, cpu_ms, 1)[0])


def _processor_s() -> float:
    """Return the processor time of this process and its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(own.ru_utime + own.ru_stime for own in used)


def main() -> None:
    """Index, serve, print."""
    options = parser(__doc__)
    options.add_argument("--queries", type=int, default=400)
    asked = options.parse_args()
    work = work_folder(asked)
    quiet = Reporter(quiet=True)
    began = _processor_s()
    whole = index(asked.bundle, asked.corpus, work / "whole", "whole", processes=1, reporter=quiet)
    one_machine_s = _processor_s() - began
    texts = titles(asked.corpus, asked.queries)
    found: dict[str, Any] = {
        "documents": whole.documents,
        "queries": len(texts),
        "load_before": os.getloadavg()[0],
        "fleets": {},
    }
    sets: dict[int, Path] = {}
    began = _processor_s()
    for shards in _SHARDS:
        sets[shards] = sharded(asked.bundle, asked.corpus, work / f"sets-{shards}", shards)
    found["index_ms_a_document"] = {
        "one machine": round(1000 * one_machine_s / whole.documents, 4),
        "shards": round(1000 * (_processor_s() - began) / len(_SHARDS) / whole.documents, 4),
    }
    plain = {"FULLRANK_BUNDLES": str(work / "whole"), "FULLRANK_CACHE_ENTRIES": "0", **_SETTINGS}
    core = sorted(os.sched_getaffinity(0))[:1]
    with cluster() as address:
        # The idle processes of the cluster run beside both.
        with serving("fullrank_service.process.run", plain, "/readyz", core) as server:
            found["plain"] = measure(server, texts)
            found["plain"]["busy"] = measure(server, texts, _CLIENTS)
        for shards in _SHARDS:
            versions = [sets[shards]]
            if shards == 1:
                versions += [cloned(sets[1], f"swap-{number}") for number in range(_SWAPS)]
            found["fleets"][shards] = measure_fleet(
                address, versions, 2 if shards == 2 else 1, work, texts
            )
    fleets = [found["fleets"][shards] for shards in _SHARDS]
    found["router_ms_a_shard"] = _slope([own["cpu_ms"] for own in fleets])
    found["busy_router_ms_a_shard"] = _slope([own["busy"]["cpu_ms"] for own in fleets])
    found["added_p50_ms"] = found["fleets"][1]["p50_ms"] - found["plain"]["p50_ms"]
    found["load_after"] = os.getloadavg()[0]
    show(found, asked.json)


if __name__ == "__main__":
    main()
