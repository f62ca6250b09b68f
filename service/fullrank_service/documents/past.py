"""Views as of earlier operations, for pages of cursors: made from the present view and what the log has kept.

A list is read page by page, so the views of the last lists are remembered.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import NamedTuple

import orjson

from fullrank.bundle import Bundle
from fullrank.live import Earlier, View, view_before
from fullrank_service.documents.log import Log, Logged

MOST_WRITTEN = 10_000
"""Most documents that may be written after the operation."""
_REMEMBERED = 4
# A view that is not asked for is dropped, because it may keep segments that were merged since in memory.
_REMEMBERED_S = 60.0


class HistoryLost(Exception):
    """The log no longer knows what documents were at an operation, or too many were written after it."""


class AsOf(NamedTuple):
    """What a bundle served at an operation.

    Attributes:
        view: Its documents.
        deleted: Ids of those that were deleted since, which no page shows. Their words still count, or the scores of
            others would change.
    """

    view: View
    deleted: Collection[str] = ()


class PastViews:
    """Makes views as of earlier operations. Any thread may call any method."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._remembered: OrderedDict[tuple[int, int], tuple[View, float]] = OrderedDict()

    def as_of(self, log: Log, now: View, since: int, seq: int) -> AsOf:
        """Return what a bundle served at an operation.

        Args:
            log: What the view follows.
            now: The view of the bundle; it contains all operations up to that one.
            since: The bundle itself contains all operations up to this one.
            seq: The operation.

        Raises:
            HistoryLost: The log no longer knows what documents were, or too many were written.
        """
        name = now.bundle.name
        with log.snapshot():
            written = log.written_after(name, seq, since, MOST_WRITTEN)
            if written is None:
                raise HistoryLost
            view = self._find(now.bundle, seq)
            if view is None:
                earlier = _earlier(log.replaced_after(name, seq), written, since, seq)
        if view is None:
            view = view_before(now, earlier)
        self._remember(view, seq)
        return AsOf(view, [id for id, is_deleted in written.items() if is_deleted])

    def forget_old(self) -> None:
        """Drop views that were not asked for lately."""
        with self._lock:
            oldest = time.monotonic() - _REMEMBERED_S
            for key, (_, used) in list(self._remembered.items()):
                if used < oldest:
                    del self._remembered[key]

    def forget(self, bundle: Bundle) -> None:
        """Drop the views of a bundle."""
        with self._lock:
            for key in [key for key in self._remembered if key[0] == id(bundle)]:
                del self._remembered[key]

    def _find(self, bundle: Bundle, seq: int) -> View | None:
        with self._lock:
            found = self._remembered.get((id(bundle), seq))
        return found[0] if found is not None and found[0].bundle is bundle else None

    def _remember(self, view: View, seq: int) -> None:
        key = id(view.bundle), seq
        with self._lock:
            self._remembered[key] = view, time.monotonic()
            self._remembered.move_to_end(key)
            while len(self._remembered) > _REMEMBERED:
                self._remembered.popitem(last=False)


def _earlier(replaced: Sequence[Logged], written: Collection[str], since: int, seq: int) -> Earlier:
    """Return what written documents were, given the operations in whose place they were written."""
    before = {one.id: one.fields for one in replaced if one.seq > since}
    return Earlier(
        seq,
        [id for id in written if id not in before],
        {id: orjson.loads(fields) for id, fields in before.items() if fields is not None},
        [id for id, fields in before.items() if fields is None],
    )
