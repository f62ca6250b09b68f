"""Requests that wait for a replica travel together, and each gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fleet.serving.batching import Answers, Batcher

# As fleet.serving.batching has them.
CALLS, MOST = 2, 4


class Fake:
    """A replica that answers a call once ``go`` is set, and notes what calls carried."""

    def __init__(self) -> None:
        self.calls: list[list[bytes]] = []
        self.go = asyncio.Event()
        self.error: Exception | None = None

    async def call(self, payloads: Sequence[bytes]) -> Answers:
        self.calls.append(list(payloads))
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return [ValueError("bad") if own == b"bad" else own.upper() for own in payloads]


def started(
    batcher: Batcher, payloads: Sequence[bytes], timeout_s: float = 5.0
) -> list[asyncio.Task[bytes]]:
    return [asyncio.create_task(batcher.ask(payload, timeout_s)) for payload in payloads]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def busy(batcher: Batcher, timeout_s: float = 5.0) -> list[asyncio.Task[bytes]]:
    """Make as many calls as may be under way, of one request each."""
    asked = []
    for _ in range(CALLS):
        asked += started(batcher, [b"a"], timeout_s)
        await settle()
    return asked


def test_requests_of_one_round_travel_together() -> None:
    async def run() -> None:
        fake = Fake()
        payloads = [b"%d" % number + b"x" for number in range(MOST + 2)]
        asked = started(Batcher(fake.call), payloads)
        await settle()
        assert fake.calls == [payloads[:MOST], payloads[MOST:]]
        fake.go.set()
        assert await asyncio.gather(*asked) == [payload.upper() for payload in payloads]

    asyncio.run(run())


def test_requests_wait_while_a_replica_has_enough_calls_then_travel_together() -> None:
    async def run() -> None:
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

    asyncio.run(run())


def test_a_request_that_fails_fails_alone() -> None:
    async def run() -> None:
        fake = Fake()
        asked = started(Batcher(fake.call), [b"b", b"bad", b"c"])
        fake.go.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert fake.calls == [[b"b", b"bad", b"c"]]
        assert found[0] == b"B"
        assert found[2] == b"C"
        assert isinstance(found[1], ValueError)

    asyncio.run(run())


def test_a_call_that_fails_fails_all_its_requests_and_later_ones_are_sent() -> None:
    async def run() -> None:
        fake = Fake()
        batcher = Batcher(fake.call)
        asked = await busy(batcher) + started(batcher, [b"a"] * 2)
        await settle()
        fake.error = ConnectionError("died")
        fake.go.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [str(own) for own in found] == ["died"] * (CALLS + 2)
        fake.error = None
        assert await batcher.ask(b"b", 1.0) == b"B"

    asyncio.run(run())


def test_a_frozen_replica_gets_later_requests_once_the_first_have_timed_out() -> None:
    async def run() -> None:
        fake = Fake()
        batcher = Batcher(fake.call)
        asked = await busy(batcher, 0.05)
        # The third gives up first: with equal times it could be sent between the end of a call and its own.
        asked += started(batcher, [b"given up"], 0.02)
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(own) for own in found] == [TimeoutError] * (CALLS + 1)
        fake.go.set()
        assert await batcher.ask(b"b", 1.0) == b"B"
        # Nobody waited any more for the third.
        assert fake.calls == [[b"a"]] * CALLS + [[b"b"]]

    asyncio.run(run())


def test_a_cancelled_request_is_not_sent() -> None:
    async def run() -> None:
        fake = Fake()
        batcher = Batcher(fake.call)
        first = await busy(batcher)
        cancelled, last = started(batcher, [b"b", b"c"])
        await settle()
        cancelled.cancel()
        fake.go.set()
        assert await last == b"C"
        assert await asyncio.gather(*first) == [b"A"] * CALLS
        assert fake.calls[CALLS:] == [[b"c"]]
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    asyncio.run(run())
