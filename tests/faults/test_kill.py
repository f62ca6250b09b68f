"""Broken on purpose, a few times each: killed servers, a Redis that dies under load."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from service.models.state import read_state
from tests.api.support import (
    AUTH,
    answer_of,
    at,
    environment_for,
    free_port,
    make_bundle,
    redis_process,
    running,
    wait_for,
)

REPOSITORY = Path(__file__).resolve().parents[2]


def start(root: Path, port: int) -> subprocess.Popen[bytes]:
    environment = environment_for(root, port, FULLRANK_LOG_LEVEL="error")
    process = subprocess.Popen(
        [sys.executable, "-m", "service.process.run"], cwd=REPOSITORY, env=environment
    )
    wait_for(f"http://127.0.0.1:{port}/readyz", process)
    return process


def test_a_server_killed_while_swapping_comes_back_on_what_was_noted(tmp_path: Path) -> None:
    """3 times kill -9 at a random moment of a stream of swaps: every acknowledged one is kept."""
    versions = [make_bundle(tmp_path, name, created=at(1)) for name in ("one", "two")]
    draw = random.Random(1)
    port = free_port()
    acknowledged = 0
    for _ in range(3):
        process = start(tmp_path, port)
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=5)
        killer = threading.Timer(draw.uniform(0.05, 0.5), process.kill)
        killer.start()
        while True:
            body = {"version": versions[acknowledged % 2]}
            try:
                response = client.put("/v1/models/aliases/default", json=body, headers=AUTH)
            except httpx.TransportError:
                break
            assert response.status_code == 200, response.text
            acknowledged = response.json()["generation"]
        client.close()
        process.wait()
        killer.join()
        state = read_state(tmp_path)
        if state is None:  # killed before the first swap
            assert acknowledged == 0
            continue
        # The last one may have been noted though its answer was lost.
        assert state.generation in (acknowledged, acknowledged + 1)
        process = start(tmp_path, port)
        reply = httpx.post(f"http://127.0.0.1:{port}/v1/search", json={"query": "copy"}).json()
        assert (reply["model"], reply["generation"]) == (state.version, state.generation)
        acknowledged = state.generation
        process.kill()
        process.wait()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_redis_dying_under_load_costs_no_answer(tmp_path: Path, how: signal.Signals) -> None:
    """400 requests of 8 clients, Redis gone after the first quarter: every answer is right."""
    make_bundle(tmp_path / "bundles", "learned", n_dense=8)
    queries = [f"copy files {word}" for word in ("host", "remote", "list", "ssh", "x", "y")]

    async def scenario() -> None:
        async with running(tmp_path / "bundles") as client:
            expected = {query: await ask(client, query) for query in queries}
        with redis_process(tmp_path) as (url, process):
            options = {"redis_url": url, "cache_entries": 0, "redis_retry_ms": 100, "redis_gain": 0}
            async with running(tmp_path / "bundles", **options) as client:
                asked = 0

                async def load() -> None:
                    nonlocal asked
                    for i in range(50):
                        query = queries[i % len(queries)]
                        assert await ask(client, query) == expected[query]
                        asked += 1
                        if asked == 100:
                            os.kill(process.pid, how)

                started = time.perf_counter()
                await asyncio.gather(*(load() for _ in range(8)))
                assert asked == 400
                assert time.perf_counter() - started < 60

    asyncio.run(scenario())


async def ask(client: httpx.AsyncClient, query: str) -> dict[str, object]:
    response = await client.post("/v1/search", json={"query": query})
    assert response.status_code == 200, response.text
    return answer_of(response.json())
