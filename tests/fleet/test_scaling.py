"""A fleet on a cluster that gets more replicas and fewer, on more nodes and fewer."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fullrank_fleet.serving.actors import coordinator_of, stop_fleet
from fullrank_fleet.serving.coordinator import Snapshot
from tests.unit.fleet.jobs.planted import planted_set
from tests.waiting import LONG_S, wait_until

pytestmark = pytest.mark.slow
SHARDS = 2


@pytest.fixture
def coordinator(ray: Any, tmp_path: Path) -> Iterator[Any]:
    version = planted_set(tmp_path, 60, SHARDS).rpartition("/")[2]
    found = coordinator_of(str(tmp_path / "sets"), 2, str(tmp_path / "cache"))
    ray.get(found.activate.remote(version), timeout=LONG_S)
    yield found
    stop_fleet()


def snapshot_of(ray: Any, coordinator: Any) -> Snapshot:
    found: Snapshot = ray.get(coordinator.follow.remote(None, 0, 1.0), timeout=LONG_S)
    return found


def nodes_of(ray: Any, coordinator: Any) -> list[set[str]]:
    """Return the nodes of the replicas of each shard; none while one of them is stopped to move."""
    try:
        found = snapshot_of(ray, coordinator)
        return [
            {ray.get(one.actor.node.remote(), timeout=LONG_S) for one in of}
            for of in found.replicas
        ]
    except ray.exceptions.RayActorError:
        return []


def test_a_fleet_that_is_scaled_spreads_and_remembers_its_size(
    cluster: Any, ray: Any, coordinator: Any
) -> None:
    """A third node takes the third replicas once it joins; the next coordinator has as many."""
    assert [len(of) for of in nodes_of(ray, coordinator)] == [2] * SHARDS
    assert ray.get(coordinator.scale.remote(3), timeout=LONG_S).per_shard == 3
    assert [len(of) for of in nodes_of(ray, coordinator)] == [2] * SHARDS
    joining = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)

    wait_until(
        lambda: [len(of) for of in nodes_of(ray, coordinator)] == [3] * SHARDS,
        "each shard has replicas on three nodes",
        120,
    )
    os.kill(ray.get(coordinator.pid.remote(), timeout=LONG_S), signal.SIGKILL)

    def size() -> tuple[int, list[int]]:
        try:
            found = snapshot_of(ray, coordinator)
        except ray.exceptions.RayActorError:
            return 0, []
        return found.per_shard, [len(of) for of in found.replicas]

    wait_until(lambda: size() == (3, [3] * SHARDS), "the next coordinator has three", 120)
    assert ray.get(coordinator.scale.remote(1), timeout=LONG_S).per_shard == 1
    assert size() == (1, [1] * SHARDS)
    names = ray.util.list_named_actors()
    assert sorted(names) == ["coordinator", *(f"shard-{n:05}-0" for n in range(SHARDS))]
    cluster.remove_node(joining)
