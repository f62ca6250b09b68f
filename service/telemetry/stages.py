"""How long the parts of a search took, one after another."""

from __future__ import annotations

import time

# Looking the embedding up, waiting for a thread, filter and facets, encoding, ranking, stored fields and explanations.
STAGES = ("cache", "wait", "filter", "encode", "rank", "fields")


class Stages:
    """A stage lasts from the end of the one before it, the first one from the beginning.

    began    time.time() of the beginning, seconds
    seconds  stage → how long it took, in their order
    """

    __slots__ = ("_last", "began", "seconds")

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.began = time.time()
        self._last = time.perf_counter()

    def done(self, stage: str) -> float:
        """The stage ends now; how long it took."""
        now = time.perf_counter()
        took, self._last = now - self._last, now
        self.seconds[stage] = took
        return took
