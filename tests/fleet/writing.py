"""Writes and searches under load, and a check that no acknowledged write is lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

import httpx

from tests.background import Background
from tests.waiting import wait_until


class Writer(Background):
    """Writes documents and searches in a thread until the block ends.

    Attributes:
        acknowledged: Title of each document whose last write was acknowledged; None: its deletion.
        failed: Searches that were not answered, or not certified.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.acknowledged: dict[str, str | None] = {}
        self.seq = 0
        self.statuses: Counter[Any] = Counter()
        self.failed: list[str] = []

    def more(self, count: int = 100) -> None:
        """Wait until so many more writes were acknowledged."""
        enough = self.statuses[200] + count
        wait_until(
            lambda: self.statuses[200] >= enough or not self.is_running,
            f"{count} more writes are acknowledged",
            300,
        )
        assert self.is_running, "the writer has ended"

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
