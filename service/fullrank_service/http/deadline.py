"""Bound the time of a coroutine, with a timer only if it waits.

Most calls of a request never wait: its body has arrived with its headers, the search runs on the event loop, the client
reads. A timer that is set and then cancelled costs more than such a call, so none is set before the coroutine waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class DeadlinePassed(TimeoutError):
    """The coroutine was cancelled because its deadline passed."""


async def within(work: Coroutine[Any, Any, T], deadline: float) -> T:
    """Run a coroutine until a deadline, as ``asyncio.timeout_at`` does.

    Args:
        work: a coroutine that has not begun.
        deadline: time of the event loop's clock, in seconds, at which `work` is cancelled if it waits.

    Returns:
        The result of `work`.

    Raises:
        DeadlinePassed: the deadline passed before `work` ended. A TimeoutError of `work` itself is raised unchanged.
    """
    try:
        awaited = work.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    timeout = asyncio.timeout_at(deadline)
    try:
        async with timeout:
            return await _resume(work, awaited)
    except TimeoutError:
        if timeout.expired():
            raise DeadlinePassed from None
        raise


@coroutine
def _resume(work: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
    """Continue a coroutine that waits for `awaited`. ``yield from`` would begin by waking it."""
    try:
        while True:
            try:
                received = yield awaited
            except BaseException as error:
                awaited = work.throw(error)
            else:
                awaited = work.send(received)
    except StopIteration as ended:
        result: T = ended.value
        return result
