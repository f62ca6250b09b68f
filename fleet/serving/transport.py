"""How a router reaches the shards."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from logging import getLogger
from typing import NamedTuple, Protocol

_log = getLogger(__name__)


class Failure(NamedTuple):
    """A shard that has not answered.

    Attributes:
        reason: Why, for the log and for operators.
    """

    reason: str


class Shards(Protocol):
    """The shards of one set, by number."""

    async def ask(
        self, payloads: Mapping[int, bytes], deadline_s: float
    ) -> Mapping[int, bytes | Failure]:
        """Ask some shards at once.

        Args:
            payloads: What to send to each shard: an Ask, packed (wire.py).
            deadline_s: Seconds until a shard that has not answered counts as failed.

        Returns:
            For each shard asked what ``ShardServer.answer`` returned, or why there is no answer. No failure of a
            shard raises. If the caller is cancelled, calls that have not begun never do.
        """


class Answering(Protocol):
    """What answers for a shard: a ShardServer."""

    def answer(self, payload: bytes) -> bytes: ...


class InProcessShards:
    """Shards of this process, for tests.

    Args:
        servers: By number.
        threads: That answer.
    """

    def __init__(self, servers: Mapping[int, Answering], threads: int = 2) -> None:
        self._servers = servers
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="shard")

    async def ask(
        self, payloads: Mapping[int, bytes], deadline_s: float
    ) -> Mapping[int, bytes | Failure]:
        loop = asyncio.get_running_loop()
        calls = {
            number: loop.run_in_executor(self._pool, self._servers[number].answer, payload)
            for number, payload in payloads.items()
            if number in self._servers
        }
        if calls:
            await asyncio.wait(calls.values(), timeout=deadline_s)
        return {number: _outcome(number, calls.get(number)) for number in payloads}

    def close(self) -> None:
        """Cancel calls that have not begun."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _outcome(number: int, call: asyncio.Future[bytes] | None) -> bytes | Failure:
    if call is None:
        return Failure("no server")
    if not call.done():
        call.cancel()
        return Failure("no answer before the deadline")
    error = call.exception()
    if error is None:
        return call.result()
    _log.error("shard %d failed", number, exc_info=error)
    return Failure(f"{type(error).__name__}: {error}")
