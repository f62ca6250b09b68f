"""Cursors over several workers while documents are written: each document that is not written comes once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import httpx

from fullrank.storage.documents import Document
from tests.api.support import AUTH, make_bundle
from tests.background import Background
from tests.faults.real import service, started
from tests.waiting import wait_until

DOCUMENTS = 120
PAGES = 8  # lists that are paged through
WRITES = 4  # at least, between two pages


def fields(draw: random.Random) -> dict[str, str]:
    return {"title": "copy", "text": " ".join(draw.choices(["copy", "files", "remote", "x"], k=6))}


def ask(url: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """Send a request over a connection of its own, which any worker may accept."""
    with httpx.Client(base_url=url, headers=AUTH, timeout=30, verify=False) as client:
        response = client.request(method, path, json=body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


class Writing(Background):
    """Writes and deletes documents until it is stopped; written: all ids, count: of acknowledged writes."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__()
        self._url, self._draw = url, random.Random(seed)
        self.written, self.count = set[str](), 0

    def more(self) -> None:
        """Wait until some more writes were acknowledged."""
        enough = self.count + WRITES
        wait_until(
            lambda: self.count >= enough or not self.is_running,
            f"{WRITES} more writes are acknowledged",
            pause_s=0.001,
        )
        assert self.is_running, "a write failed"

    def _run(self) -> None:
        draw = self._draw
        while not self._stop.is_set():
            url = f"/v1/documents/new{draw.randrange(40)}"
            if draw.random() < 0.8:
                url = f"/v1/documents/d{draw.randrange(DOCUMENTS):03}"
            self.written.add(url.rpartition("/")[2])
            if draw.random() < 0.05:
                ask(self._url, "DELETE", url)
            else:
                ask(self._url, "PUT", url, fields(draw))
            self.count += 1


def whole_list(url: str, **search: Any) -> list[dict[str, Any]]:
    asked = [search | {"limit": 100, "offset": offset} for offset in (0, 100)]
    return [hit for one in asked for hit in ask(url, "POST", "/v1/search", one)["hits"]]


def test_pages_of_two_workers_under_writes(tmp_path: Path) -> None:
    """Writes begin after the first page."""
    draw = random.Random(1)
    documents = [Document(f"d{i:03}", fields(draw)) for i in range(DOCUMENTS)]
    make_bundle(tmp_path, "docs", documents, n_dense=2)
    search: dict[str, Any] = {"query": "copy files", "min_score": -100.0}
    with service(tmp_path, 2) as (_, port):
        started(tmp_path, 2)
        url = f"http://127.0.0.1:{port}"
        written = 0
        for number in range(PAGES):
            seq = ask(url, "DELETE", "/v1/documents/nowhere")["seq"]
            whole = whole_list(url, **search, min_seq=seq)
            asked = search | {"limit": 7, "min_seq": seq}
            page = ask(url, "POST", "/v1/search", asked | {"cursor": "*"})
            hits = page["hits"]
            with Writing(url, number) as writing:
                while page["cursor"] is not None:
                    writing.more()
                    cursor = {"cursor": page["cursor"]}
                    page = ask(url, "POST", "/v1/search", asked | cursor)
                    hits += page["hits"]
            left = [hit for hit in whole if hit["id"] not in writing.written]
            assert [hit for hit in hits if hit["id"] not in writing.written] == left
            written += len(writing.written)
        assert written > DOCUMENTS
