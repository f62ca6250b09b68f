"""Live documents of a fleet, as `fullrank serve --ray` starts it: killed processes lose no acknowledged write."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from fleet.serving.actors import running_coordinator, stop_fleet
from tests.background import Background
from tests.databases import NewDatabase
from tests.fleet.support import Sets, activate, router, wait_until, wait_until_served

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    return Sets(tmp_path_factory.mktemp("fleet"))


class Writer(Background):
    """Writes documents and searches in a thread until the block ends.

    Attributes:
        acknowledged: Title of each document whose last write was acknowledged; None: its deletion.
        seq: Number of the last acknowledged write.
        statuses: How many writes had which status.
        failed: Searches that were not answered, or not certified.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.acknowledged: dict[str, str | None] = {}
        self.seq = 0
        self.statuses: Counter[Any] = Counter()
        self.failed: list[str] = []

    def _run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=10) as client:
            number = 0
            while not self._stop.wait(0.005):
                number += 1
                id, title = f"live/{number % 400}", f"zebra {number}"
                try:
                    self._write(client, id, None if number % 7 == 0 else title)
                    if number % 5 == 0:
                        reply = client.post("/v1/search", json={"query": "zebra"})
                        if not (reply.is_success and reply.json()["certified"]):
                            self.failed.append(reply.text)
                except httpx.TransportError as error:
                    # The router was killed: the write may have been stored, or not.
                    self.statuses[type(error)] += 1
                    self.acknowledged.pop(id, None)
                    return

    def _write(self, client: httpx.Client, id: str, title: str | None) -> None:
        url = f"/v1/documents/{id}"
        reply = client.delete(url) if title is None else client.put(url, json={"title": title})
        self.statuses[reply.status_code] += 1
        if reply.status_code == 200:
            self.acknowledged[id] = title
            self.seq = reply.json()["seq"]


def check_all_there(url: str, writer: Writer) -> None:
    """Assert that a router answers with every acknowledged write."""
    with httpx.Client(base_url=url, timeout=30) as client:
        for id, title in writer.acknowledged.items():
            reply = client.get(f"/v1/documents/{id}", params={"min_seq": writer.seq})
            found = reply.json()["fields"]["title"] if reply.is_success else reply.status_code
            assert found == (404 if title is None else title), id
        hits: set[str] = set()
        cursor: str | None = "*"
        while cursor is not None:
            body = {"query": "zebra", "limit": 100, "min_seq": writer.seq, "cursor": cursor}
            reply = client.post("/v1/search", json=body)
            assert reply.is_success, reply.text
            cursor = reply.json()["cursor"]
            hits.update(hit["id"] for hit in reply.json()["hits"])
    live = {id for id, title in writer.acknowledged.items() if title is not None}
    assert live <= hits
    assert not hits & (writer.acknowledged.keys() - live)


def test_no_acknowledged_write_is_lost_when_processes_are_killed(
    cluster: Any, ray: Any, sets: Sets, tmp_path: Path, new_database: NewDatabase
) -> None:
    """Replicas, the coordinator and the router are killed while documents are written, through a swap too."""
    first, second = sets.versions
    environment = {"FULLRANK_DOCUMENTS_URL": new_database(), "FULLRANK_MIN_SEQ_WAIT_MS": "20000"}

    def kill(name: str) -> None:
        actor = running_coordinator() if name == "coordinator" else ray.get_actor(name)
        os.kill(ray.get(actor.pid.remote()), signal.SIGKILL)

    sets.forget_active()
    try:
        with router(cluster.address, sets.root, tmp_path, **environment) as (url, process):
            activate(cluster.address, sets, first)
            wait_until_served(url, first)
            with Writer(url) as writer:
                time.sleep(2)
                kill("shard-00000-0")
                time.sleep(2)
                kill("shard-00001-1")
                time.sleep(2)
                assert activate(cluster.address, sets, second).returncode == 0
                wait_until_served(url, second)
                kill("coordinator")
                time.sleep(2)
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

            wait_until(is_back)
            check_all_there(url, writer)
            with Writer(url) as last:
                time.sleep(2)
                os.killpg(process.pid, signal.SIGKILL)
            assert last.acknowledged
        with router(cluster.address, sets.root, tmp_path, **environment) as (url, _):
            check_all_there(url, last)
    finally:
        stop_fleet()
