"""Wait for the answer of another process only while it answers pings.

An answer may take long: a replica that downloads a shard is busy for minutes. Ray notices a frozen node after more than
a minute, and a frozen process never. So the caller pings the process meanwhile, and gives up when that stays silent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

SILENT_S = 10.0
"""A process that has answered no ping for so long counts as frozen. Shorter would hit processes on busy cores."""
# Pause between two pings.
_PAUSE_S = 0.5
Answer = TypeVar("Answer")


class NoAnswer(ConnectionError):
    """A process does not answer, or not in time. It may still do what it was asked for."""


async def answered(
    answer: Awaitable[Answer],
    ping: Callable[[], Awaitable[object]],
    *,
    limit_s: float,
    silent_s: float | None = None,
) -> Answer:
    """Wait for an answer, but give up on a process that answers no pings.

    Args:
        ping: Asks the process for an answer that takes no time.
        limit_s: Longest wait while the process answers pings.
        silent_s: Longest wait for the answer of a ping; None: ``SILENT_S``.

    Raises:
        NoAnswer: The process is silent, or the time is over. The answer is not awaited any more.
        Exception: As the answer raises it.
    """
    limit = SILENT_S if silent_s is None else silent_s
    waiting = asyncio.ensure_future(answer)
    silence = asyncio.ensure_future(_until_silent(ping, limit))
    try:
        await asyncio.wait({waiting, silence}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        if silence.done():
            raise NoAnswer(f"no ping was answered for {limit:g} s")
        raise NoAnswer(f"no answer within {limit_s:g} s")
    finally:
        waiting.cancel()
        silence.cancel()


async def _until_silent(ping: Callable[[], Awaitable[object]], silent_s: float) -> None:
    heard = time.monotonic()
    while (left := heard + silent_s - time.monotonic()) > 0:
        # Most answers come before the first ping.
        await asyncio.sleep(min(_PAUSE_S, left))
        try:
            # Before Python 3.12, wait_for drops a cancellation that comes together with the answer.
            async with asyncio.timeout(left):
                await ping()
        except Exception:
            # A process that Ray starts again refuses calls for a moment.
            continue
        heard = time.monotonic()
