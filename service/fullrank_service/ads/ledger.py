"""What ads have spent, in memory: which of them cannot pay their price now."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from itertools import islice, takewhile
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fullrank.ads import AdTable
from fullrank.ads.budget import Budgets
from fullrank.ads.pacing import DAY_S
from fullrank.ads.table import Mask
from fullrank.live.part import Part
from fullrank_service.ads.counts import TOLERANCE, Spent

# Changes in memory before they are cut to the newest of each ad.
_MAX_CHANGES = 100_000
RECENT = 32
"""Changes that a copy of a ledger is sent without asking."""


class Excerpt(NamedTuple):
    """What a copy of a ledger needs to follow it, for one collection.

    Attributes:
        source: Names the ledger.
        collection: Name of the bundle.
        after: The copy must have the changes up to this one.
        last: The last change.
        changes: Those between, ascending; of each ad the newest.
        denied: Ads that are left out for now, and until when.
    """

    source: str
    collection: str
    after: int
    last: int
    changes: Sequence[Spent]
    denied: Sequence[tuple[str, float]]


class _Changes(NamedTuple):
    """The sums of one collection, in the order of their changes; a new list replaces one that is cut."""

    latest: dict[str, Spent]
    all: list[Spent]


class Ledger:
    """The sums that ads have spent. Any thread may call any method.

    Attributes:
        source: Names this ledger among all of all machines.
    """

    def __init__(self) -> None:
        self.source = os.urandom(8).hex()
        self._changes: dict[str, _Changes] = {}
        self._tables: WeakKeyDictionary[AdTable, _Sums] = WeakKeyDictionary()
        self._denied: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def note(self, change: Spent) -> None:
        """Note what an ad has spent; changes come in their order."""
        with self._lock:
            found = self._changes.setdefault(change.collection, _Changes({}, []))
            # The newest last.
            found.latest.pop(change.ad, None)
            found.latest[change.ad] = change
            found.all.append(change)
            if len(found.all) > _MAX_CHANGES + len(found.latest):
                cut = _Changes(found.latest, list(found.latest.values()))
                self._changes[change.collection] = cut

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

    def excerpt(self, collection: str, now: float, after: int | None = None) -> Excerpt:
        """Return what a copy of this ledger needs to follow it.

        Args:
            collection: Name of the bundle.
            now: Seconds since 1970.
            after: The last change that the copy has; None: it has all but the ``RECENT`` last ones.
        """
        with self._lock:
            changes = self._changes.get(collection)
            latest = {} if changes is None else changes.latest
            newest = reversed(latest.values())
            if after is None:
                found = list(islice(newest, RECENT + 1))
                after = found.pop().change if len(found) > RECENT else 0
            else:
                found = list(takewhile(lambda one: one.change > after, newest))
            last = next((one.change for one in reversed(latest.values())), 0)
            denied = [
                (id, until)
                for (name, id), until in self._denied.items()
                if name == collection and until > now
            ]
        return Excerpt(self.source, collection, after, last, found[::-1], denied)


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
