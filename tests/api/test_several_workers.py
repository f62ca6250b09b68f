"""One real server with two workers: what one of them does, all do, and /metrics reports both."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fullrank.events.log import EventLog
from tests.api.conftest import Root
from tests.api.support import AUTH, served
from tests.faults.load import children


@pytest.fixture(scope="module")
def folder(two_models: Root, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("several-workers")
    shutil.copytree(two_models.path, root, dirs_exist_ok=True)
    return root


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with served(folder, workers=2, FULLRANK_POLL_MS="20") as address:
        yield address


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    """A connection for each request, so that both workers are met."""
    with httpx.Client(base_url=url, headers={"Connection": "close"}, timeout=30) as client:
        yield client


def supervisor() -> int:
    """Return the process id of the only server that this process runs."""
    [found] = [
        child
        for child in children(os.getpid())
        if b"fullrank_service.process.run" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
    return found


def workers() -> list[int]:
    return children(supervisor())


def test_the_supervisor_has_no_thread_but_its_own_when_it_forks(url: str) -> None:
    """A fork copies the locks of other threads, and never their owners."""
    assert len([*Path(f"/proc/{supervisor()}/task").iterdir()]) == 1


def private_mb(process: int) -> float:
    """Return the memory that a process shares with no other, without files, MB."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")) / 1024


def test_workers_share_the_memory_of_their_code(url: str) -> None:
    """Importing the service alone takes 120 MB; a small bundle takes next to nothing."""
    assert all(private_mb(worker) < 90 for worker in workers())


def test_every_worker_follows_an_activation(client: httpx.Client, two_models: Root) -> None:
    before = client.post("/v1/search", json={"query": "copy"}).json()
    [other] = {two_models.learned, two_models.bm25} - {before["model"]}
    response = client.put("/v1/models/aliases/default", json={"version": other}, headers=AUTH)
    assert response.status_code == 200, response.text
    end, in_a_row = time.monotonic() + 60, 0
    while in_a_row < 30:
        assert time.monotonic() < end
        reply = client.post("/v1/search", json={"query": "copy"}).json()
        in_a_row = in_a_row + 1 if reply["model"] == other else 0
        assert (reply["generation"] == before["generation"] + 1) == (reply["model"] == other)


def test_every_worker_leaves_an_erased_person_out_at_the_next_read(
    client: httpx.Client, folder: Path
) -> None:
    text = "copy what three asked"
    for user in "uvw":
        reply = client.post("/v1/search", json={"query": text, "user_id": user})
        assert reply.status_code == 200, reply.text
    log, end = EventLog(folder / ".events"), time.monotonic() + 20
    while sum(served.text == text for served in log.lists()) < 3:
        assert time.monotonic() < end
        time.sleep(0.05)

    def is_shown() -> bool:
        reply = client.get("/v1/analytics", headers=AUTH)
        return any(query["query"] == text for query in reply.json()["top"])

    # Each worker reads the log now, and remembers that for a minute.
    assert all(is_shown() for _ in range(20))
    assert client.delete("/v1/events/users/v", headers=AUTH).status_code == 200
    assert not any(is_shown() for _ in range(20))


def test_a_write_is_seen_by_every_worker_within_a_second(url: str) -> None:
    """20 writes, 2 workers: each of 12 connections sees each within a second."""
    clients = [httpx.Client(base_url=url, timeout=10) for _ in range(12)]
    for i in range(20):
        document = {"title": "rsync", "text": "Synchronise folders", "n": i}
        reply = clients[i % 12].put(f"/v1/documents/w{i}", json=document)
        assert reply.status_code == 200, reply.text
        end = time.monotonic() + 1
        for client in clients:
            while client.get(f"/v1/documents/w{i}").status_code != 200:
                assert time.monotonic() < end
    for client in clients:
        client.close()


def test_both_workers_report_the_same_metrics_and_a_kill_loses_no_count(
    client: httpx.Client,
) -> None:
    generation = client.get("/v1/models").json()["generation"]

    def samples(name: str) -> dict[tuple[str, ...], float]:
        while True:
            try:
                text = client.get("/metrics").text
                break
            except httpx.TransportError:
                time.sleep(0.05)
        return {
            tuple(sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == f"fullrank_{name}"
        }

    def until_both_serve() -> None:
        end = time.monotonic() + 60
        while samples("generation") != {("0",): generation, ("1",): generation}:
            assert time.monotonic() < end
            time.sleep(0.05)

    searches = ("POST", "/v1/search", "200")
    until_both_serve()
    asked = samples("requests_total").get(searches, 0) + 40
    for _ in range(40):
        assert client.post("/v1/search", json={"query": "copy"}).status_code == 200
    end = time.monotonic() + 10
    while samples("requests_total")[searches] != asked:  # counted after the last byte is sent
        assert time.monotonic() < end
        time.sleep(0.01)
    assert {samples("requests_total")[searches] for _ in range(10)} == {asked}
    assert sum(samples("searches_total").values()) == asked

    before = workers()
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    end = time.monotonic() + 60
    while len(now := workers()) < 2 or before[0] in now:
        assert samples("requests_total")[searches] == asked
        assert time.monotonic() < end
        time.sleep(0.05)  # the new worker starts on the same cores
    until_both_serve()
    assert set(samples("worker_resident_bytes")) == {("0",), ("1",)}
    assert samples("worker_restarts_total") == {("died",): 1, ("hung",): 0}
    assert sum(samples("event_loop_lag_seconds_count").values()) > 0
    assert samples("requests_total")[searches] == asked
