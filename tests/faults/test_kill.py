"""A server that is killed during swaps serves the version that it acknowledged last."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import httpx

from fullrank_service.models.state import read_state
from tests.api.support import AUTH, at, free_port, make_bundle
from tests.faults.real import kill, start


def test_a_server_killed_during_a_swap_serves_the_committed_version_again(tmp_path: Path) -> None:
    """3 times kill -9 at a random moment of a stream of swaps: every acknowledged one is kept.

    The service that was started again is the next to be killed.
    """
    versions = [make_bundle(tmp_path, name, created=at(1)) for name in ("one", "two")]
    draw = random.Random(1)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    # The generation that serves before the first swap.
    acknowledged = first = 1
    process = start(tmp_path, port, FULLRANK_LOG_LEVEL="error")
    try:
        assert httpx.post(f"{url}/v1/search", json={"query": "copy"}).json()["generation"] == first
        for _ in range(3):
            killer = threading.Timer(draw.uniform(0.05, 0.5), process.kill)
            killer.start()
            with httpx.Client(base_url=url, timeout=5) as client:
                while True:
                    body = {"version": versions[acknowledged % 2]}
                    try:
                        response = client.put("/v1/models/aliases/default", json=body, headers=AUTH)
                    except httpx.TransportError:
                        break
                    assert response.status_code == 200, response.text
                    acknowledged = response.json()["generation"]
            killer.join()
            kill(process)
            state = read_state(tmp_path)
            process = start(tmp_path, port, FULLRANK_LOG_LEVEL="error")
            if state is None:  # killed before the first swap
                assert acknowledged == first
                continue
            # The last swap may have been committed although its answer was lost.
            assert state.generation in (acknowledged, acknowledged + 1)
            reply = httpx.post(f"{url}/v1/search", json={"query": "copy"}).json()
            assert (reply["model"], reply["generation"]) == (state.version, state.generation)
            acknowledged = state.generation
    finally:
        kill(process)
