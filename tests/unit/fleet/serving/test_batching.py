"""Requests that wait for a replica travel together, and each gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fullrank_fleet.serving.replicas import Answers, Batcher

pytestmark = pytest.mark.anyio

# As fullrank_fleet.serving.replicas has them.
CALLS, MOST = 2, 4


class Fake:
    """A replica that answers a call once ``go`` is set, and notes what calls carried."""

    def __init__(self) -> None:
        self.calls: list[list[bytes]] = []
        self.left_s: list[list[float]] = []
        self.go = asyncio.Event()
        self.error: Exception | None = None

    async def call(self, payloads: Sequence[bytes], left_s: Sequence[float]) -> Answers:
        self.calls.append(list(payloads))
        self.left_s.append(list(left_s))
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return [ValueError("bad") if own == b"bad" else own.upper() for own in payloads]


def started(
    batcher: Batcher, payloads: Sequence[bytes], timeout_s: float = 5.0
) -> list[asyncio.Future[bytes]]:
    loop = asyncio.get_running_loop()
    return [
        batcher.ask(payload, loop.time() + timeout_s, loop.create_future()) for payload in payloads
    ]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def busy(batcher: Batcher, timeout_s: float = 5.0) -> list[asyncio.Future[bytes]]:
    asked = []
    for _ in range(CALLS):
        asked += started(batcher, [b"a"], timeout_s)
        await settle()
    return asked


async def test_requests_of_one_round_travel_together() -> None:
    fake = Fake()
    payloads = [b"%d" % number + b"x" for number in range(MOST + 2)]
    asked = started(Batcher(fake.call), payloads)
    await settle()
    assert fake.calls == [payloads[:MOST], payloads[MOST:]]
    fake.go.set()
    assert await asyncio.gather(*asked) == [payload.upper() for payload in payloads]


async def test_requests_wait_while_a_replica_has_enough_calls_then_travel_together() -> None:
    fake = Fake()
    batcher = Batcher(fake.call)
    first = await busy(batcher)
    assert fake.calls == [[b"a"]] * CALLS
    payloads = [b"%d" % number + b"x" for number in range(MOST + 3)]
    asked = []
    for payload in payloads:
        asked += started(batcher, [payload])
        await settle()
    assert fake.calls == [[b"a"]] * CALLS
    fake.go.set()
    assert await asyncio.gather(*asked) == [payload.upper() for payload in payloads]
    assert await asyncio.gather(*first) == [b"A"] * CALLS
    assert fake.calls[CALLS:] == [payloads[:MOST], payloads[MOST:]]


async def test_a_request_that_fails_fails_alone() -> None:
    fake = Fake()
    asked = started(Batcher(fake.call), [b"b", b"bad", b"c"])
    fake.go.set()
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert fake.calls == [[b"b", b"bad", b"c"]]
    assert found[0] == b"B"
    assert found[2] == b"C"
    assert isinstance(found[1], ValueError)


async def test_a_call_that_fails_fails_all_its_requests_and_later_ones_are_sent() -> None:
    fake = Fake()
    batcher = Batcher(fake.call)
    asked = await busy(batcher) + started(batcher, [b"a"] * 2)
    await settle()
    fake.error = ConnectionError("died")
    fake.go.set()
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [str(own) for own in found] == ["died"] * (CALLS + 2)
    fake.error = None
    [later] = started(batcher, [b"b"])
    assert await later == b"B"


async def test_a_call_carries_the_time_that_each_request_has_left() -> None:
    fake = Fake()
    batcher = Batcher(fake.call)
    first = await busy(batcher, 60.0)
    waiting = [*started(batcher, [b"b"], 60.0), *started(batcher, [b"c"], 30.0)]
    await asyncio.sleep(0.1)
    fake.go.set()
    await asyncio.gather(*first, *waiting)
    assert all(59 < own <= 60 for [own] in fake.left_s[:CALLS])
    longer, shorter = fake.left_s[CALLS]
    assert 50 < longer < 59.95
    assert 20 < shorter < 29.95


async def test_a_frozen_replica_gets_later_requests_once_the_first_have_timed_out() -> None:
    fake = Fake()
    batcher = Batcher(fake.call)
    first = await busy(batcher, 0.05)
    wanted: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    given_up = batcher.ask(b"given up", asyncio.get_running_loop().time() + 5.0, wanted)
    wanted.set_exception(TimeoutError())
    wanted.exception()
    found = await asyncio.gather(*first, return_exceptions=True)
    assert [type(own) for own in found] == [TimeoutError] * CALLS
    fake.go.set()
    [later] = started(batcher, [b"b"])
    assert await later == b"B"
    # Nobody waited any more for the third.
    assert given_up.cancelled()
    assert fake.calls == [[b"a"]] * CALLS + [[b"b"]]


async def test_a_cancelled_request_is_not_sent() -> None:
    fake = Fake()
    batcher = Batcher(fake.call)
    first = await busy(batcher)
    loop = asyncio.get_running_loop()
    wanted = [loop.create_future() for _ in range(MOST + 1)]
    asked = [batcher.ask(b"b", loop.time() + 5.0, own) for own in wanted]
    for own in wanted[:MOST]:
        own.cancel()
    fake.go.set()
    assert await asked[-1] == b"B"
    assert await asyncio.gather(*first) == [b"A"] * CALLS
    assert fake.calls[CALLS:] == [[b"b"]]
    assert all(own.cancelled() for own in asked[:MOST])
