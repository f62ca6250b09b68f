"""The cache changes latency, never an answer."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.api.conftest import Root
from tests.api.support import Client, answer_of, ok, redis_process, running

pytestmark = pytest.mark.anyio

QUERIES = ["copy files", "remote host", "日本語", "files", "unknown words only"]


async def answers(client: Client) -> list[dict[str, Any]]:
    found = [answer_of(await client.search(query, explain=True)) for query in QUERIES]
    body = {"page": {"text": "copy files to a remote host " * 50}, "placements": [{"id": "a"}]}
    return [*found, answer_of(ok(await client.post("/v1/match", json=body)))]


async def lookups(client: Client) -> dict[str, float]:
    text = (await client.get("/metrics")).text
    prefix = "fullrank_cache_lookups_total{result="
    lines = [line for line in text.splitlines() if line.startswith(prefix)]
    return {line.split('"')[1]: float(line.rpartition(" ")[2]) for line in lines}


async def test_answers_are_the_same_with_a_working_stopped_wrong_and_missing_redis(
    root: Root, tmp_path: Path
) -> None:
    async with running(root.path, cache_entries=0) as client:
        expected = await answers(client)
        assert await lookups(client) == {}
    with redis_process(tmp_path) as (url, process):
        options = {"redis_url": url, "cache_entries": 0, "redis_retry_ms": 50, "redis_min_chars": 0}
        options["redis_timeout_ms"] = 200
        async with running(root.path, **options) as client:
            assert await answers(client) == expected
            await asyncio.sleep(0.1)  # writes are not waited for
            assert await answers(client) == expected
            assert (await lookups(client))["redis"] == len(expected)

            store = redis.Redis.from_url(url)
            names = list(store.scan_iter())
            assert len(names) == len(expected)
            for i, name in enumerate(names):  # one poisoned in each way
                value: Any = store.get(name)
                bad = [b"", value[:-1], value[::-1], store.get(names[i - 1]), b"\0" * len(value)]
                store.set(name, bad[i % len(bad)])
            store.close()
            assert await answers(client) == expected
            assert (await lookups(client))["redis"] == len(expected)

            os.kill(process.pid, signal.SIGSTOP)
            assert await answers(client) == expected
            os.kill(process.pid, signal.SIGCONT)
            await asyncio.sleep(0.1)
            assert await answers(client) == expected

            process.kill()
            process.wait()
            assert await answers(client) == expected


async def test_a_missing_redis_changes_no_answer(root: Root, tmp_path: Path) -> None:
    async with running(root.path) as client:
        expected = await answers(client)
    url = f"unix://{tmp_path}/nowhere.sock"
    async with running(root.path, redis_url=url) as client:
        assert await answers(client) == expected


async def test_two_workers_share_embeddings_through_redis(root: Root, tmp_path: Path) -> None:
    with redis_process(tmp_path) as (url, _):
        async with running(
            root.path, redis_url=url, redis_timeout_ms=500, redis_min_chars=0
        ) as one:
            expected = await answers(one)
            await asyncio.sleep(0.1)
        async with running(
            root.path, redis_url=url, redis_timeout_ms=500, redis_min_chars=0
        ) as two:
            assert await answers(two) == expected
            assert await answers(two) == expected
            found = await lookups(two)
            assert found == {"redis": len(expected), "process": len(expected)}


async def test_models_do_not_share_embeddings(root: Root) -> None:
    async with running(root.path) as client:
        for _ in range(2):
            for model in ("learned", "bm25"):
                body = {"query": "copy files", "model": model, "explain": True}
                reply = (await client.post("/v1/search", json=body)).json()
                dense = [hit["explanation"]["dense"] for hit in reply["hits"]]
                assert any(dense) == (model == "learned")
