"""Searches under load that check every answer against that of its version."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from tests.waiting import join, wait_until

Hits = Sequence[tuple[str, float]]
Expected = Mapping[str, Hits]
"""(id, score) of the hits of each text."""


class Searches:
    """Threads that search until the block ends, and compare with what versions must answer.

    Attributes:
        generations: The version of each generation that has answered.
        wrong: Answers that are not certified, not those of their version, or of a second version of a generation; and
            searches without an answer.
    """

    def __init__(
        self,
        url: str,
        expected: Mapping[str, Expected],
        *,
        limit: int = 10,
        clients: int = 1,
        pause_s: float = 0.0,
    ) -> None:
        self._url, self._expected, self._limit, self._pause_s = url, expected, limit, pause_s
        self._texts = list(next(iter(expected.values())))
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(clients)
        ]
        self.statuses: Counter[int] = Counter()
        self.problems: Counter[str] = Counter()
        self.generations: dict[int, str] = {}
        self.wrong: list[Any] = []
        self.seconds: list[float] = []

    def __enter__(self) -> Searches:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        join(*self._threads)

    def more(self, count: int = 50) -> None:
        """Wait until so many more searches were answered."""
        enough = self.statuses[200] + count
        wait_until(lambda: self.statuses[200] >= enough, f"{count} more searches are answered", 300)

    def check(self) -> None:
        assert self.wrong == [], self.wrong[:1]
        assert set(self.statuses) == {200}, self.statuses

    def _run(self, number: int) -> None:
        with httpx.Client(base_url=self._url, timeout=10) as client:
            while not self._stop.is_set():
                text = self._texts[number % len(self._texts)]
                number += 1
                began = time.perf_counter()
                try:
                    answer = client.post(
                        "/v1/search", json={"query": text, "limit": self._limit, "mode": "exact"}
                    )
                except httpx.TransportError as error:
                    self.wrong.append(repr(error))
                    continue
                self.seconds.append(time.perf_counter() - began)
                self.statuses[answer.status_code] += 1
                if answer.status_code == 200:
                    self._compare(text, answer.json())
                else:
                    self.problems[answer.json()["detail"]] += 1
                self._stop.wait(self._pause_s)

    def _compare(self, text: str, body: dict[str, Any]) -> None:
        version = body["model"]
        is_own = self.generations.setdefault(body["generation"], version) == version
        expected = list(self._expected.get(version, {}).get(text, ()))
        if not (is_own and body["certified"] and hits_of(body) == expected):
            self.wrong.append(body)


def hits_of(body: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [(hit["id"], hit["score"]) for hit in body["hits"]]
