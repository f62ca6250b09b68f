"""A router joins its cluster again when the head was started again: handles are renewed, and no request is lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from fullrank_fleet.serving import ray_app
from fullrank_fleet.serving.fanout import Failure, ReplicatedShards
from fullrank_fleet.serving.ray_app import Rejoining
from fullrank_fleet.serving.replicas import Answers, Replica
from fullrank_service.base.metrics import Metrics

pytestmark = pytest.mark.anyio


@dataclass
class Cluster:
    """A head that can be started again. Handles answer only in the membership that they were found in."""

    heads: int = 1
    is_up: bool = True
    membership: int = 0
    failures: int = 0
    gone: set[int] = field(default_factory=set)
    threads: set[str] = field(default_factory=set)

    def head(self, address: str) -> str | None:
        return str(self.heads) if self.is_up else None

    def leave(self) -> None:
        self.membership = -1

    def join(self, address: str) -> None:
        self.threads.add(threading.current_thread().name)
        time.sleep(0.05)
        if self.failures:
            self.failures -= 1
            raise ConnectionError("no head")
        self.membership = self.heads

    def coordinator(self, *_: object) -> int:
        return self.membership

    def replica(self, number: int, place: int) -> Replica:
        if place in self.gone:
            raise ValueError(f"no replica {place}")
        return Handle(self, place, self.membership)


@dataclass(frozen=True)
class Handle:
    cluster: Cluster = field(compare=False)
    place: int
    membership: int = field(compare=False)
    seconds: float = field(default=0.0, compare=False)
    number: int = 0

    async def call(self, payloads: Sequence[bytes], left_s: Sequence[float]) -> Answers:
        await asyncio.sleep(self.seconds)
        assert self.membership == self.cluster.membership
        return [b"%d" % self.place for _ in payloads]


class Router:
    """Shards with two replicas of one shard, which join again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.0) -> None:
        self.cluster = Cluster(membership=1)
        for name, method in (
            ("head_of", self.cluster.head),
            ("leave", self.cluster.leave),
            ("join", self.cluster.join),
            ("coordinator_of", self.cluster.coordinator),
            ("running_replica", self.cluster.replica),
        ):
            monkeypatch.setattr(ray_app, name, method)
        self.metrics = Metrics()
        self.shards = ReplicatedShards(self.metrics)
        self.shards.update([[Handle(self.cluster, place, 1, seconds) for place in (0, 1)]])
        self.coordinators: list[int] = []
        fleet = ray_app.FleetSettings("10.0.0.1:6379", "s3://bundles")
        self.rejoin = Rejoining(fleet, None, self.shards, self.coordinators.append)

    async def ask(self, deadline_s: float = 2.0) -> bytes | Failure:
        return (await self.shards.ask({0: b"!"}, deadline_s))[0]


@pytest.mark.parametrize("is_up", [True, False])
async def test_nothing_happens_while_the_head_is_the_same_or_dead(
    is_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = Router(monkeypatch)
    router.cluster.heads, router.cluster.is_up = 1 if is_up else 2, is_up
    await router.rejoin()
    assert (router.coordinators, router.cluster.threads) == ([], set())
    assert await router.ask() in (b"0", b"1")


async def test_requests_before_during_and_after_a_pause_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    router = Router(monkeypatch, seconds=0.05)
    router.cluster.heads = 2
    before = [asyncio.ensure_future(router.ask()) for _ in range(3)]
    await asyncio.sleep(0)
    joining = asyncio.ensure_future(router.rejoin())
    while router.cluster.membership == 1:
        await asyncio.sleep(0.001)
    assert all(asked.done() for asked in before)
    during = [asyncio.ensure_future(router.ask()) for _ in range(3)]
    await joining
    answers = [*await asyncio.gather(*before, *during), await router.ask()]
    assert set(answers) == {b"0", b"1"}
    assert router.coordinators == [2]
    assert threading.current_thread().name not in router.cluster.threads
    await router.rejoin()
    assert router.coordinators == [2]


async def test_a_join_that_fails_is_tried_again_and_requests_wait_to_their_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_app, "_RETRY_S", 0.1)
    router = Router(monkeypatch)
    router.cluster.heads, router.cluster.failures = 2, 2
    joining = asyncio.ensure_future(router.rejoin())
    while router.cluster.membership == 1:
        await asyncio.sleep(0.001)
    impatient, patient = router.ask(0.05), router.ask(5.0)
    assert isinstance(await impatient, Failure)
    assert await patient in (b"0", b"1")
    await joining
    assert router.coordinators == [2]


async def test_a_replica_that_is_gone_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    router = Router(monkeypatch)
    router.cluster.heads, router.cluster.gone = 2, {1}
    await router.rejoin()
    assert [await router.ask() for _ in range(4)] == [b"0"] * 4
    assert 'fullrank_shard_replicas{worker="0"} 1.0' in router.metrics.render().decode()
