"""What a fleet adds to one machine: time and processor time by fan-out, hedges, swaps, recovery, indexing.

    python -m benchmarks.fleet.serving BUNDLE CORPUS [--queries 400] [--shards 1,2,4,8,16] [--work DIR]
        [--json]

Starts a Ray cluster of two nodes on this machine, indexes CORPUS with the model of BUNDLE in so many shards, and
sends the same searches (titles of documents, one after another; then by eight clients at once, "busy") to `fullrank
serve` over the unsharded index and to a router over each set. The processor time of the router is that of its process,
and its slope over the shards is the cost of one more shard. A swap is timed from the command to coordinator until it
returns; a recovery from the SIGKILL of a replica until the coordinator lists it again. The hedge rate is the share of
calls of shards with a second replica that asked it as well. Two cores cannot show a speed-up: these are costs, not
scaling.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import re
import resource
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.harness.report import numbers, show
from benchmarks.performance.servers import Server, serving
from fullrank.progress import Reporter
from fullrank_fleet.cluster import joined, node_environment
from fullrank_fleet.jobs.index import index_set
from fullrank_fleet.jobs.tasks import InProcess
from fullrank_fleet.remote import Folder
from fullrank_fleet.serving.actors import answer_of, coordinator_of, stop_fleet
from fullrank_fleet.serving.coordinator import Snapshot
from fullrank_fleet.serving.ray_app import VARIABLE, FleetSettings
from fullrank_fleet.sets.manifest import SET, read_set, write_set
from fullrank_trainer.indexing import index


def lines_of(corpus: Path) -> Iterator[str]:
    """Read the lines of corpus.jsonl[.gz] in a folder."""
    packed = corpus / "corpus.jsonl.gz"
    with gzip.open(packed, "rt") if packed.exists() else (corpus / "corpus.jsonl").open() as file:
        yield from file


def titles(corpus: Path, count: int) -> list[str]:
    """Return different titles from all over the corpus."""
    found = (json.loads(line).get("title") for line in lines_of(corpus))
    texts = sorted({title for title in found if isinstance(title, str) and title.strip()})
    return texts[:: max(1, len(texts) // count)][:count]


def sharded(bundle: Path, corpus: Path, out: Path, shards: int) -> Path:
    """Index a corpus in this process; return the folder of the sharded bundle."""
    written = index_set(
        str(bundle), str(corpus), str(out), "sets", shards=shards, runner=InProcess(),
        reporter=Reporter(quiet=True),
    )  # fmt: skip
    return Path(written.address)


def cloned(source: Path, version: str) -> Path:
    """Make a further version of a sharded bundle, whose files are the same on the disk."""
    target = source.parent / version
    manifest = read_set(Folder(str(source)))
    shutil.copytree(source, target, copy_function=os.link)
    (target / SET).unlink()
    write_set(Folder(str(target)), replace(manifest, version=version))
    return target


_MODULE = "benchmarks.fleet.router"


@dataclass(frozen=True, slots=True)
class Fleet:
    """A running fleet.

    Attributes:
        ray: The module, joined to the cluster.
        coordinator: Its actor.
        router: The process that answers HTTP.
    """

    ray: Any
    coordinator: Any
    router: Server

    def activate(self, version: str) -> Snapshot:
        """Swap to a version. Raises FullrankError."""
        found: Snapshot = asyncio.run(answer_of(self.coordinator.activate.remote(version)))
        return found

    def snapshot(self, epoch: int = 0, wait_s: float = 0.0) -> Snapshot:
        """See Coordinator.follow."""
        found: Snapshot = asyncio.run(
            answer_of(self.coordinator.follow.remote(None, epoch, wait_s))
        )
        return found

    def pid(self, shard: int, place: int) -> int:
        """Return the process id of a replica."""
        actor = self.ray.get_actor(f"shard-{shard:05}-{place}")
        found: int = self.ray.get(actor.pid.remote())
        return found


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


@contextmanager
def fleet(
    address: str, root: Path, replicas: int, work: Path, version: str, **settings: str
) -> Iterator[Fleet]:
    """Run a fleet of one router.

    Args:
        address: Of the cluster.
        root: Folder of sharded bundles.
        replicas: Of each shard.
        work: For the router and the cache.
        version: Serves first.
        settings: Environment variables of the router.
    """
    own = FleetSettings(address, str(root), replicas, str(work / "cache"))
    (root / "active.json").unlink(missing_ok=True)
    state = work / "state"
    state.mkdir(exist_ok=True)
    environment = {
        VARIABLE: own.as_json(),
        "FULLRANK_BUNDLES": str(state),
        "FULLRANK_CACHE_ENTRIES": "0",
        **settings,
    }
    core = sorted(os.sched_getaffinity(0))[:1]
    with joined(address) as ray:
        coordinator = coordinator_of(own.bundles, own.replicas, own.cache)
        try:
            asyncio.run(answer_of(coordinator.activate.remote(version)))
            with serving(_MODULE, environment, "/readyz", core) as server:
                yield Fleet(ray, coordinator, server)
        finally:
            stop_fleet()


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


def calls(url: str) -> dict[str, float]:
    """Return how many calls of replicas a router has made, by kind."""
    exposed = httpx.get(f"{url}/metrics").raise_for_status().text
    found = re.findall(r'^fullrank_shard_calls_total\{kind="(\w+)"\} (\S+)$', exposed, re.M)
    return {kind: float(count) for kind, count in found}


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


def _processor_s() -> float:
    """Return the processor time of this process and its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(own.ru_utime + own.ru_stime for own in used)


def main() -> None:
    """Index, serve, print."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    options.add_argument("bundle", type=Path)
    options.add_argument("corpus", type=Path)
    options.add_argument("--work", type=Path, help="folder that keeps the sets; default a new one")
    options.add_argument("--queries", type=int, default=400)
    options.add_argument("--shards", type=numbers, default=[1, 2, 4, 8, 16])
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    work = asked.work or Path(tempfile.mkdtemp(prefix="fullrank-fleet-"))
    work.mkdir(exist_ok=True)
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
    for shards in asked.shards:
        sets[shards] = sharded(asked.bundle, asked.corpus, work / f"sets-{shards}", shards)
    found["index_ms_a_document"] = {
        "one machine": round(1000 * one_machine_s / whole.documents, 4),
        "shards": round(1000 * (_processor_s() - began) / len(asked.shards) / whole.documents, 4),
    }
    plain = {"FULLRANK_BUNDLES": str(work / "whole"), "FULLRANK_CACHE_ENTRIES": "0", **_SETTINGS}
    core = sorted(os.sched_getaffinity(0))[:1]
    with cluster() as address:
        # The idle processes of the cluster run beside both.
        with serving("fullrank_service.process.run", plain, "/readyz", core) as server:
            found["plain"] = measure(server, texts)
            found["plain"]["busy"] = measure(server, texts, _CLIENTS)
        for shards in asked.shards:
            versions = [sets[shards]]
            if shards == 1:
                versions += [cloned(sets[1], f"swap-{number}") for number in range(_SWAPS)]
            found["fleets"][shards] = measure_fleet(
                address, versions, 2 if shards == 2 else 1, work, texts
            )
    fleets = [found["fleets"][shards] for shards in asked.shards]
    for name, spent in (
        ("router_ms_a_shard", [own["cpu_ms"] for own in fleets]),
        ("busy_router_ms_a_shard", [own["busy"]["cpu_ms"] for own in fleets]),
    ):
        found[name] = float(np.polyfit(asked.shards, spent, 1)[0])
    found["added_p50_ms"] = fleets[0]["p50_ms"] - found["plain"]["p50_ms"]
    found["load_after"] = os.getloadavg()[0]
    show(found, asked.json)


if __name__ == "__main__":
    main()
