"""Share impressions of ads with a cap between machines through Redis.

For each person Redis has a sorted set: an impression, by its token → when the cap forgets it. A machine adds what it
has counted, and unites what it reads with its own file, in which the same impression has the same token. Without Redis
a machine counts its own impressions. It adds what is missing once Redis answers again, or has lost its data.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from logging import getLogger
from typing import Any

from fullrank_service.ads.counts import Seen
from fullrank_service.ads.leases import EPOCH, connect
from fullrank_service.breaker import Breaker

# How often a machine checks whether Redis lacks some of its impressions.
LOOK_S = 1.0
# Pause after failures.
_RETRY_S = 1.0
# Adds impressions (ARGV[3], ARGV[4]: time and member; …), and returns those that are not forgotten.
_SCRIPT = """
for i = 3, #ARGV, 2 do redis.call('ZADD', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[2])
local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if last[2] then redis.call('EXPIREAT', KEYS[1], math.ceil(tonumber(last[2]))) end
return {ARGV[1], redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')}
"""
_log = getLogger(__name__)

# Returns what this machine has counted and not forgotten.
ReadAll = Callable[[], Coroutine[Any, Any, Sequence[Seen]]]


class SharedCaps:
    """The impressions of all machines, for one worker.

    Args:
        url: Of Redis.
        timeout_s: Longest wait for a reply.
        look_s: How often to check whether Redis lacks impressions.
    """

    def __init__(self, url: str, timeout_s: float, *, look_s: float = LOOK_S) -> None:
        self._redis = connect(url, timeout_s)
        self._timeout_s, self._look_s = timeout_s, look_s
        self._breaker = Breaker(retry_s=_RETRY_S)
        self._is_behind = True
        self._task: asyncio.Task[None] | None = None

    def start(self, read_all: ReadAll) -> None:
        """Add from time to time what Redis lacks."""
        self._task = asyncio.create_task(self._follow(read_all))

    async def add(self, seen: Iterable[Seen], now: float) -> None:
        """Add impressions that this machine has counted; later, if Redis does not answer."""
        of: dict[str, list[Seen]] = defaultdict(list)
        for one in seen:
            of[one.person].append(one)
        for person, own in of.items():
            if await self._call(person, now, own) is None:
                self._is_behind = True
                return

    async def of(self, person: str, collection: str, now: float) -> list[Seen]:
        """Return what a person has seen on all machines; nothing if Redis does not answer.

        Args:
            person: A pseudonym.
            collection: Name of the bundle.
            now: Seconds since 1970.
        """
        found = await self._call(person, now, []) or []
        return [one for one in found if one.collection == collection]

    async def forget(self, person: str) -> None:
        """Forget what a person has seen, if Redis answers."""
        with suppress(Exception):
            async with asyncio.timeout(self._timeout_s):
                await self._redis.delete(_key(person))

    async def close(self) -> None:
        """Stop."""
        while self._task is not None and not self._task.done():
            # Again, because the client library can take a cancellation for a timeout of its own.
            self._task.cancel()
            await asyncio.wait([self._task], timeout=self._timeout_s)
        await self._redis.aclose()

    async def _call(self, person: str, now: float, new: Sequence[Seen]) -> list[Seen] | None:
        """Add impressions of a person and return all; None if Redis does not answer."""
        if not self._breaker.allows():
            return None
        nonce = os.urandom(8).hex()
        given = [text for one in new for text in (repr(one.expires), _member(one))]
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await self._redis.eval(_SCRIPT, 1, _key(person), nonce, repr(now), *given)
            echo, pairs = reply
            if echo != nonce:
                raise ValueError(f"a reply to another request: {reply!r}")
            found = [
                _seen(person, member, float(expires))
                for member, expires in zip(pairs[::2], pairs[1::2], strict=True)
            ]
        # Any exception: a server that sends nonsense can make a client library fail in any way.
        except Exception as error:
            self._breaker.failure()
            _log.debug("caps are not shared: %s: %s", type(error).__name__, error)
            with suppress(Exception):
                await self._redis.connection_pool.disconnect(inuse_connections=False)
            return None
        self._breaker.success()
        return found

    async def _follow(self, read_all: ReadAll) -> None:
        known = ""
        while True:
            try:
                async with asyncio.timeout(self._timeout_s):
                    epoch = str(await self._redis.get(EPOCH) or "")
                if self._is_behind or epoch != known:
                    self._is_behind, known = False, epoch
                    await self.add(await read_all(), time.time())
            except Exception as error:
                _log.debug("redis: %s: %s", type(error).__name__, error)
            await asyncio.sleep(self._look_s)


def _key(person: str) -> str:
    return f"fullrank:ads:seen:{person}"


def _member(seen: Seen) -> str:
    # Only ids of ads can have spaces.
    return f"{seen.collection} {seen.token} {seen.ad}"


def _seen(person: str, member: str, expires: float) -> Seen:
    collection, token, ad = member.split(" ", 2)
    return Seen(person, collection, token, ad, expires)
