"""A stopwatch for the stages of a search."""

from __future__ import annotations

import time

# Cache lookup, wait for a thread, filter, encoding, facets, ranking, stored fields and explanations.
STAGES = ("cache", "wait", "filter", "encode", "facets", "rank", "fields")


class Stages:
    """Measures stages that follow one another. Each begins when the one before it ends.

    began    time.time() of the beginning, seconds
    seconds  duration by stage, in their order
    """

    __slots__ = ("_last", "began", "seconds")

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.began = time.time()
        self._last = time.perf_counter()

    def done(self, stage: str) -> float:
        """End a stage now and return its duration."""
        now = time.perf_counter()
        duration, self._last = now - self._last, now
        self.seconds[stage] = duration
        return duration
