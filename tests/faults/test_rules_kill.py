"""Processes killed while rules are written: acknowledged rules stay whole, and all workers apply the same ones."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from fullrank_service.documents.sqlitelog import FILE
from tests.api.support import CORPUS, at, make_bundle
from tests.faults.load import client_ports
from tests.faults.real import Writer, lives

# Each rule is as large as several pages of the file, so that a write takes several steps.
HIDDEN = 400
RULES_OF_A_WRITER = 6
AGREEMENT_S = 10.0

Content = dict[str, Any] | None


def rule_of(id: str, number: int) -> dict[str, Any]:
    """Return the rule of a write; every part of it names the number, so a mix of two would be seen."""
    return {
        "query": {"is": f"{id} now"},
        "pin": [{"id": CORPUS[number % len(CORPUS)].id, "position": 1}],
        "hide": [f"{id}/{number}/{i}" for i in range(HIDDEN)],
    }


@dataclass
class Ruling(Writer):
    """Puts and deletes rules of its own until it has done enough; unknown: the change that got no answer."""

    name: str
    kept: dict[str, Content] = field(default_factory=dict)
    unknown: tuple[str, Content] | None = None
    acknowledged: int = 0
    draw: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.name)

    def write(self, client: httpx.Client) -> None:
        id = f"{self.name}-{self.draw.randrange(RULES_OF_A_WRITER)}"
        rule = None if self.draw.random() < 0.2 else rule_of(id, self.acknowledged)
        self.unknown = id, rule
        url = f"/v1/rules/{id}"
        response = client.delete(url) if rule is None else client.put(url, json=rule)
        assert response.status_code == 200, response.text
        self.unknown = None
        self.kept[id] = rule
        self.acknowledged += 1


def stored(client: httpx.Client) -> dict[str, Content]:
    reply = client.get("/v1/rules", params={"limit": 100}).json()
    return {
        rule["id"]: {
            "query": {"is": rule["query"]["is"]}, "pin": rule["pin"], "hide": rule["hide"]
        }
        for rule in reply["rules"]
    }  # fmt: skip


def settle(client: httpx.Client, writers: list[Ruling]) -> int:
    """Adopt what became of the requests without an answer: done or not, nothing between. Return how many were done."""
    found, done = stored(client), 0
    for writer in writers:
        if writer.unknown is not None:
            id, rule = writer.unknown
            assert found.get(id) in (rule, writer.kept.get(id)), id
            done += found.get(id) == rule != writer.kept.get(id)
            writer.kept[id], writer.unknown = found.get(id), None
    return done


@contextmanager
def connected(url: str, pids: list[int]) -> Iterator[list[httpx.Client]]:
    with ExitStack() as stack:
        clients: dict[int, httpx.Client] = {}
        end = time.monotonic() + 30
        while len(clients) < len(pids):
            assert time.monotonic() < end, "a worker got no connection"
            client = stack.enter_context(httpx.Client(base_url=url, timeout=30))
            stream = client.get("/livez").extensions["network_stream"]
            _, port = stream.get_extra_info("client_addr")
            [pid] = [pid for pid in pids if port in client_ports(pid)]
            clients.setdefault(pid, client)
        yield list(clients.values())


def applied(client: httpx.Client, id: str) -> tuple[list[str], str | None]:
    """Return the rules that one worker applies to the query of a rule, and the document that they pin."""
    response = client.post("/v1/search", json={"query": f"{id} now", "record": False})
    assert response.status_code == 200, response.text
    reply = response.json()
    pinned = [hit["id"] for hit in reply["hits"] if hit["rule"] is not None]
    return reply["rules"], pinned[0] if pinned else None


def check(root: Path, url: str, pids: list[int], writers: list[Ruling]) -> None:
    """Check that the file, the list and the searches of every worker have exactly the acknowledged rules."""
    kept = {id: rule for writer in writers for id, rule in writer.kept.items()}
    there = {id: rule for id, rule in kept.items() if rule is not None}
    with closing(sqlite3.connect(root / FILE)) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with connected(url, pids) as clients:
        end = time.monotonic() + AGREEMENT_S
        for client in clients:
            assert stored(client) == there
            for id, rule in kept.items():
                wanted = ([], None) if rule is None else ([id], rule["pin"][0]["id"])
                while (found := applied(client, id)) != wanted:
                    assert time.monotonic() < end, (id, found, wanted)
                    time.sleep(0.02)


def killed(root: Path, kills: int) -> dict[str, int]:
    make_bundle(root, "docs", created=at(1))
    writers = [Ruling(f"w{i}") for i in range(3)]
    unanswered = 0
    for url, pids in lives(root, writers, kills, is_single=True):
        with httpx.Client(base_url=url, timeout=30) as client:
            unanswered += settle(client, writers)
        check(root, url, pids, writers)
    acknowledged = sum(writer.acknowledged for writer in writers)
    return {"acknowledged": acknowledged, "done_without_an_answer": unanswered}


@pytest.mark.parametrize(
    ("kills", "least"), [(2, 10), pytest.param(50, 501, marks=pytest.mark.slow)]
)
def test_a_service_killed_while_rules_are_written_keeps_what_it_acknowledged(
    tmp_path: Path, kills: int, least: int
) -> None:
    found = killed(tmp_path, kills)
    print(found)  # noqa: T201
    assert found["acknowledged"] >= least
