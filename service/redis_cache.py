"""Embeddings shared through Redis; gone, slow or lying, it costs milliseconds, never an answer."""

from __future__ import annotations

import asyncio
from logging import getLogger

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from service.breaker import Breaker
from service.cache import Key
from service.metrics import Metrics

# Writes under way at once; more are dropped rather than piled up behind a slow Redis.
_MAX_WRITES = 64
_log = getLogger(__name__)


class RedisCache:
    """The shared store of cache.EmbeddingCache: short timeouts, no retries, a breaker.

    A cancelled call may leave its reply unread on the connection. redis-py closes such connections;
    and since every value carries the hash of its key, a reply meant for another call is a miss.
    """

    def __init__(
        self, url: str, metrics: Metrics, *, ttl_s: int, timeout_s: float, retry_s: float
    ) -> None:
        self._client: Redis = Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
            max_connections=_MAX_WRITES * 2,
        )
        self._metrics = metrics
        self._ttl_s = ttl_s
        self._timeout_s = timeout_s
        self._breaker = Breaker(retry_s=retry_s)
        self._writes: set[asyncio.Task[None]] = set()

    async def get(self, key: Key) -> bytes | None:
        if not self._breaker.allows():
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                value = await self._client.get(_name(key))
        except (RedisError, OSError, TimeoutError, ValueError) as error:
            self._failed(error)
            return None
        self._breaker.success()
        return value if isinstance(value, bytes) else None

    def put(self, key: Key, value: bytes) -> None:
        if len(self._writes) >= _MAX_WRITES or not self._breaker.allows():
            return
        task = asyncio.create_task(self._put(key, value))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _put(self, key: Key, value: bytes) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._client.set(_name(key), value, ex=self._ttl_s)
        except (RedisError, OSError, TimeoutError, ValueError) as error:
            self._failed(error)
        else:
            self._breaker.success()

    async def close(self) -> None:
        for task in list(self._writes):
            task.cancel()
        await asyncio.gather(*self._writes, return_exceptions=True)
        await self._client.aclose()

    def _failed(self, error: Exception) -> None:
        self._breaker.failure()
        self._metrics.redis_errors.inc()
        _log.debug("redis: %s: %s", type(error).__name__, error)


def _name(key: Key) -> str:
    return f"fullrank:embedding:1:{key.digest.hex()}"
