"""A fleet on this machine: a Ray cluster of two nodes, a coordinator with its replicas, a router."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.performance.servers import Server, serving
from fullrank_fleet.cluster import joined, node_environment
from fullrank_fleet.serving.actors import coordinator_of, result_of, stop_fleet
from fullrank_fleet.serving.coordinator import Snapshot
from fullrank_fleet.serving.ray_app import VARIABLE, FleetSettings

_MODULE = "benchmarks.fleet.router"


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the options that every benchmark of a fleet has."""
    found = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    found.add_argument("bundle", type=Path)
    found.add_argument("corpus", type=Path)
    found.add_argument("--work", type=Path)
    found.add_argument("--json", action="store_true")
    return found


def work_folder(asked: argparse.Namespace) -> Path:
    """Return the folder --work, made if it is missing; by default a new temporary one."""
    if asked.work is None:
        return Path(tempfile.mkdtemp(prefix="fullrank-fleet-"))
    folder: Path = asked.work
    folder.mkdir(exist_ok=True)
    return folder


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
        found: Snapshot = result_of(self.coordinator.activate.remote(version))
        return found

    def snapshot(self, epoch: int = 0, wait_s: float = 0.0) -> Snapshot:
        """See Coordinator.follow."""
        found: Snapshot = result_of(self.coordinator.follow.remote(None, epoch, wait_s))
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
            result_of(coordinator.activate.remote(version))
            with serving(_MODULE, environment, "/readyz", core) as server:
                yield Fleet(ray, coordinator, server)
        finally:
            stop_fleet()
