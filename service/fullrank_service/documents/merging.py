"""Merge segments in the background: a thread of its own, so that neither writes nor searches wait for a merge.

The thread of the follower alone replaces views. It offers each new one here and adopts what has been merged of an
earlier one. After a merge the thread rests as long as that took, a second at most. One merge runs at a time, so it
needs as much memory again as the segments that it merges.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fullrank.live import Merged, View
from fullrank_service.ads.table import prepare_ads
from fullrank_service.heap import trim_heap
from fullrank_service.repeating import Failed, Repeater, uncounted

# Without a new view for this long, segments of all sizes are merged.
_IDLE_S = 0.5
_MAX_REST_S = 1.0


class Merger:
    """Merges the segments of the views of one worker."""

    def __init__(self, merged: Callable[[], None], failed: Failed = uncounted) -> None:
        """Prepare; nothing runs before ``start``.

        Args:
            merged: called on the merging thread when there is something to adopt.
            failed: counts merges that failed.
        """
        self._done = merged
        # By the identity of the bundle.
        self._views: dict[int, View] = {}
        self._merged: dict[int, Merged] = {}
        self._offered = 0.0
        self._lock = threading.Lock()
        self._thread = Repeater(
            "merge", self._merge_next, lambda: _IDLE_S if self._views else None,
            rest=1, max_rest_s=_MAX_REST_S, failure="segments of live documents could not be merged",
            failed=failed,
        )  # fmt: skip

    def start(self) -> None:
        """Start merging."""
        self._thread.start()

    def close(self) -> None:
        """Stop, after the merge that is running."""
        self._thread.close()

    def offer(self, view: View) -> None:
        """Merge segments of this view next, in place of those of an earlier view of the bundle."""
        with self._lock:
            self._views[id(view.bundle)] = view
            self._offered = time.monotonic()
        self._thread.nudge()

    def adopted(self, view: View) -> View:
        """Return the view with what was merged since."""
        with self._lock:
            merged = self._merged.pop(id(view.bundle), None)
        return view if merged is None else view.adopt(merged)

    def forget(self, key: int) -> None:
        """Drop what belongs to a bundle, given its identity."""
        with self._lock:
            self._views.pop(key, None)
            self._merged.pop(key, None)

    def _merge_next(self) -> None:
        """Merge what is due first; a bundle whose last merge was not adopted yet waits."""
        idle = time.monotonic() - self._offered >= _IDLE_S
        with self._lock:
            waiting = [(key, view) for key, view in self._views.items() if key not in self._merged]
        for key, view in waiting:
            segments = view.due(idle=idle)
            if segments:
                if idle:
                    trim_heap()  # of what encoding has left, before a large merge takes as much again
                merged = view.merge(segments)
                prepare_ads([merged.part])
                with self._lock:
                    if self._views.get(key) is None:
                        continue
                    self._merged[key] = merged
                self._done()
                return
            if idle:
                with self._lock:
                    if self._views.get(key) is view:
                        del self._views[key]
