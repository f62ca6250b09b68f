"""Fill the placements of a page from the documents of this process (placing.py has the loop).

Documents without an ad have no advertiser and no price; rules about ads do not apply to them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

import numpy as np
from cachetools.keys import hashkey

from fullrank.live import View
from fullrank.search.part import Part
from fullrank.search.searchable import Hit, Hits
from fullrank_service.ads.placing import Candidates, Placed, Slot, Steps, Wanted, place
from fullrank_service.ads.rules import REASONS, AdRules, PriceFloor, Reasons, count_reasons
from fullrank_service.completion.calibrations import Calibration
from fullrank_service.documents.ad import Ad, AdTable, Mask, ads_of
from fullrank_service.search.restricting import MaskCache

# Returns the first hits of a query: their number, and documents to leave out, as `View.deleted` returns them.
Search = Callable[[int, Sequence[Mask | None]], Hits]
# For all sites of one worker; a mask takes one byte an ad.
MAX_BYTES = 32 << 20
# What an entry takes besides its mask and the texts of its rules, and what a text takes besides its characters.
_ENTRY_BYTES, _TEXT_BYTES = 2048, 100
_PER_ADVERTISER = REASONS.index("per_advertiser")


class RuleMasks(MaskCache):
    """A cache of what the rules of pages forbid, whatever the time: a site sends the same rules with each page."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        super().__init__(max_bytes)

    def forbidden(
        self, part: Part, table: AdTable, rules: AdRules, floor: PriceFloor | None
    ) -> Mask:
        """Return the ads of a part that rules or a floor forbid, whatever the time, read-only bool (m,)."""

        def make() -> tuple[Mask, int]:
            mask = rules.forbids(table)
            if floor is not None:
                mask |= floor.forbids(table)
            return mask, mask.nbytes + _rules_bytes(rules)

        # Computes the hash of the rules once.
        return self.get(hashkey(part.key, rules, floor), make)


def _rules_bytes(rules: AdRules) -> int:
    lists = (rules.bcat, rules.acat, rules.badv, rules.wseat, rules.bseat)
    texts = list(chain.from_iterable(found or () for found in lists))
    return _ENTRY_BYTES + sum(map(len, texts)) + _TEXT_BYTES * (len(texts) + len(rules.battr))


@dataclass(frozen=True, slots=True)
class Conditions:
    """What decides whether an ad may be on a page, whatever else is there; now: seconds since 1970."""

    rules: AdRules
    now: float


class Eligible:
    """The documents of a view that may be on one page, but those that are `deleted`, as ``View.deleted`` returns it."""

    def __init__(
        self, view: View, deleted: Sequence[Mask | None], conditions: Conditions, masks: RuleMasks
    ) -> None:
        self._view, self._parts, self._deleted = view, view.parts, deleted
        self._conditions, self._masks = conditions, masks
        self._ads = [ads_of(part) for part in view.parts]
        self._number = {id(part): i for i, part in enumerate(view.parts)}
        # Ads that no placement can have now, whatever the rules of the page are.
        self._unavailable = [
            None if ads is None else ads.unavailable(conditions.now) for ads in self._ads
        ]

    def excluding(
        self, placed: Collection[str], full: Collection[str], floor: PriceFloor | None
    ) -> list[Mask | None]:
        """Return the documents that a placement cannot have now, as ``View.deleted`` does.

        Args:
            placed: Ids of documents that are on the page; unknown ids are ignored.
            full: Domains of advertisers without a free place.
            floor: Of the placement.
        """
        found: list[Mask | None] = []
        hidden = self._hidden(placed)
        found_of = zip(self._parts, self._ads, hidden, self._unavailable, strict=True)
        for part, ads, mask, now in found_of:
            if ads is None or now is None:
                found.append(mask)
                continue
            documents = self._masks.forbidden(part, ads, self._conditions.rules, floor) | now
            ads.advertisers.mark(full, documents)
            if len(documents) < len(part):
                documents = _spread(documents, ads, len(part))
            found.append(documents if mask is None else documents | mask)
        return found

    def dearest(self, excluded: Sequence[Mask | None]) -> float:
        """Return the highest price of an ad that is not excluded; 0 without ads."""
        prices = [
            float(ads.price.max(where=~mask[ads.rows], initial=0.0))
            for ads, mask in zip(self._ads, excluded, strict=True)
            if ads is not None and mask is not None
        ]
        return max(prices, default=0.0)

    def ads_on(self, hits: Sequence[Hit]) -> list[Ad | None]:
        """Return the ad of each hit; None: the document has no ad."""
        tables = [self._ads[self._number[id(hit.part)]] for hit in hits]
        both = zip(tables, hits, strict=True)
        return [None if table is None else table.ad(hit.row) for table, hit in both]

    def left_out(self, placed: Collection[str], full: Collection[str]) -> dict[str, int]:
        """Count the ads that a page leaves out, each by its first reason; arguments as of ``excluding``."""
        on_page = set(self._rows(placed))
        found = []
        for number, ads, candidates, reasons in self._reasons:
            is_full, reasons = ads.advertisers.any_of(full), reasons.copy()
            for row in np.flatnonzero(is_full & (reasons == 0)).tolist():
                if (number, int(ads.rows[row])) not in on_page:
                    reasons[row] = _PER_ADVERTISER
            found.append(reasons[candidates])
        return count_reasons(found)

    def left_out_of(self, floor: PriceFloor | None) -> dict[str, int]:
        """Count the ads that a placement leaves out and the page does not."""
        if floor is None:
            return {}
        return count_reasons(
            [
                floor.reasons(ads)[candidates & (reasons == 0)]
                for _, ads, candidates, reasons in self._reasons
            ]
        )

    def _rows(self, ids: Collection[str]) -> Iterator[tuple[int, int]]:
        for one in ids:
            with suppress(KeyError):
                part, row = self._view.find(one)
                yield self._number[id(part)], row

    def _hidden(self, placed: Collection[str]) -> list[Mask | None]:
        rows: dict[int, list[int]] = {}
        for number, row in self._rows(placed):
            rows.setdefault(number, []).append(row)
        found = list(self._deleted)
        for number, own in rows.items():
            old = found[number]
            mask = np.zeros(len(self._parts[number]), np.bool_) if old is None else old.copy()
            mask[own] = True
            found[number] = mask
        return found

    @cached_property
    def _reasons(self) -> list[tuple[int, AdTable, Mask, Reasons]]:
        """For each part with ads: its number, the ads, those that the filters let through, their reasons."""
        rules, now = self._conditions.rules, self._conditions.now
        return [
            (
                number,
                ads,
                np.ones(len(ads), np.bool_) if mask is None else ~mask[ads.rows],
                rules.reasons(ads, now),
            )
            for number, (ads, mask) in enumerate(zip(self._ads, self._deleted, strict=True))
            if ads is not None
        ]


def has_ads(view: View) -> bool:
    """Return whether a document of a view may have an ad."""
    return any(ads_of(part) is not None for part in view.parts)


def _spread(mask: Mask, ads: AdTable, count: int) -> Mask:
    documents = np.zeros(count, np.bool_)
    documents[ads.rows] = mask
    return documents


@dataclass(frozen=True, slots=True)
class PageFilling:
    """What to place on a page.

    Attributes:
        now: Seconds since 1970.
        per_advertiser: Most ads of one advertiser on the page.
        counting: Count the ads left out.
        masks: Shared by all pages of a worker.
        calibration: Ranks by value; None: documents rank by score.
    """

    slots: Sequence[Slot]
    rules: AdRules
    now: float
    per_advertiser: int = 1
    counting: bool = False
    masks: RuleMasks = field(default_factory=RuleMasks)
    calibration: Calibration | None = None

    @property
    def conditions(self) -> Conditions:
        """What decides whether an ad may be on the page."""
        return Conditions(self.rules, self.now)

    def steps(self, *, has_ads: bool, is_reordered: bool = False) -> Steps[Placed]:
        """Return the loop that fills the placements; arguments as of ``place``."""
        return place(
            self.slots,
            self.per_advertiser,
            self.calibration,
            has_ads=has_ads,
            is_reordered=is_reordered,
        )

    def fill(
        self,
        view: View,
        search: Search,
        deleted: Sequence[Mask | None],
        *,
        is_reordered: bool = False,
    ) -> Placed:
        """Fill the placements from a search of a view; arguments as of ``Eligible`` and ``place``."""
        eligible = Eligible(view, deleted, self.conditions, self.masks)
        steps = self.steps(has_ads=has_ads(view), is_reordered=is_reordered)
        try:
            wanted = next(steps)
            while True:
                wanted = steps.send(candidates(eligible, search, wanted))
        except StopIteration as ended:
            placed: Placed = ended.value
        if not self.counting:
            return placed
        ids = [hit.id for hit in placed.hits.hits]
        return replace(
            placed,
            left_out=eligible.left_out(ids, placed.full),
            left_out_of=[eligible.left_out_of(slot.floor) for slot in self.slots],
        )


def candidates(eligible: Eligible, search: Search, wanted: Wanted) -> Candidates:
    """Search the documents that may be on a page for what its filling wants."""
    excluded = eligible.excluding(wanted.placed, wanted.full, wanted.floor)
    hits = search(wanted.limit, excluded)
    dearest = eligible.dearest(excluded) if wanted.is_valued else 0.0
    return Candidates(hits, eligible.ads_on(hits.hits), dearest)
