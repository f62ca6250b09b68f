"""Redis broken in every way: no answer is wrong, none fails, and the delay is bounded."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np
import pytest

from fullrank.storage.encoding import Encoded, Rows
from fullrank_service.base.metrics import Metrics
from fullrank_service.search.cache import Embedding, Key
from fullrank_service.search.redis_cache import RedisCache
from tests.api.support import answer_of, make_bundle, redis_process, running, served
from tests.faults.front import MODES, Front, front

T = TypeVar("T")
QUERIES = [f"copy files {word}" for word in ("host", "remote", "list", "ssh", "x", "y")]


async def ask(client: httpx.AsyncClient, query: str, url: str = "") -> dict[str, object]:
    response = await client.post(f"{url}/v1/search", json={"query": query})
    assert response.status_code == 200, response.text
    return answer_of(response.json())


def test_every_wrong_value_is_a_miss(tmp_path: Path) -> None:
    """28 ways of speaking the protocol wrongly, 48 requests of 8 clients each: every answer is right."""
    make_bundle(tmp_path / "bundles", "learned", n_dense=8)

    async def scenario(url: str, redis: Front) -> None:
        async with running(tmp_path / "bundles", cache_entries=0) as client:
            expected = {query: await ask(client, query) for query in QUERIES}
        options = {"cache_entries": 0, "redis_retry_ms": 1, "redis_min_chars": 0}
        async with running(tmp_path / "bundles", redis_url=url, **options) as client:

            async def load() -> None:
                for query in QUERIES:
                    assert await ask(client, query) == expected[query], redis.mode

            for mode in MODES:
                redis.mode = "true"
                await load()
                redis.mode, asked = mode, redis.asked
                await asyncio.gather(*(load() for _ in range(8)))
                assert redis.asked > asked, mode
            redis.mode = "true"
            await asyncio.sleep(0.05)
            await load()
            await load()
            metrics = (await client.get("/metrics")).text.splitlines()
            errors = [line for line in metrics if line.startswith("fullrank_redis_errors_total")]
            assert float(errors[0].split()[1]) >= len(MODES)
            assert 'fullrank_redis_breaker_open{worker="0"} 0.0' in metrics

    with front(tmp_path) as (url, redis):
        asyncio.run(scenario(url, redis))


def embedding(number: int) -> tuple[Key, Embedding]:
    """A text of its own, with an embedding that no other text has."""
    key = Key.of("bundle", f"text {number}", 64, 10)
    row = Encoded(
        np.full((1, 64), number, np.float32),
        Rows(
            np.array([0, 1], np.int64),
            np.array([number % 10], np.int32),
            np.ones(1, np.float32),
            10,
        ),
        np.zeros(1, np.float32),
    )
    return key, Embedding(row, 1.0)


@asynccontextmanager
async def held_back(target: str, path: Path, seconds: float) -> AsyncIterator[str]:
    """A way to a Unix socket on which every byte waits, so that calls can be cancelled halfway."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                await asyncio.sleep(seconds)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    pipes: set[asyncio.Task[None]] = set()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(target)
        for task in (
            asyncio.create_task(pipe(reader, far_writer)),
            asyncio.create_task(pipe(far_reader, writer)),
        ):
            pipes.add(task)
            task.add_done_callback(pipes.discard)

    server = await asyncio.start_unix_server(connect, path)
    try:
        yield f"unix://{path}"
    finally:
        server.close()
        for task in list(pipes):
            task.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)


def test_a_cancelled_call_leaves_nothing_for_the_next(tmp_path: Path) -> None:
    """1,500 reads of a real Redis 2 ms away, half of them cancelled at any moment: each gets its own value or nothing.

    First without the check of values, on the client alone, whose connections were once left with the reply of a
    cancelled call on them; then through the cache.
    """
    draw = random.Random(1)

    async def half_cancelled(
        read: Callable[[int], Coroutine[None, None, T]], check: Callable[[int, T], None]
    ) -> tuple[int, int]:
        cancelled = right = 0

        async def one(number: int) -> None:
            nonlocal cancelled, right
            task = asyncio.create_task(read(number))
            if draw.random() < 0.5:
                await asyncio.sleep(draw.uniform(0, 0.006))
                task.cancel()
            try:
                found = await task
            except asyncio.CancelledError:
                cancelled += 1
            else:
                check(number, found)
                right += 1

        for start in range(0, 750, 5):
            await asyncio.gather(*(one(number % 50) for number in range(start, start + 5)))
        return cancelled, right

    async def scenario(url: str) -> None:
        metrics = Metrics()
        async with held_back(url.removeprefix("unix://"), tmp_path / "slow.sock", 0.001) as slow:
            cache = RedisCache(slow, metrics, ttl_s=60, timeout_s=5, retry_s=0.01)
            for number in range(50):
                cache.put(*embedding(number))
            await cache.written()
            client = cache.client

            async def plain(number: int) -> object:
                return await client.get(f"fullrank:embedding:2:{embedding(number)[0].digest.hex()}")

            raw = {number: await plain(number) for number in range(50)}
            assert len(set(raw.values())) == 50

            def same(number: int, value: object) -> None:
                assert value == raw[number]

            cancelled, right = await half_cancelled(plain, same)
            assert cancelled > 100
            assert right > 100

            async def cached(number: int) -> Embedding | None:
                return await cache.get(embedding(number)[0])

            def own(number: int, found: Embedding | None) -> None:
                assert found is not None
                assert (found.row.dense == number).all()

            cancelled, right = await half_cancelled(cached, own)
            assert cancelled > 100
            assert right > 100
            assert b"fullrank_redis_errors_total 0.0" in metrics.render()
            await cache.close()

    with redis_process(tmp_path) as (url, _):
        asyncio.run(scenario(url))


def test_one_misplaced_reply_does_not_misplace_all_later_ones(tmp_path: Path) -> None:
    """A client that reuses a connection with an old reply on it: one miss, then every value is found again."""

    async def scenario(url: str, redis: Front) -> None:
        metrics = Metrics()
        cache = RedisCache(url, metrics, ttl_s=60, timeout_s=1, retry_s=0.01)
        for number in range(5):
            cache.put(*embedding(number))
        await cache.written()
        *others, one = cache.client.connection_pool._available_connections
        for other in others:
            await other.disconnect()
        await one.send_command("GET", f"fullrank:embedding:2:{embedding(4)[0].digest.hex()}")
        async with asyncio.timeout(5):
            while not await one.can_read():
                await asyncio.sleep(0.01)

        async def never_seen(*_: object, **__: object) -> bool:
            return False

        one.can_read = never_seen  # type: ignore[method-assign]  # disable the guard of the client
        assert await cache.get(embedding(0)[0]) is None
        await asyncio.sleep(0.05)  # for the connections to be dropped
        assert all([await cache.get(embedding(number)[0]) is not None for number in range(5)])
        assert b"fullrank_redis_errors_total 1.0" in metrics.render()
        await cache.close()

    with front(tmp_path) as (url, redis):
        asyncio.run(scenario(url, redis))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_redis_dying_under_load_costs_no_answer(tmp_path: Path, how: signal.Signals) -> None:
    """400 requests of 8 clients; Redis dies after the first quarter. Every answer is right."""
    make_bundle(tmp_path / "bundles", "learned", n_dense=8)

    async def scenario() -> None:
        async with running(tmp_path / "bundles") as client:
            expected = {query: await ask(client, query) for query in QUERIES}
        with redis_process(tmp_path) as (url, process):
            options = {
                "redis_url": url,
                "cache_entries": 0,
                "redis_retry_ms": 100,
                "redis_min_chars": 0,
            }
            async with running(tmp_path / "bundles", **options) as client:
                asked = 0

                async def load() -> None:
                    nonlocal asked
                    for i in range(50):
                        query = QUERIES[i % len(QUERIES)]
                        assert await ask(client, query) == expected[query]
                        asked += 1
                        if asked == 100:
                            os.kill(process.pid, how)

                started = time.perf_counter()
                await asyncio.gather(*(load() for _ in range(8)))
                assert asked == 400
                assert time.perf_counter() - started < 60

    asyncio.run(scenario())


TIMEOUT_MS = 20
# The p99 above the one timeout that a request may wait for: giving up takes time on a busy machine.
SLACK_MS = 20
SECONDS = 6.0
WORDS = "copy move files remote host list ssh directory rename log over a the of"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "stopped", "slow", "silent", "lying"])
def test_a_broken_redis_under_load(tmp_path: Path, how: str) -> None:
    """Two workers, 8 clients, some 300 requests each with Redis well, broken and well again; words and 8 kB pages.

    The same clients ask a service without Redis in turn, so whatever else the machine does meets both alike. No answer
    is wrong, none fails, p99 is at most a timeout (20 ms) and 20 ms above that of the other, memory stays within 8 MiB.
    """
    make_bundle(tmp_path / "bundles", "learned", n_dense=8)
    draw = random.Random(1)
    sizes = [size for size in (3, 5, 8, 1_500, 1_400) for _ in range(40)]
    texts = [" ".join(draw.choices(WORDS.split(), k=size)) for size in sizes]
    plain: dict[str, Any] = {"FULLRANK_CACHE_ENTRIES": "0", "FULLRANK_MAX_QUERY_CHARS": "20000"}
    shared = {"FULLRANK_REDIS_MIN_CHARS": "0", "FULLRANK_REDIS_TIMEOUT_MS": str(TIMEOUT_MS)}

    async def load(urls: list[str], seconds: float) -> list[list[float]]:
        """Milliseconds of the requests to each service."""
        took: list[list[float]] = [[] for _ in urls]
        end = time.monotonic() + seconds

        def enough() -> bool:
            late = time.monotonic() - end
            return late > 60 or (late > 0 and len(took[0]) >= 50 * seconds)

        async def one(seed: int) -> None:
            draw = random.Random(seed)
            async with httpx.AsyncClient(timeout=30) as client:
                while not enough():
                    query = draw.choice(texts)
                    for url, into in zip(urls, took, strict=True):
                        started = time.perf_counter()
                        answer = await ask(client, query, url)
                        into.append((time.perf_counter() - started) * 1000)
                        assert expected.setdefault(query, answer) == answer

        await asyncio.gather(*(one(seed) for seed in range(8)))
        return took

    def resident(url: str) -> float:
        lines = httpx.get(f"{url}/metrics").text.splitlines()
        own = [line for line in lines if line.startswith("fullrank_worker_resident_bytes{")]
        assert len(own) == 2
        return sum(float(line.split()[1]) for line in own)

    async def truth() -> dict[str, object]:
        options = {"cache_entries": 0, "max_query_chars": 20_000}
        async with running(tmp_path / "bundles", **options) as client:
            return {text: await ask(client, text) for text in texts}

    expected = asyncio.run(truth())
    with (
        front(tmp_path) as (front_url, redis),
        redis_process(tmp_path) as (redis_url, process),
        served(tmp_path / "bundles", **plain) as without,
        served(
            tmp_path / "bundles",
            workers=2,
            FULLRANK_REDIS_URL=redis_url if how in ("killed", "stopped") else front_url,
            **plain,
            **shared,
        ) as url,
    ):
        urls = [without, url]
        asyncio.run(load(urls, 2))
        memory = resident(url)
        well = asyncio.run(load(urls, SECONDS))
        match how:
            case "killed":
                process.kill()
            case "stopped":
                os.kill(process.pid, signal.SIGSTOP)
            case "slow":
                redis.delay_s = TIMEOUT_MS * 0.75e-3
            case "silent":
                redis.mode = "silent"
        if how == "lying":
            broken: list[list[float]] = [[], []]
            for redis.mode in MODES:
                for into, part in zip(broken, asyncio.run(load(urls, 0.4)), strict=True):
                    into += part
        else:
            broken = asyncio.run(load(urls, SECONDS))
        os.kill(process.pid, signal.SIGCONT)
        redis.mode, redis.delay_s = "true", 0.0
        again = asyncio.run(load(urls, SECONDS))
        grown = resident(url) - memory
    phases = {"well": well, "broken": broken, "again": again}
    rises = {
        name: [round(float(np.percentile(there, q) - np.percentile(none, q)), 1) for q in (50, 99)]
        for name, (none, there) in phases.items()
    }
    requests = {name: len(there) for name, (_, there) in phases.items()}
    report = f"{how}: requests {requests}, rise of p50 and p99 in ms {rises}, {grown:+,.0f} bytes"
    print(report)  # noqa: T201
    assert min(requests.values()) > 50, report
    assert rises["broken"][1] <= TIMEOUT_MS + SLACK_MS, report
    assert grown < 8 << 20, report
