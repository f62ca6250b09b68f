"""Time systems one query at a time, in rounds, so that other load on the machine affects all alike.

A round is a few queries that every system answers, one system after another, in an order that rotates between rounds. A
ratio compares two systems over the queries of one round; the report gives the median and quartiles over the rounds.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from fullrank.measures import Float64

Q = TypeVar("Q")
A = TypeVar("A")

ROUND = 20
WARM_UP = 10


@dataclass(frozen=True, eq=False)
class Timed(Generic[A]):
    """Answers and times of the systems.

    seconds  system → float64 (queries,)
    answers  system → an answer a query
    size     queries of a round
    """

    seconds: Mapping[str, Float64]
    answers: Mapping[str, list[A]]
    size: int

    def ratio(self, over: str, under: str) -> dict[str, float] | None:
        """Return the time of one system over that of another; None if one was not timed."""
        if over not in self.seconds or under not in self.seconds:
            return None
        a, b = (self._rounds(name) for name in (over, under))
        low, median, high = np.percentile(a / b, (25, 50, 75)).tolist()
        return {"median": _short(median), "q25": _short(low), "q75": _short(high)}

    def _rounds(self, name: str) -> Float64:
        """Return the seconds of each round, without an incomplete last one unless it is the only one."""
        seconds = self.seconds[name]
        whole = len(seconds) // self.size
        return seconds[: whole * self.size].reshape(whole, -1).sum(1) if whole else seconds

    def figures(self, name: str) -> dict[str, float]:
        """Return p50 and p99 in milliseconds, and queries per second."""
        return figures(self.seconds[name])


def figures(seconds: Float64) -> dict[str, float]:
    """Return p50 and p99 in milliseconds, and queries per second."""
    p50, p99 = np.percentile(seconds * 1e3, (50, 99)).tolist()
    return {
        "p50_ms": _short(p50),
        "p99_ms": _short(p99),
        "queries_per_second": _short(len(seconds) / float(seconds.sum())),
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def in_rounds(
    systems: Mapping[str, Callable[[Q], A]],
    queries: Sequence[Q],
    warm_up: Sequence[Q],
    *,
    size: int = ROUND,
    advance: Callable[[int], object] = lambda done: None,
) -> Timed[A]:
    """Time every system on every query; ``warm_up`` is answered before the clock starts."""
    names = list(systems)
    seconds = {name: np.zeros(len(queries)) for name in names}
    answers: dict[str, list[A]] = {name: [] for name in names}
    for name in names:
        for query in warm_up:
            systems[name](query)
    size = max(1, min(size, len(queries)))
    collecting = gc.isenabled()
    gc.disable()
    try:
        for turn, start in enumerate(range(0, len(queries), size)):
            stop = min(start + size, len(queries))
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                ask, took = systems[name], seconds[name]
                for i in range(start, stop):
                    began = time.perf_counter()
                    answer = ask(queries[i])
                    took[i] = time.perf_counter() - began
                    answers[name].append(answer)
            gc.collect()
            advance(stop - start)
    finally:
        if collecting:
            gc.enable()
    return Timed(seconds, answers, size)
