"""Cursors over several workers while documents are written: none twice, none missing but those that are written."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import httpx

from fullrank.storage.documents import Document
from tests.api.support import AUTH, make_bundle
from tests.background import Background
from tests.faults.real import service, started

DOCUMENTS = 120
PAGES = 8  # lists that are paged through


def fields(draw: random.Random) -> dict[str, str]:
    return {"title": "copy", "text": " ".join(draw.choices(["copy", "files", "remote", "x"], k=6))}


def ask(url: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """Send a request over a connection of its own, which any worker may accept."""
    with httpx.Client(base_url=url, headers=AUTH, timeout=30) as client:
        response = client.request(method, path, json=body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


class Writing(Background):
    """Writes, rewrites and deletes documents until it is stopped.

    Attributes:
        begun: The ids of all writes that were sent.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url, self.begun = url, list[str]()

    def _run(self) -> None:
        draw = random.Random(5)
        while not self._stop.is_set():
            id = f"d{draw.randrange(DOCUMENTS + 40):03}"
            self.begun.append(id)
            if draw.random() < 0.2:
                ask(self._url, "DELETE", f"/v1/documents/{id}")
            else:
                ask(self._url, "PUT", f"/v1/documents/{id}", fields(draw))


def test_pages_of_two_workers_under_writes(tmp_path: Path) -> None:
    draw = random.Random(1)
    documents = [Document(f"d{i:03}", fields(draw)) for i in range(DOCUMENTS)]
    make_bundle(tmp_path, "docs", documents, n_dense=2)
    search = {"query": "copy files", "min_score": -100.0, "limit": 7}
    with service(tmp_path, 2) as (_, port):
        started(tmp_path, 2)
        url = f"http://127.0.0.1:{port}"
        with Writing(url) as writing:
            rewritten = checked = 0
            for _ in range(PAGES):
                earlier = len(writing.begun)
                every = ask(url, "POST", "/v1/search", search | {"limit": 100, "cursor": "*"})
                cursor, hits = every["cursor"], every["hits"]
                # The first page holds most documents; the rest, in small pages, may be rewritten meanwhile.
                while cursor is not None:
                    page = ask(url, "POST", "/v1/search", search | {"cursor": cursor})
                    cursor, hits = page["cursor"], hits + page["hits"]
                places = [(-hit["score"], hit["id"]) for hit in hits]
                assert places == sorted(places)
                ids = [hit["id"] for hit in hits]
                assert len(ids) == len(set(ids))
                written = set(writing.begun[max(0, earlier - 1) :])
                before = set(writing.begun[:earlier])
                unchanged = {document.id for document in documents} - before - written
                assert unchanged <= set(ids)
                checked += len(unchanged)
                rewritten += len(written & set(ids))
            assert checked > DOCUMENTS / 2
            assert rewritten
