"""Live documents of a fleet, as `fullrank serve --ray` starts it: killed processes lose no acknowledged write."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from fullrank_fleet.serving.actors import running_coordinator, stop_fleet
from tests.databases import NewDatabase
from tests.fleet.support import Sets, activate, router, wait_until_served
from tests.fleet.writing import Writer, check_all_there
from tests.waiting import LONG_S, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    return Sets(tmp_path_factory.mktemp("fleet"))


def test_no_acknowledged_write_is_lost_when_processes_are_killed(
    cluster: Any, ray: Any, sets: Sets, tmp_path: Path, new_database: NewDatabase
) -> None:
    """Replicas, the coordinator and the router are killed while documents are written, through a swap too."""
    first, second = sets.versions
    environment = {"FULLRANK_DOCUMENTS_URL": new_database(), "FULLRANK_MIN_SEQ_WAIT_MS": "20000"}

    def kill(name: str) -> None:
        actor = running_coordinator() if name == "coordinator" else ray.get_actor(name)
        os.kill(ray.get(actor.pid.remote(), timeout=LONG_S), signal.SIGKILL)

    def is_whole() -> bool:
        """Whether no replica is away: one that moves to another node has no process for a moment."""
        found = ray.get(running_coordinator().follow.remote(None, 0, 0.0), timeout=LONG_S)
        return [len(replicas) for replicas in found.replicas] == [2, 2]

    sets.forget_active()
    try:
        with router(cluster.address, sets.root, tmp_path, **environment) as (url, process):
            activate(cluster.address, sets, first)
            wait_until_served(url, first)
            with Writer(url) as writer:
                writer.more()
                for name in ("shard-00000-0", "shard-00001-1"):
                    wait_until(is_whole, "each shard has two replicas", 120)
                    kill(name)
                    writer.more(200)
                assert activate(cluster.address, sets, second).returncode == 0
                wait_until_served(url, second)
                kill("coordinator")
                writer.more(200)
            assert writer.failed == []
            assert set(writer.statuses) == {200}
            assert len(writer.acknowledged) > 100
            check_all_there(url, writer)
            # Both replicas of a shard: what it has is in the log alone.
            for place in range(2):
                kill(f"shard-00000-{place}")

            def is_back() -> bool:
                reply = httpx.post(f"{url}/v1/search", json={"query": "zebra"}, timeout=10)
                return reply.is_success and bool(reply.json()["certified"])

            wait_until(is_back, "searches are certified again")
            check_all_there(url, writer)
            with Writer(url) as last:
                last.more()
                os.killpg(process.pid, signal.SIGKILL)
            assert last.acknowledged
        with router(cluster.address, sets.root, tmp_path, **environment) as (url, _):
            check_all_there(url, last)
    finally:
        stop_fleet()
