"""Share budgets between machines through Redis: each machine leases slices and spends what it has leased.

For each ad Redis has a hash: machine → what it has leased so far. A script adds a slice for one machine only if the sum
over all machines stays within what may be spent now. A machine without Redis goes on with what it has leased.

A Redis that has lost its data does not know what was leased before. So it leases nothing in the first seconds, while
each machine finds a new epoch there and reports what it has leased.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from logging import getLogger
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from redis.asyncio import Redis

# The share of a budget that is leased at once; more only if a single click costs more.
SLICE = 0.005
# How long a Redis without data leases nothing, and how often a machine checks whether it has lost them.
QUIET_S, LOOK_S = 5.0, 1.0
# Names the data of a Redis: one that has lost them gets another.
EPOCH = "fullrank:ads:epoch"
_SCRIPT = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local epoch = redis.call('GET', KEYS[1])
if not epoch then
  epoch = string.format('%.6f', now)
  redis.call('SET', KEYS[1], epoch)
end
local own = math.max(tonumber(redis.call('HGET', KEYS[2], ARGV[2]) or '0'), tonumber(ARGV[3]))
local want, need, most, sum = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), own
local all = redis.call('HGETALL', KEYS[2])
for i = 1, #all, 2 do
  if all[i] ~= ARGV[2] then sum = sum + tonumber(all[i + 1]) end
end
local granted = 0
if now - tonumber(epoch) >= tonumber(ARGV[7]) and most - sum >= need then
  granted = math.min(want, most - sum)
end
redis.call('HSET', KEYS[2], ARGV[2], string.format('%.17g', own + granted))
return {ARGV[1], string.format('%.17g', granted)}
"""
Result = TypeVar("Result")
Read = Callable[[], Coroutine[Any, Any, Result]]
_log = getLogger(__name__)


def connect(url: str, timeout_s: float) -> Redis:
    """Return a client of Redis that waits at most this long and never tries again."""
    # Imported here, because most services share neither budgets nor caps.
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    return Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        decode_responses=True,
    )


class Ask(NamedTuple):
    """A request for a slice.

    Attributes:
        key: What is leased: an ad, or an ad on a day.
        own: What this machine has leased of it so far.
        slice: How much to lease.
        need: The least that is of use.
        most: What all machines may have leased now.
    """

    key: str
    own: float
    slice: float
    need: float
    most: float


class Leases:
    """Leases for one worker.

    Args:
        url: Of Redis.
        timeout_s: Longest wait for a reply.
        quiet_s: How long a Redis without data leases nothing.
        look_s: How often to look whether it has lost them.
    """

    def __init__(
        self, url: str, timeout_s: float, *, quiet_s: float = QUIET_S, look_s: float = LOOK_S
    ) -> None:
        self._redis = connect(url, timeout_s)
        self._timeout_s, self._quiet_s, self._look_s = timeout_s, quiet_s, look_s
        self._task: asyncio.Task[None] | None = None

    def start(self, machine: Read[str], leased: Read[Mapping[str, float]]) -> None:
        """Check from time to time whether Redis has lost its data; if so, report what this machine has leased.

        Args:
            machine: Returns the id of this machine.
            leased: Returns what it has leased so far, by key.
        """
        self._task = asyncio.create_task(self._follow(machine, leased))

    async def request(self, machine: str, ask: Ask) -> float:
        """Lease a slice.

        Returns:
            What was leased: at least ``need``, at most ``slice``; 0 if that is too much, or Redis does not answer.
        """
        nonce = os.urandom(8).hex()
        numbers = (ask.own, ask.slice, ask.need, ask.most, self._quiet_s)
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await self._redis.eval(
                    _SCRIPT,
                    2,
                    EPOCH,
                    f"fullrank:ads:{ask.key}",
                    nonce,
                    machine,
                    *map(repr, numbers),
                )
            echo, text = reply
            granted = float(text)
            # A reply to another request is no lease.
            if echo != nonce or not isfinite(granted) or not 0 <= granted <= ask.slice:
                raise ValueError(f"a reply to another request: {reply!r}")
        except Exception as error:
            # Any exception: a server that sends nonsense can make a client library fail in any way.
            _log.debug("no lease: %s: %s", type(error).__name__, error)
            with suppress(Exception):
                await self._redis.connection_pool.disconnect(inuse_connections=False)
            return 0.0
        return granted

    async def close(self) -> None:
        """Stop."""
        while self._task is not None and not self._task.done():
            # Again, because the client library can take a cancellation for a timeout of its own.
            self._task.cancel()
            await asyncio.wait([self._task], timeout=self._timeout_s)
        await self._redis.aclose()

    async def _follow(self, machine: Read[str], leased: Read[Mapping[str, float]]) -> None:
        known = ""
        while True:
            try:
                if await self._epoch() in ("", known):
                    # Makes an epoch, where there is none.
                    await self.request(await machine(), Ask("none", 0.0, 0.0, 0.0, 0.0))
                epoch = await self._epoch()
                if epoch != known:
                    for key, own in (await leased()).items():
                        await self.request(await machine(), Ask(key, own, 0.0, 0.0, 0.0))
                    known = epoch
            except Exception as error:
                _log.debug("redis: %s: %s", type(error).__name__, error)
            await asyncio.sleep(self._look_s)

    async def _epoch(self) -> str:
        async with asyncio.timeout(self._timeout_s):
            return str(await self._redis.get(EPOCH) or "")
