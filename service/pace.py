"""How long searches take, and what follows from it: which mode answers, and on which thread.

Mean times of a bundle's searches are followed as they come, m ← m + (t − m) / 16. Above the budget queries that leave
the mode open are answered in the fast mode, where the bundle has one, and every 64th exactly: when there is less to do,
or the queries are shorter, exact comes back by itself.

Handing a search to another thread and back costs half a millisecond of the processor's time where there is much to do:
the threads take the interpreter from each other. So what takes no longer than a few of those in the mean is done where
it arrives, on the event loop, which does nothing else meanwhile.
"""

from __future__ import annotations

from itertools import count

from fullrank.bundle.catalog import Bundle

_WEIGHT = 1 / 16
_LOOK_AGAIN = 64


class Pace:
    """budget_s: how long an exact search may take, in the mean; inline_s: how long one on the event loop may."""

    def __init__(self, budget_s: float, inline_s: float = 0.0) -> None:
        self._budget, self._inline = budget_s, inline_s
        self._exact = _Means()
        self._plain = _Means()
        self._asked = count(1)

    def mode(self, bundle: Bundle, wished: str) -> str:
        """ "exact" or "fast"; what is wished, unless that is "auto"."""
        if wished != "auto":
            return wished
        if "fast" not in bundle.retriever.modes:
            return "exact"
        slow = self._exact.get(bundle.bundle_id, 0.0) > self._budget
        return "fast" if slow and next(self._asked) % _LOOK_AGAIN else "exact"

    def observe(self, bundle: Bundle, seconds: float) -> None:
        """An exact ranking took so long."""
        self._exact.observe(bundle.bundle_id, seconds)

    def brief(self, bundle: Bundle, mode: str) -> bool:
        """Whether a plain search in this mode is short enough for the event loop; not before one was seen."""
        return self._plain.get(bundle.bundle_id + mode, self._inline) < self._inline

    def observe_plain(self, bundle: Bundle, mode: str, seconds: float) -> None:
        """A plain search, from its text to its fields, took so much of the processor's time."""
        self._plain.observe(bundle.bundle_id + mode, seconds)


class _Means(dict[str, float]):
    """Threads may overwrite each other's: it is a mean all the same."""

    def observe(self, key: str, seconds: float) -> None:
        mean = self.get(key, seconds)
        self[key] = mean + (seconds - mean) * _WEIGHT
