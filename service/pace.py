"""Which mode answers a query that leaves the choice: exact while that is quick enough.

The mean time of a bundle's exact searches is followed as they come, m ← m + (t − m) / 16. Above the budget queries are
answered in the fast mode, where the bundle has one, and every 64th exactly: when there is less to do, or the queries
are shorter, exact comes back by itself.
"""

from __future__ import annotations

from itertools import count

from fullrank.bundle import Bundle

_WEIGHT = 1 / 16
_LOOK_AGAIN = 64


class Pace:
    """budget_s: how long an exact search may take, in the mean."""

    def __init__(self, budget_s: float) -> None:
        self._budget = budget_s
        self._mean: dict[str, float] = {}
        self._asked = count(1)

    def mode(self, bundle: Bundle, wished: str) -> str:
        """ "exact" or "fast"; what is wished, unless that is "auto"."""
        if wished != "auto":
            return wished
        if "fast" not in bundle.retriever.modes:
            return "exact"
        slow = self._mean.get(bundle.bundle_id, 0.0) > self._budget
        return "fast" if slow and next(self._asked) % _LOOK_AGAIN else "exact"

    def observe(self, bundle: Bundle, seconds: float) -> None:
        """An exact search took so long. Threads may overwrite each other's: it is a mean all the same."""
        mean = self._mean.get(bundle.bundle_id, seconds)
        self._mean[bundle.bundle_id] = mean + (seconds - mean) * _WEIGHT
