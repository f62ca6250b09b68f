"""Shards and the coordinator as actors: killed, frozen and restarted under requests."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fullrank_fleet.jobs.index import index_set
from fullrank_fleet.jobs.tasks import InProcess
from fullrank_fleet.partitions import partition_of, runs_of, shard_of
from fullrank_fleet.remote import Folder
from fullrank_fleet.serving.actors import ActorReplica, coordinator_of, stop_fleet
from fullrank_fleet.serving.coordinator import Snapshot
from fullrank_fleet.serving.fanout import Failure, ReplicatedShards
from fullrank_fleet.serving.wire import Answer, Ask, Read, pack, unpack_reply
from fullrank_fleet.sets import read_set
from fullrank_service.base.metrics import Metrics
from tests.unit.fleet.jobs.planted import QUIET, corpus_of, document, planted_bundle

pytestmark = pytest.mark.slow
SHARDS, COUNT = 2, 60


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, str]]:
    """Two versions in one folder, (folder, version), the second with one document more."""
    root = tmp_path_factory.mktemp("sets")
    bundle = planted_bundle(tmp_path_factory.mktemp("bundles"))
    found = []
    for count in (COUNT, COUNT + 1):
        corpus = corpus_of(tmp_path_factory.mktemp("corpus"), count)
        written = index_set(
            str(bundle),
            str(corpus),
            str(root),
            shards=SHARDS,
            runner=InProcess(),
            reporter=QUIET,
        )
        found.append((root, written.version))
    return found


@pytest.fixture
def coordinator(ray: Any, versions: list[tuple[Path, str]], tmp_path: Path) -> Iterator[Any]:
    """A coordinator whose fleet serves the first version, with two replicas a shard."""
    root, first = versions[0]
    (root / "active.json").unlink(missing_ok=True)
    found = coordinator_of(str(root), 2, str(tmp_path / "cache"))
    ray.get(found.activate.remote(first))
    yield found
    stop_fleet()


def snapshot_of(ray: Any, coordinator: Any, epoch: int = 0) -> Snapshot:
    found: Snapshot = ray.get(coordinator.follow.remote(None, epoch, 1.0))
    return found


async def read(
    shards: ReplicatedShards, snapshot: Snapshot, number: int
) -> Mapping[str, Any] | Failure:
    """Return the fields of a document."""
    assert snapshot.set_address is not None
    manifest = read_set(Folder(snapshot.set_address))
    id = document(number)["_id"]
    shard = shard_of(partition_of(id), runs_of(SHARDS))
    answers = await shards.ask({shard: pack(Ask(manifest.version, manifest.set_id, Read(id)))}, 5.0)
    answer = answers[shard]
    if isinstance(answer, Failure):
        return answer
    reply = unpack_reply(answer)
    assert isinstance(reply, Answer), reply
    fields: Mapping[str, Any] = reply.content
    return fields


def expected(number: int) -> dict[str, Any]:
    return {name: value for name, value in document(number).items() if name != "_id"}


def pid(ray: Any, replica: ActorReplica) -> int:
    found: int = ray.get(replica.actor.pid.remote())
    return found


def test_documents_are_read_while_replicas_die_and_freeze(ray: Any, coordinator: Any) -> None:
    snapshot = snapshot_of(ray, coordinator)
    assert snapshot.version is not None
    assert [len(replicas) for replicas in snapshot.replicas] == [2] * SHARDS
    served, metrics = snapshot, Metrics()
    shards = ReplicatedShards(metrics)
    shards.update(snapshot.replicas)
    victims = [pid(ray, replicas[0]) for replicas in snapshot.replicas]

    async def load() -> list[float]:
        taken = []
        for step in range(400):
            if step == 100:
                os.kill(victims[0], signal.SIGKILL)
            if step == 200:
                os.kill(victims[1], signal.SIGSTOP)
            began = time.monotonic()
            assert await read(shards, served, step % COUNT) == expected(step % COUNT)
            taken.append(time.monotonic() - began)
            await asyncio.sleep(0.005)
        return taken

    try:
        taken = asyncio.run(load())
    finally:
        os.kill(victims[1], signal.SIGCONT)
    exposed = metrics.render().decode()
    assert 'fullrank_shard_calls_total{kind="first"} 400.0' in exposed
    [hedges] = re.findall(r'fullrank_shard_calls_total\{kind="hedge"\} (\S+)', exposed)
    assert float(hedges) <= 0.05 * 400 + 64
    assert max(taken) < 3

    def is_back() -> bool:
        try:
            again = pid(ray, snapshot.replicas[0][0])
        except ray.exceptions.RayActorError:
            # Ray refuses calls of an actor that it starts again.
            return False
        return again != victims[0]

    deadline = time.monotonic() + 30
    while [len(replicas) for replicas in snapshot.replicas] != [2] * SHARDS or not is_back():
        assert time.monotonic() < deadline, "the killed replica has not come back"
        snapshot = snapshot_of(ray, coordinator, snapshot.epoch)


def test_a_killed_coordinator_comes_back_with_what_was_committed(
    ray: Any, coordinator: Any, versions: list[tuple[Path, str]]
) -> None:
    (_, first), (_, second) = versions
    before = snapshot_of(ray, coordinator)
    swap = coordinator.activate.remote(second)
    time.sleep(0.05)
    os.kill(ray.get(coordinator.pid.remote()), signal.SIGKILL)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(swap)
    deadline = time.monotonic() + 60
    while True:
        try:
            after = snapshot_of(ray, coordinator)
            break
        except ray.exceptions.RayActorError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert (after.generation, after.version) in [(1, first), (2, second)]
    assert [len(replicas) for replicas in after.replicas] == [2] * SHARDS
    assert before.replicas == after.replicas
    again = ray.get(coordinator.activate.remote(second))
    assert (again.generation, again.version) == (2, second)


def nodes_of(ray: Any, coordinator: Any) -> list[set[str]]:
    """Return the nodes of the replicas of each shard; none while one of them is stopped to move."""
    try:
        found = snapshot_of(ray, coordinator)
        return [{ray.get(one.actor.node.remote()) for one in of} for of in found.replicas]
    except ray.exceptions.RayActorError:
        return []


def test_a_fleet_that_is_scaled_spreads_and_remembers_its_size(
    cluster: Any, ray: Any, coordinator: Any
) -> None:
    """A third node takes the third replicas once it joins; the next coordinator has as many."""
    assert [len(of) for of in nodes_of(ray, coordinator)] == [2] * SHARDS
    assert ray.get(coordinator.scale.remote(3)).per_shard == 3
    assert [len(of) for of in nodes_of(ray, coordinator)] == [2] * SHARDS
    joining = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)

    def until(condition: Any) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.5)

    until(lambda: [len(of) for of in nodes_of(ray, coordinator)] == [3] * SHARDS)
    os.kill(ray.get(coordinator.pid.remote()), signal.SIGKILL)

    def size() -> tuple[int, list[int]]:
        try:
            found = snapshot_of(ray, coordinator)
        except ray.exceptions.RayActorError:
            return 0, []
        return found.per_shard, [len(of) for of in found.replicas]

    until(lambda: size() == (3, [3] * SHARDS))
    assert ray.get(coordinator.scale.remote(1)).per_shard == 1
    assert size() == (1, [1] * SHARDS)
    names = ray.util.list_named_actors()
    assert sorted(names) == ["coordinator", *(f"shard-{n:05}-0" for n in range(SHARDS))]
    cluster.remove_node(joining)
