"""Embeddings shared through Redis; gone, slow or lying, it costs milliseconds, never an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from logging import getLogger

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from service.caching.worth import Worth
from service.search.caching.breaker import Breaker
from service.search.caching.cache import Embedding, Key, pack, unpack
from service.telemetry.metrics import Metrics

# Writes under way at once; more are dropped rather than piled up behind a slow Redis.
_MAX_WRITES = 64
_log = getLogger(__name__)


class RedisCache:
    """The shared store of cache.EmbeddingCache: short timeouts, no retries, a breaker, and asked only where it pays.

    A call that is cancelled halfway leaves its answer on the connection, where the next call would read it as its own.
    The client drops such a connection. Should it ever not, the value that is read names another key: it is a miss, and
    every idle connection is dropped, so that one reply out of step cannot put all later ones out of step.
    """

    def __init__(
        self,
        url: str,
        metrics: Metrics,
        *,
        ttl_s: int,
        timeout_s: float,
        retry_s: float,
        gain: float = 0.0,
    ) -> None:
        self._client: Redis = Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
            max_connections=_MAX_WRITES * 2,
            # Plain GET and SET: nothing to negotiate, no message that nobody asked for.
            protocol=2,
        )
        self._metrics = metrics
        self._ttl_s = ttl_s
        self._timeout_s = timeout_s
        self._breaker = Breaker(retry_s=retry_s)
        self._worth = Worth(gain)
        self._tasks: set[asyncio.Task[None]] = set()
        self._writes = 0

    async def get(self, key: Key) -> Embedding | None:
        # Before the breaker: a trial that it allows has to be made, or it would stay open.
        if not self._worth.asks(key.kind):
            self._metrics.redis_passed.inc()
            return None
        if not self._breaker.allows():
            return None
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout_s):
                value = await self._client.get(_name(key))
            found = None if value is None else _read(key, value)
        # Anything at all: a server that speaks nonsense can make a client library fail in any way.
        except Exception as error:
            self._failed(error)
            return None
        self._worked()
        self._worth.asked(key.kind, time.perf_counter() - started)
        if found is not None:
            self._worth.encoded(key.kind, found.seconds)
        return found

    def put(self, key: Key, found: Embedding) -> None:
        self._worth.encoded(key.kind, found.seconds)
        if self._writes >= _MAX_WRITES or not self._worth.pays(key.kind):
            return
        if self._breaker.allows():
            self._writes += 1
            self._start(self._put(key, pack(key, found)))

    async def _put(self, key: Key, value: bytes) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._client.set(_name(key), value, ex=self._ttl_s)
        except Exception as error:
            self._failed(error)
        else:
            self._worked()
        finally:
            self._writes -= 1

    async def written(self) -> None:
        """Wait for the writes under way."""
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.aclose()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _worked(self) -> None:
        self._breaker.success()
        self._metrics.redis_open.set(0)

    def _failed(self, error: Exception) -> None:
        self._breaker.failure()
        self._metrics.redis_open.set(self._breaker.open)
        self._metrics.redis_errors.inc()
        _log.debug("redis: %s: %s", type(error).__name__, error)
        if isinstance(error, _Lie):
            self._start(self._client.connection_pool.disconnect(inuse_connections=False))


class _Lie(Exception):
    """What came back was never stored under that key."""


def _read(key: Key, value: object) -> Embedding:
    found = unpack(key, value) if isinstance(value, bytes) else None
    if found is None:
        raise _Lie(f"{type(value).__name__} that is no embedding of this text")
    return found


def _name(key: Key) -> str:
    return f"fullrank:embedding:2:{key.digest.hex()}"
