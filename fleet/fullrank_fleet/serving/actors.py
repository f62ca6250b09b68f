"""Shards and the coordinator as Ray actors.

Ray starts them, restarts them and finds them by name. What it does slowly (a frozen node is noticed after more than a
minute) routers and the coordinator do themselves.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fullrank.errors import FullrankError
from fullrank_fleet.cluster import HEAD
from fullrank_fleet.remote import BundleCache
from fullrank_fleet.remote.cache import default_cache
from fullrank_fleet.serving.coordinator import Coordinator
from fullrank_fleet.serving.documents import LogSource
from fullrank_fleet.serving.replicas import Answers
from fullrank_fleet.serving.shard import ShardServer

COORDINATOR, _SHARD_NAME = "coordinator", "shard"
# The longest time until the name of a stopped replica is free.
_STOP_S = 60.0
# Ray starts a process again however often it dies.
_ALWAYS = -1
# Cores that Ray reserves for a replica: nearly none, because replicas share the cores of their node.
_CORES = 0.01
# Ray puts an actor on the head if it asks for any amount of the head's resource (fullrank_fleet.cluster).
_LITTLE = 0.001
# Calls that a replica accepts at once; all but a few wait (ShardServer). Each worker of a router makes two at most.
_CALLS = 64
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class ActorReplica:
    """A replica of a shard in another process, for the coordinator and for routers."""

    number: int
    place: int
    actor: Any = field(compare=False)

    async def load(self, address: str) -> Sequence[str]:
        return await answer_of(self.actor.load.remote(address))

    async def release(self, versions: Sequence[str]) -> Sequence[str]:
        return await answer_of(self.actor.release.remote(list(versions)))

    async def ping(self) -> str:
        return await answer_of(self.actor.ping.remote())

    async def node(self) -> str:
        return await answer_of(self.actor.node.remote())

    async def stop(self) -> None:
        ray.kill(self.actor)
        # Ray gives the name to another process a moment later.
        async with asyncio.timeout(_STOP_S):
            with suppress(ValueError):
                while running_replica(self.number, self.place) is not None:
                    await asyncio.sleep(0.05)

    async def call(self, payloads: Sequence[bytes], left_s: Sequence[float]) -> Answers:
        answers: Answers = await answer_of(self.actor.answer.remote(payloads, left_s))
        return answers


async def answer_of(reference: Awaitable[Answer]) -> Answer:
    """Wait for the answer of an actor.

    Raises:
        FullrankError: As the actor raised it.
        ConnectionError: The actor is dead or cannot be reached.
    """
    try:
        return await reference
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, FullrankError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        reason = str(error).partition("\n")[0]
        raise ConnectionError(f"{type(error).__name__}: {reason}") from error


class ShardActor:
    """A process that holds one shard, of each version that is in use; without ``cache``, bundles are in /tmp."""

    def __init__(self, number: int, cache: str | None, log: LogSource | None) -> None:
        folder = Path(cache) if cache else default_cache()
        self._server = ShardServer(number, BundleCache(folder), log)
        self._instance = secrets.token_hex(8)

    @ray.method(concurrency_group="control")
    def load(self, address: str) -> tuple[str, ...]:
        """Download, verify and warm a shard, at once if it is loaded; return the versions that are open."""
        self._server.load(address)
        return self._server.versions

    @ray.method(concurrency_group="control")
    def release(self, versions: list[str]) -> tuple[str, ...]:
        """Drop versions that nobody asks for; return those that are open."""
        return self._server.release_idle(versions)

    @ray.method(concurrency_group="ping")
    def ping(self) -> str:
        """Return a text that is another one after the process was started again."""
        return self._instance

    @ray.method(concurrency_group="ping")
    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())

    @ray.method(concurrency_group="rank")
    def answer(self, payloads: Sequence[bytes], left_s: Sequence[float]) -> Answers:
        return self._server.answers(payloads, left_s)

    @ray.method(concurrency_group="ping")
    def pid(self) -> int:
        return os.getpid()


class CoordinatorActor(Coordinator):
    def __init__(self, root: str, replicas: int, cache: str | None, log: LogSource | None) -> None:
        fingerprint = None if log is None else log.fingerprint
        # The fleet may have been scaled since it was started.
        replicas = _running() or replicas
        super().__init__(root, replicas, Spawner(replicas, cache, log), fingerprint, able_nodes)

    async def pid(self) -> int:
        return os.getpid()


# Ray's types do not know this argument.
_remote: Any = ray.remote
_SHARD = _remote(concurrency_groups={"rank": _CALLS, "control": 1, "ping": 1})(ShardActor)


@dataclass(frozen=True, slots=True)
class Spawner:
    """Starts the replicas of shards, those of one shard on different nodes if there are as many at that time."""

    replicas: int
    cache: str | None
    log: LogSource | None = None

    def __call__(self, number: int, place: int, node: str | None = None) -> ActorReplica:
        with suppress(ValueError):
            return running_replica(number, place)
        nodes = able_nodes()
        if node is None and nodes:
            # Those of one shard follow each other.
            node = nodes[(number * self.replicas + place) % len(nodes)]
        actor = _SHARD.options(
            name=_name_of(number, place),
            get_if_exists=True,
            lifetime="detached",
            max_restarts=_ALWAYS,
            num_cpus=_CORES,
            # Ray starts it elsewhere if the node has died.
            scheduling_strategy=node and NodeAffinitySchedulingStrategy(node, soft=True),
        ).remote(number, self.cache, self.log)
        return ActorReplica(number, place, actor)


def able_nodes() -> list[str]:
    """Return the ids of the nodes that can hold replicas; one that was started with ``--num-cpus 0`` cannot."""
    nodes: Any = ray.nodes
    return sorted(
        node["NodeID"]
        for node in nodes()
        if node["Alive"] and node["Resources"].get("CPU", 0.0) >= _CORES
    )


def _running() -> int:
    names = [name.split("-") for name in ray.util.list_named_actors()]
    return max((int(name[2]) + 1 for name in names if name[0] == _SHARD_NAME), default=0)


def running_replica(number: int, place: int) -> ActorReplica:
    """Find a replica of the cluster that this process has joined. Raises ValueError: there is none."""
    return ActorReplica(number, place, ray.get_actor(_name_of(number, place)))


def _name_of(number: int, place: int) -> str:
    return f"{_SHARD_NAME}-{number:05}-{place}"


def coordinator_of(
    root: str, replicas: int, cache: str | None, log: LogSource | None = None
) -> Any:
    """Find or start the coordinator of a fleet; there is one in a cluster, on the node of its head.

    One that runs keeps its own settings, which may be others: its snapshots say which they are.
    """
    return (
        ray.remote(CoordinatorActor)
        .options(
            name=COORDINATOR,
            get_if_exists=True,
            lifetime="detached",
            max_restarts=_ALWAYS,
            num_cpus=0,
            # Without the head Ray starts no actor again, so a coordinator beside it depends on no other machine.
            resources={HEAD: _LITTLE},
        )
        .remote(root, replicas, cache, log)
    )


def running_coordinator() -> Any:
    """Find the coordinator of the cluster that this process has joined. Raises FullrankError: no fleet runs there."""
    try:
        return ray.get_actor(COORDINATOR)
    except ValueError:
        raise FullrankError(
            "no fleet runs in this cluster; start it with: fullrank serve --ray"
        ) from None


def stop_fleet() -> None:
    """Stop the coordinator and all replicas of the cluster that this process has joined."""
    # The coordinator first, which starts replicas.
    for found in sorted(ray.util.list_named_actors()):
        with suppress(ValueError):  # it has ended meanwhile
            ray.kill(ray.get_actor(found))
