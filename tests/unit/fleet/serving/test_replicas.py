"""Replicas of a shard: slow, failing and frozen ones, without Ray."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest

from fullrank_fleet.serving.fanout import Failure, ReplicatedShards
from fullrank_fleet.serving.replicas import (
    FAILURES,
    OPEN_S,
    Answers,
    Breaker,
    ReplicaSet,
    Unavailable,
)
from fullrank_service.base.metrics import Metrics

pytestmark = pytest.mark.anyio


class Fake:
    """Answers with its name after some seconds, or raises."""

    def __init__(self, name: str, seconds: float = 0.0) -> None:
        self.name, self.seconds, self.error = name, seconds, False
        self.calls = 0

    async def call(self, payloads: Sequence[bytes], left_s: Sequence[float]) -> Answers:
        self.calls += 1
        await asyncio.sleep(self.seconds)
        if self.error:
            raise ConnectionError("died")
        return [self.name.encode() + payload for payload in payloads]


def of(*fakes: Fake) -> ReplicaSet:
    found = ReplicaSet(Metrics())
    found.update(fakes)
    return found


def counted(replicas: ReplicaSet, series: str) -> float:
    lines = replicas.metrics.render().decode().splitlines()
    [value] = [line.rpartition(" ")[2] for line in lines if line.startswith(f"fullrank_{series} ")]
    return float(value)


async def ask(replicas: ReplicaSet, count: int, deadline_s: float = 2.0) -> list[bytes]:
    return [await replicas.ask(b"!", deadline_s) for _ in range(count)]


async def test_replicas_take_turns() -> None:
    first, second = Fake("a"), Fake("b")
    answers = await ask(of(first, second), 10)
    assert sorted(set(answers)) == [b"a!", b"b!"]
    assert first.calls == second.calls == 5


async def test_a_failing_replica_costs_a_retry_until_its_breaker_opens() -> None:
    good, bad = Fake("a"), Fake("b")
    bad.error = True
    replicas = of(good, bad)
    assert await ask(replicas, 40) == [b"a!"] * 40
    assert bad.calls == FAILURES == counted(replicas, 'shard_calls_total{kind="retry"}')


async def test_a_frozen_replica_delays_few_requests_and_fails_none() -> None:
    good, frozen = Fake("a", 0.001), Fake("b", 0.001)
    replicas = of(good, frozen)
    before = frozen.calls
    await ask(replicas, 60)
    frozen.seconds = 3600.0
    taken = []
    for _ in range(60):
        began = time.monotonic()
        assert await replicas.ask(b"!", 2.0) == b"a!"
        taken.append(time.monotonic() - began)
        await asyncio.sleep(0.01)
    assert max(taken) < 1.0  # one attempt at most, never the deadline
    hedges = counted(replicas, 'shard_calls_total{kind="hedge"}')
    assert counted(replicas, "shard_failures_total") <= hedges
    # Overtaken calls end after 0.25 s; then the breaker opens.
    assert frozen.calls - before <= 30 + 25


async def test_a_slow_replica_is_hedged_for_a_twentieth_of_the_calls() -> None:
    slow, fast = Fake("a", 0.001), Fake("b", 0.001)
    replicas = of(slow, fast)
    replicas.hedges_left = 0.0
    await ask(replicas, 40)
    slow.seconds = 0.03
    await ask(replicas, 200)
    calls = counted(replicas, 'shard_calls_total{kind="first"}')
    assert calls == 240
    assert 0 < counted(replicas, 'shard_calls_total{kind="hedge"}') <= 0.05 * calls


async def test_a_replica_that_stays_slow_is_left_alone() -> None:
    good, slow = Fake("a", 0.001), Fake("b", 0.001)
    replicas = of(good, slow)
    replicas.hedges_left = 0.0
    await ask(replicas, 60)
    slow.seconds, slow.calls = 1.0, 0
    taken = []
    for _ in range(100):
        began = time.monotonic()
        await replicas.ask(b"!", 2.0)
        taken.append(time.monotonic() - began)
    # Late after 0.25 s, for the few calls until the breaker opens, and for a trial a second.
    assert max(taken) < 0.9
    assert slow.calls <= 10


async def test_no_call_fails_where_all_replicas_become_slow() -> None:
    first, second = Fake("a", 0.001), Fake("b", 0.001)
    replicas = of(first, second)
    await ask(replicas, 60)
    first.seconds = second.seconds = 0.4
    for _ in range(6):
        answers = await asyncio.gather(*(replicas.ask(b"!", 2.0) for _ in range(20)))
        assert set(answers) <= {b"a!", b"b!"}
    # What is usual by now is not late.
    assert counted(replicas, 'shard_breakers_open{worker="0"}') == 0


async def test_a_frozen_and_a_dead_replica_leave_the_third() -> None:
    frozen, dead, good = Fake("a", 3600.0), Fake("b"), Fake("c")
    dead.error = True
    replicas = of(good, frozen, dead)
    began = time.monotonic()
    # The frozen one comes first in this turn, then the dead one once that is late.
    assert await replicas.ask(b"!", 2.0) == b"c!"
    assert time.monotonic() - began < 1.0
    assert (frozen.calls, dead.calls, good.calls) == (1, 1, 1)


async def test_the_time_until_a_hedge_begins_again_with_a_retry() -> None:
    dead, slow, good = Fake("a", 0.3), Fake("b", 0.2), Fake("c")
    dead.error = True
    replicas = of(good, dead, slow)
    # A hedge of the failed call would come in the middle of the retry.
    with patch.object(ReplicaSet, "p95", 0.4):
        assert await ask(replicas, 1) == [b"b!"]
    assert counted(replicas, 'shard_calls_total{kind="hedge"}') == 0
    assert counted(replicas, 'shard_calls_total{kind="retry"}') == 1
    assert good.calls == 0


async def test_a_request_whose_deadline_has_passed_calls_no_replica() -> None:
    idle = Fake("a")
    with pytest.raises(Unavailable, match="in time"):
        await of(idle).ask(b"!", 0.0)
    await asyncio.sleep(0.01)
    assert idle.calls == 0


async def test_a_cancelled_request_leaves_no_timer_but_those_of_its_calls() -> None:
    loop = asyncio.get_running_loop()
    later: list[asyncio.TimerHandle] = []
    call_later = loop.call_later

    def noted(*arguments: Any, **named: Any) -> asyncio.TimerHandle:
        later.append(call_later(*arguments, **named))
        return later[-1]

    with patch.object(loop, "call_later", noted):
        asked = of(Fake("a", 3600.0), Fake("b")).ask(b"!", 30.0)
    asked.cancel()
    await asyncio.sleep(0)
    assert [own.cancelled() for own in later] == [True, False]


async def test_without_an_answer_the_deadline_ends_it() -> None:
    replicas = of(Fake("a", 3600.0), Fake("b", 3600.0))
    began = time.monotonic()
    with pytest.raises(Unavailable, match="in time"):
        await replicas.ask(b"!", 0.1)
    assert time.monotonic() - began < 1.0


async def test_when_all_fail_the_reason_is_named() -> None:
    bad = Fake("a")
    bad.error = True
    with pytest.raises(Unavailable, match="ConnectionError: died"):
        await ask(of(bad), 1)
    with pytest.raises(Unavailable, match="no replica is known"):
        await ask(of(), 1)


async def test_a_replica_that_recovers_is_used_again() -> None:
    good, bad = Fake("a"), Fake("b")
    now = 0.0
    replicas = ReplicaSet(Metrics(), clock=lambda: now)
    replicas.update([good, bad])
    bad.error = True
    await ask(replicas, 20)
    assert counted(replicas, 'shard_breakers_open{worker="0"}') == 1
    bad.error, calls = False, bad.calls
    await ask(replicas, 20)
    assert bad.calls == calls
    now = OPEN_S + 1
    await ask(replicas, 20)
    assert bad.calls >= calls + 9
    assert counted(replicas, 'shard_breakers_open{worker="0"}') == 0


async def test_a_replica_that_leaves_with_an_open_breaker_is_counted_no_more() -> None:
    good, bad = Fake("a"), Fake("b")
    bad.error = True
    replicas = of(good, bad)
    await ask(replicas, 20)
    replicas.update([good])
    assert counted(replicas, 'shard_breakers_open{worker="0"}') == 0


async def test_replicas_that_the_coordinator_cannot_reach_are_still_asked() -> None:
    metrics = Metrics()
    shards = ReplicatedShards(metrics)
    shards.update([[Fake("a")]])
    shards.update([[]])
    assert await shards.ask({0: b"!"}, 1.0) == {0: b"a!"}
    assert 'fullrank_shard_replicas{worker="0"} 0.0' in metrics.render().decode()


async def test_a_shard_without_an_answer_is_counted() -> None:
    metrics = Metrics()
    shards = ReplicatedShards(metrics)
    shards.update([[Fake("a")], []])
    answers = await shards.ask(dict.fromkeys(range(3), b"!"), 1.0)
    assert answers[0] == b"a!"
    assert [isinstance(answers[number], Failure) for number in (1, 2)] == [True, True]
    assert "fullrank_shards_missing_total 2.0" in metrics.render().decode()


async def test_a_cancelled_request_that_waits_for_a_busy_replica_is_never_sent() -> None:
    busy = Fake("a", 0.05)
    shards = ReplicatedShards(Metrics())
    shards.update([[busy]])
    asked = []
    for _ in range(3):
        # In rounds of their own: two calls may be under way, and the third request waits.
        asked.append(asyncio.create_task(shards.ask({0: b"!"}, 1.0)))
        await asyncio.sleep(0.005)
    asked[-1].cancel()
    assert await asyncio.gather(*asked[:2]) == [{0: b"a!"}] * 2
    await asyncio.sleep(0.02)
    assert await shards.ask({0: b"?"}, 1.0) == {0: b"a?"}
    assert busy.calls == 3


def test_trials_of_an_open_breaker_become_rarer() -> None:
    now = 0.0
    breaker = Breaker(lambda: now)
    for _ in range(FAILURES):
        breaker.failed()
    trials = 0
    while now < 60:
        now += 0.1
        if breaker.allows():
            trials += 1
            breaker.failed()
    assert breaker.is_open
    assert 4 <= trials <= 8
    breaker.succeeded()
    assert breaker.allows()


def test_calls_that_began_before_the_breaker_opened_prolong_nothing() -> None:
    now = 0.0
    breaker = Breaker(lambda: now)
    for _ in range(FAILURES + 16):
        breaker.failed()
    now = OPEN_S
    assert breaker.allows()
    breaker.failed()
    breaker.failed()
    now += 2 * OPEN_S
    assert breaker.allows()


@pytest.mark.parametrize("turn", [0, 1])
async def test_no_trial_is_wasted_on_a_call_that_asks_another_replica(turn: int) -> None:
    now = 0.0
    bad, good = Fake("a"), Fake("b")
    replicas = ReplicaSet(Metrics(), clock=lambda: now)
    replicas.update([bad, good])
    bad.error = True
    await ask(replicas, 4 * FAILURES + turn)
    bad.error, asked = False, bad.calls
    now = OPEN_S + 0.1
    for _ in range(2):
        await ask(replicas, 1)
        now += 1
    assert bad.calls == asked + 1


async def test_replicas_that_stay_keep_their_breakers() -> None:
    good, bad, new = Fake("a"), Fake("b"), Fake("c")
    bad.error = True
    replicas = of(good, bad)
    await ask(replicas, 20)
    replicas.update([bad, new])
    assert await ask(replicas, 10) == [b"c!"] * 10
    assert bad.calls == FAILURES
