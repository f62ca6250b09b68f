"""Send the requests that wait for a replica in one call.

A call of Ray costs its caller nearly the same processor time whether it carries one request or four, and a replica
answers few calls at once anyway. So the requests of one round of the event loop travel together; a busy router has
several in a round. A request that finds enough calls under way waits, and travels with the others that wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

Answers = Sequence[bytes | Exception]

# Calls of one replica under way: one for each of its threads.
_CALLS = 2
# Requests of a call, which all wait for the last of them. Eight cost a router the same processor time as four.
_MOST = 4


class _Waiting(NamedTuple):
    payload: bytes
    until: float
    wanted: asyncio.Future[bytes]
    answer: asyncio.Future[bytes]


class Batcher:
    """The requests of this process to one replica.

    Args:
        send: Sends requests in one call, with the seconds that each may still wait; returns for each the answer, or the
            exception that it caused.

    Example:
        >>> batcher = Batcher(replica.call)
        >>> answer = await batcher.ask(payload, until=loop.time() + 1.0, wanted=loop.create_future())
    """

    def __init__(
        self, send: Callable[[Sequence[bytes], Sequence[float]], Awaitable[Answers]]
    ) -> None:
        self._send = send
        self._waiting = deque[_Waiting]()
        self._calls = set[asyncio.Task[None]]()

    def ask(
        self, payload: bytes, until: float, wanted: asyncio.Future[bytes]
    ) -> asyncio.Future[bytes]:
        """Send a request, as soon as a call may begin.

        Args:
            payload: The request.
            until: When the call that carries it ends without an answer, by the event loop's clock.
            wanted: Once it is done, nobody waits any more, and a request that still waits here is not sent.

        Returns:
            The answer, or the exception that ``send`` raised or returned for it; cancelled if it was not sent.
        """
        loop = asyncio.get_running_loop()
        asked = _Waiting(payload, until, wanted, loop.create_future())
        self._waiting.append(asked)
        if len(self._waiting) == 1:
            # After the other requests of this round. If others wait already, a start is due or all calls are under way.
            loop.call_soon(self._start)
        return asked.answer

    def _start(self) -> None:
        """Send what waits, if a call may begin."""
        while self._waiting and len(self._calls) < _CALLS:
            batch = self._next()
            if batch:
                call = asyncio.ensure_future(self._call(batch))
                self._calls.add(call)
                call.add_done_callback(self._ended)

    def _next(self) -> list[_Waiting]:
        """Take the requests of the next call from those that wait."""
        batch = list[_Waiting]()
        while self._waiting and len(batch) < _MOST:
            asked = self._waiting.popleft()
            if asked.wanted.done():
                asked.answer.cancel()
            else:
                batch.append(asked)
        return batch

    def _ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        self._start()

    async def _call(self, batch: Sequence[_Waiting]) -> None:
        answers: Answers
        now = asyncio.get_running_loop().time()
        left_s = [asked.until - now for asked in batch]
        try:
            # A frozen replica must not keep its place longer than somebody waits: later requests find it thawed.
            async with asyncio.timeout(max(left_s)):
                answers = await self._send([asked.payload for asked in batch], left_s)
        except Exception as error:
            answers = [error] * len(batch)
        for asked, answer in zip(batch, answers, strict=True):
            if isinstance(answer, Exception):
                asked.answer.set_exception(answer)
            else:
                asked.answer.set_result(answer)
