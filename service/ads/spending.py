"""Which ads have spent what they may: a copy of the sums in memory, followed by a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fullrank.ads import AdTable
from fullrank.ads.budget import Budgets
from fullrank.ads.pacing import DAY_S
from fullrank.ads.table import Mask
from fullrank.live.part import Part
from service.ads.counts import TOLERANCE, Counts, CountsError, Spent
from service.repeating import Repeater

POLL_S = 0.1
# Changes in memory before they are cut to the newest of each ad.
_MAX_CHANGES = 100_000


class _Changes(NamedTuple):
    """The sums of one collection, in the order of their changes; a new list replaces one that is cut."""

    latest: dict[str, Spent]
    all: list[Spent]


class Spending:
    """Follows the sums of a file.

    Args:
        open_counts: Opens the file.
        poll_s: How often to look for changes of other workers.
    """

    def __init__(self, open_counts: Callable[[], Counts], poll_s: float = POLL_S) -> None:
        self._open, self._poll_s = open_counts, poll_s
        self._changes: dict[str, _Changes] = {}
        self._tables: WeakKeyDictionary[AdTable, _Sums] = WeakKeyDictionary()
        self._denied: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()
        self._counts: Counts | None = None
        self._last_change = 0
        self._repeater = Repeater(
            "spending",
            self._follow,
            poll_s,
            failure="budgets are not followed",
            expected=(CountsError,),
            ended=self._end,
        )
        self._repeater.start()
        self._repeater.nudge()

    def over(self, collection: str, part: Part, now: float) -> Mask | None:
        """Return the ads of a part that cannot pay their price now, bool (m,); None without any budget.

        Args:
            collection: Name of the bundle.
            part: The documents.
            now: Seconds since 1970.
        """
        if part.ads is None:
            return None
        with self._lock:
            sums = self._tables.get(part.ads)
            if sums is None:
                sums = self._tables[part.ads] = _Sums(part, part.ads)
            changes = self._changes.get(collection)
            if changes is not None and sums.is_budgeted:
                sums.follow(changes.all)
            if not sums.is_budgeted:
                return None
            mask = sums.over(part.ads, now)
            for (name, id), until in self._denied.items():
                if name == collection and until > now:
                    sums.hide(id, mask)
            return mask

    def deny(self, collection: str, ad: str, until: float) -> None:
        """Leave an ad out up to a moment, in seconds since 1970: this machine has nothing to spend for it."""
        with self._lock:
            now = until - DAY_S
            self._denied = {key: old for key, old in self._denied.items() if old > now}
            self._denied[collection, ad] = until

    def close(self) -> None:
        """Stop following."""
        self._repeater.close()

    def _follow(self) -> None:
        """Read the changes since the last time. Raises CountsError."""
        if self._counts is None:
            self._counts = self._open()
        for change in self._counts.spent_after(self._last_change):
            self._last_change = max(self._last_change, change.change)
            self._note(change)

    def _end(self) -> None:
        if self._counts is not None:
            self._counts.close()

    def _note(self, change: Spent) -> None:
        with self._lock:
            found = self._changes.setdefault(change.collection, _Changes({}, []))
            found.latest[change.ad] = change
            found.all.append(change)
            if len(found.all) > _MAX_CHANGES + len(found.latest):
                cut = _Changes(found.latest, list(found.latest.values()))
                self._changes[change.collection] = cut


class _Sums:
    """What the budgeted ads of one table have spent."""

    def __init__(self, part: Part, ads: AdTable) -> None:
        places = [i for i, ad in enumerate(ads.ads) if ad is not None and ad.budget is not None]
        self.is_budgeted = bool(places)
        self._places = np.array(places, np.int64)
        self._budgets = Budgets([ad for i in places if (ad := ads.ads[i]) is not None])
        ids = part.store.ids
        self._place = {ids[int(ads.rows[i])]: k for k, i in enumerate(places)}
        self._total, self._today = np.zeros(len(places)), np.zeros(len(places))
        self._day = np.zeros(len(places), np.int64)
        self._list: list[Spent] = []
        self._done = 0

    def follow(self, changes: list[Spent]) -> None:
        """Apply the changes that are new."""
        if changes is not self._list:
            self._list, self._done = changes, 0
        for change in changes[self._done :]:
            k = self._place.get(change.ad)
            if k is not None:
                self._total[k], self._today[k], self._day[k] = (
                    change.total,
                    change.today,
                    change.day,
                )
        self._done = len(changes)

    def hide(self, id: str, mask: Mask) -> None:
        """Set an ad in a mask, bool (m,), if it is here."""
        k = self._place.get(id)
        if k is not None:
            mask[self._places[k]] = True

    def over(self, ads: AdTable, now: float) -> Mask:
        most, most_today = self._budgets.most_spent(now)
        price = ads.price[self._places] - TOLERANCE
        today = np.where(self._day == int(now // DAY_S), self._today, 0.0)
        mask = np.zeros(len(ads), np.bool_)
        mask[self._places] = (self._total + price > most) | (today + price > most_today)
        return mask
