"""The whole service killed during bulk writes: acknowledged documents are there, none twice."""

from __future__ import annotations

import json
import random
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from fullrank_service.documents.sqlitelog import FILE, SqliteLog
from tests.api.support import CORPUS, at, make_bundle
from tests.faults.real import Writer, lives

LINES = 40


@dataclass
class Bulk(Writer):
    """Send bulk requests until the service is dead; kept: n by acknowledged id, unknown: what got no answer."""

    name: str
    kept: dict[str, int] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)
    unknown: tuple[str, dict[str, int]] | None = None
    sent: int = 0

    def write(self, client: httpx.Client) -> None:
        self.sent += 1
        # Half of the lines replace documents, half are new.
        new = [f"{self.name}/{self.sent}/{i}" for i in range(LINES // 2)]
        lines = dict.fromkeys((*new, *list(self.kept)[-LINES // 2 :]), self.sent)
        self.unknown = secrets.token_hex(8), lines
        self.acknowledge(send(client, *self.unknown))

    def acknowledge(self, seqs: list[int]) -> None:
        """Note that the request without an answer was done."""
        assert self.unknown is not None
        self.kept |= self.unknown[1]
        self.numbers += seqs
        self.unknown = None


def send(client: httpx.Client, key: str, lines: dict[str, int]) -> list[int]:
    body = "".join(
        json.dumps({"_id": id, "title": id, "text": "copy files", "n": n}) + "\n"
        for id, n in lines.items()
    )
    headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
    response = client.post("/v1/documents:bulk", content=body, headers=headers)
    assert response.status_code == 200, response.text
    verdicts = [json.loads(line) for line in response.text.splitlines()]
    assert [(v["id"], v["status"]) for v in verdicts] == [(id, 200) for id in lines]
    return [v["seq"] for v in verdicts]


def check(root: Path, url: str, writers: list[Bulk]) -> None:
    """Every acknowledged document once, as it was last acknowledged, in the log and in answers."""
    kept = {id: n for writer in writers for id, n in writer.kept.items()}
    log = SqliteLog(root / FILE)
    operations, _ = log.after("docs", 0, 1_000_000)
    log.close()
    logged = {o.id: json.loads(o.fields or b"{}")["n"] for o in operations}
    assert len(logged) == len(operations)
    assert logged == kept
    numbers = [number for writer in writers for number in writer.numbers]
    assert len(set(numbers)) == len(numbers), "a number was given twice"
    with httpx.Client(base_url=url, timeout=30) as client:
        for _ in range(4):  # both workers, most likely
            body = {"query": "copy files", "limit": 100, "min_seq": max(numbers, default=0)}
            reply = client.post("/v1/search", json=body, headers={"Connection": "close"}).json()
            assert reply["total"] == len(CORPUS) + len(kept)
            ids = [hit["id"] for hit in reply["hits"]]
            assert len(set(ids)) == len(ids)
        for id in random.sample(list(kept), min(len(kept), 100)):
            assert client.get(f"/v1/documents/{id}").json()["fields"]["n"] == kept[id]


def killed(root: Path, kills: int) -> dict[str, int]:
    make_bundle(root, "docs", created=at(1))
    writers = [Bulk(f"w{i}") for i in range(3)]
    found_kept = 0
    for url, _ in lives(root, writers, kills):
        with httpx.Client(base_url=url, timeout=30) as client:
            for writer in writers:
                if writer.unknown is None:
                    continue
                # Sent again under its key: kept now, or answered as it was kept before the kill.
                key, lines = writer.unknown
                seqs = send(client, key, lines)
                head = max((n for w in writers for n in w.numbers), default=0)
                assert seqs == send(client, key, lines)
                found_kept += seqs[0] <= head
                writer.acknowledge(seqs)
        check(root, url, writers)
    return {
        "acknowledged": sum(len(writer.numbers) for writer in writers),
        "documents": sum(len(writer.kept) for writer in writers),
        "kept_without_an_answer": found_kept,
    }


@pytest.mark.parametrize(
    ("kills", "least"),
    [(2, 2 * LINES), pytest.param(50, 50 * LINES + 1, marks=pytest.mark.slow)],
)
def test_a_service_killed_during_bulk_writes_keeps_what_it_acknowledged(
    tmp_path: Path, kills: int, least: int
) -> None:
    found = killed(tmp_path, kills)
    print(found)  # noqa: T201
    assert found["acknowledged"] >= least
