"""Shards of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from fullrank_fleet.serving.asking import Failure


class Answering(Protocol):
    """What answers for a shard: a ShardServer."""

    def answer(self, payload: bytes) -> bytes: ...


class InProcessShards:
    """Shards of this process.

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
    return Failure(f"{type(error).__name__}: {error}")
