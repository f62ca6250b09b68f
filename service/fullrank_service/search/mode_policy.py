"""Choose the mode and the thread of a search from the time that searches of a bundle take.

The policy keeps running means per bundle, m ← m + (t − m) / 16. If exact searches take longer than the budget, queries
that leave the mode open run in the fast mode if the bundle has one, except every 64th. So the exact mode returns when
the load falls or queries get shorter.

Handing a search to another thread and back costs half a millisecond of processor time under load, because the threads
compete for the interpreter lock. So a search that takes only a few times as long runs on the event loop, which it
blocks meanwhile.

To read the processor time of a thread is a system call, of up to 30 µs on a busy virtual machine. So it is measured for
every search on another thread, and for a share of those on the event loop.
"""

from __future__ import annotations

from itertools import count
from random import Random

from fullrank.bundle import Bundle

_WEIGHT = 1 / 16
_EXACT_TRIAL = 64
_MEASURED_SHARE = 1 / 8


class SearchModePolicy:
    """Chooses mode and thread of each search.

    Args:
        budget_s: longest mean time of an exact search.
        inline_s: longest mean time of a search on the event loop; 0: none runs there.
    """

    def __init__(self, budget_s: float, inline_s: float = 0.0) -> None:
        self._budget_s, self._inline_s = budget_s, inline_s
        self._exact = _RunningMeans()
        self._plain = _RunningMeans()
        self._auto_searches = count(1)
        self._drawn = Random()

    def mode(self, bundle: Bundle, requested: str) -> str:
        """Return "exact" or "fast", given "exact", "fast" or "auto"."""
        if requested != "auto":
            return requested
        if "fast" not in bundle.retriever.modes:
            return "exact"
        is_slow = self._exact.get(bundle.bundle_id, 0.0) > self._budget_s
        return "fast" if is_slow and next(self._auto_searches) % _EXACT_TRIAL else "exact"

    def fits_event_loop(self, bundle: Bundle, mode: str) -> bool:
        """Return whether a plain search in this mode is short enough; False before the first one was measured."""
        return self._plain.get(bundle.bundle_id + mode, self._inline_s) < self._inline_s

    def measures_plain(self, bundle: Bundle, mode: str) -> bool:
        """Return whether to measure a plain search in this mode. Drawn, so that no mode is always left out."""
        return not self.fits_event_loop(bundle, mode) or self._drawn.random() < _MEASURED_SHARE

    def observe_exact(self, bundle: Bundle, seconds: float) -> None:
        """Note the time of an exact ranking."""
        self._exact.observe(bundle.bundle_id, seconds)

    def observe_plain(self, bundle: Bundle, mode: str, seconds: float) -> None:
        """Note the processor time of a plain search, from its text to its fields."""
        self._plain.observe(bundle.bundle_id + mode, seconds)


class _RunningMeans(dict[str, float]):
    """Running means by key. Threads may overwrite each other's update; a lost update changes the mean only slightly."""

    def observe(self, key: str, seconds: float) -> None:
        mean = self.get(key, seconds)
        self[key] = mean + (seconds - mean) * _WEIGHT
