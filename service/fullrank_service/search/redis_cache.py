"""Embeddings shared through Redis, behind a circuit breaker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from logging import getLogger

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from fullrank_service.base.metrics import Metrics
from fullrank_service.search.cache import Embedding, Key, pack, unpack


class Breaker:
    """closed → (max_failures more than successes) → open → (retry_s later) → one trial → closed or open.

    A success cancels one failure, so the breaker also opens for a server that fails every second call.
    """

    def __init__(
        self,
        max_failures: int = 3,
        retry_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_failures = max_failures
        self._retry_s = retry_s
        self._clock = clock
        self._failures = 0
        self._open_until = 0.0
        self._trying = False

    @property
    def is_open(self) -> bool:
        """Whether it has opened and not closed since."""
        return self._failures >= self._max_failures

    def allows(self) -> bool:
        """Return whether to make a call now. When retry_s is over, the first caller makes the trial."""
        if self._failures < self._max_failures:
            return True
        now = self._clock()
        if now < self._open_until:
            return False
        self._open_until = now + self._retry_s
        self._trying = True
        return True

    def success(self) -> None:
        """Note a call that succeeded."""
        if not self.is_open:
            self._failures = max(0, self._failures - 1)
        elif self._trying:  # Otherwise the call began before the breaker opened.
            self._failures = 0
            self._trying = False

    def failure(self) -> None:
        """Note a call that failed or timed out."""
        self._failures += 1
        self._trying = False
        if self._failures >= self._max_failures:
            self._open_until = self._clock() + self._retry_s


# Writes in flight at once; further ones are dropped rather than queued behind a slow Redis.
_MAX_WRITES = 64
_log = getLogger(__name__)


class RedisCache:
    """The shared store behind cache.EmbeddingCache: short timeouts, no retries, a circuit breaker.

    A call that is cancelled halfway leaves its reply on the connection, where the next call would read it. The client
    closes such a connection. If that fails, the value names another key: it counts as a miss, and all idle connections
    are closed, so that one reply out of step does not put all later ones out of step.

    Args:
        ttl_s: lifetime of an embedding in Redis.
        timeout_s: longest wait for a reply.
        retry_s: pause after failures, see Breaker.
        min_chars: shorter texts are neither looked up nor stored: encoding them takes less time than Redis.
    """

    def __init__(
        self,
        url: str,
        metrics: Metrics,
        *,
        ttl_s: int,
        timeout_s: float,
        retry_s: float,
        min_chars: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client: Redis = Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
            max_connections=_MAX_WRITES * 2,
            # GET and SET need nothing newer, and version 2 has neither a handshake nor unrequested messages.
            protocol=2,
        )
        self._metrics = metrics
        self._ttl_s = ttl_s
        self._timeout_s = timeout_s
        self._min_chars = min_chars
        self._breaker = Breaker(retry_s=retry_s, clock=clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._writes = 0

    async def get(self, key: Key) -> Embedding | None:
        # Before the breaker: a trial that it allows must be made, or it would stay open.
        if key.chars < self._min_chars:
            self._metrics.redis_passed.inc()
            return None
        if not self._breaker.allows():
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                value = await self.client.get(_name(key))
            found = None if value is None else _read(key, value)
        # Any exception: a server that sends nonsense can make a client library fail in any way.
        except Exception as error:
            self._on_failure(error)
            return None
        self._on_success()
        return found

    def put(self, key: Key, found: Embedding) -> None:
        if self._writes >= _MAX_WRITES or key.chars < self._min_chars:
            return
        if self._breaker.allows():
            self._writes += 1
            self._start(self._put(key, pack(key, found)))

    async def _put(self, key: Key, value: bytes) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self.client.set(_name(key), value, ex=self._ttl_s)
        except Exception as error:
            self._on_failure(error)
        else:
            self._on_success()
        finally:
            self._writes -= 1

    async def written(self) -> None:
        """Wait for the writes in flight."""
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.client.aclose()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_success(self) -> None:
        self._breaker.success()
        self._metrics.redis_open.set(0)

    def _on_failure(self, error: Exception) -> None:
        self._breaker.failure()
        self._metrics.redis_open.set(self._breaker.is_open)
        self._metrics.redis_errors.inc()
        _log.debug("redis: %s: %s", type(error).__name__, error)
        if isinstance(error, _ForeignValue):
            self._start(self.client.connection_pool.disconnect(inuse_connections=False))


class _ForeignValue(Exception):
    """Redis returned a value that was never stored under this key."""


def _read(key: Key, value: object) -> Embedding:
    found = unpack(key, value) if isinstance(value, bytes) else None
    if found is None:
        raise _ForeignValue(f"a {type(value).__name__} that is not an embedding of this text")
    return found


def _name(key: Key) -> str:
    return f"fullrank:embedding:2:{key.digest.hex()}"
