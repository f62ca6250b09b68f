"""Fill the placements of a page: in their order, best documents first, each document once.

Documents without an ad have no advertiser and no price; rules about ads do not apply to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby

import numpy as np

from fullrank.ads import Ad, AdRules, AdTable, PriceFloor
from fullrank.ads.rules import REASONS, Reasons, count_reasons
from fullrank.ads.table import Mask
from fullrank.live import View
from fullrank.live.hits import Hits, LiveHit
from fullrank.live.part import Part
from fullrank.rerank.stage import DEPTH
from service.ads.masks import RuleMasks
from service.ads.spending import Spending
from service.ads.valuing import FACTOR, FIRST, MOST, Valuation, Valued

# Hits beyond the free places that a search asks for, because one advertiser may have several of the best ads.
_SPARE_HITS = 4
_PER_ADVERTISER = REASONS.index("per_advertiser")

# Returns the first hits of a query: their number, and documents to leave out, as `View.deleted` returns them.
Search = Callable[[int, Sequence[Mask | None]], Hits]


@dataclass(frozen=True, slots=True)
class Slot:
    """A placement: how many documents it takes, and which.

    Attributes:
        floor: Least price and currency of its ads; None: any.
        min_score: Least score of its documents; None: any.
        id: Of the placement.
    """

    count: int
    floor: PriceFloor | None = None
    min_score: float | None = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class Filled:
    """A filled page.

    Attributes:
        hits: Those of all placements, in their order; certified if each of them is the best that could be placed.
        ads: The ad of each hit; None: the document has no ad.
        counts: How many of the hits each placement has.
        left_out: Ads that the page leaves out, by reason.
        left_out_of: The same for each placement, of ads that the page lets through.
        values: The value of each hit; empty if the hits are ranked by score.
    """

    hits: Hits
    ads: list[Ad | None]
    counts: list[int]
    left_out: dict[str, int]
    left_out_of: list[dict[str, int]]
    values: list[Valued] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PageFilling:
    """What to place on a page.

    Attributes:
        slots: The placements.
        rules: Which ads the page forbids.
        now: Seconds since 1970.
        per_advertiser: Most ads of one advertiser on the page.
        counting: Count the ads left out.
        spending: What ads have spent; None: budgets are not looked at.
        seen: How often the person has seen ads, by their ids.
        masks: What rules forbid; shared by all pages of a worker.
        valuation: Ranks by value; None: documents rank by score.
    """

    slots: Sequence[Slot]
    rules: AdRules
    now: float
    per_advertiser: int = 1
    counting: bool = False
    spending: Spending | None = None
    seen: Mapping[str, int] = field(default_factory=dict)
    masks: RuleMasks = field(default_factory=RuleMasks)
    valuation: Valuation | None = None

    def fill(
        self,
        view: View,
        search: Search,
        deleted: Sequence[Mask | None],
        *,
        is_reordered: bool = False,
    ) -> Filled:
        """Fill the placements.

        Args:
            view: The documents.
            search: Ranks them.
            deleted: Documents that must not be placed, as ``View.deleted`` returns them.
            is_reordered: Whether a second stage reorders the first hits.
        """
        page = _Page(view, self, deleted)
        if self.valuation is not None:
            values = [page.place_valued(search, slot, self.valuation) for slot in self.slots]
            counts = [len(found) for found in values]
            return self._filled(page, counts, list(chain.from_iterable(values)))
        counts = []
        # Neighbours with equal conditions share a ranking.
        for (floor, min_score), slots in groupby(self.slots, lambda s: (s.floor, s.min_score)):
            sizes = [slot.count for slot in slots]
            # Scores descend only below the documents that a second stage reorders.
            depth = DEPTH if is_reordered and min_score is not None else 1
            left = page.place(search, sum(sizes), floor, min_score, depth)
            for size in sizes:
                counts.append(min(size, left))
                left -= counts[-1]
        return self._filled(page, counts, [])

    def _filled(self, page: _Page, counts: list[int], values: list[Valued]) -> Filled:
        first = page.answers[0]
        reordered = 0 if self.valuation is not None else first.reordered
        found = Hits(page.hits, page.is_certified, first.total, first.is_total, reordered)
        if not self.counting:
            return Filled(found, page.ads, counts, {}, [{} for _ in self.slots], values)
        of_slots = [page.left_out_of(slot.floor) for slot in self.slots]
        return Filled(found, page.ads, counts, page.left_out(), of_slots, values)


class _Page:
    """The state of a page while it is filled."""

    def __init__(self, view: View, filling: PageFilling, deleted: Sequence[Mask | None]) -> None:
        self.answers: list[Hits] = []
        self.hits: list[LiveHit] = []
        self.ads: list[Ad | None] = []
        self._filling = filling
        self._parts = view.parts
        self._number = {id(part): i for i, part in enumerate(view.parts)}
        self._has_ads = any(part.ads is not None for part in view.parts)
        self._deleted = deleted
        # Documents and ads that cannot be placed any more.
        self._hidden = list(deleted)
        self._name = view.bundle.name
        # Ads that no placement can have now, whatever the rules of the page are.
        self._unavailable = [self._unavailable_ads(part) for part in view.parts]
        self._advertisers = _Advertisers(filling.per_advertiser)
        self._new: list[LiveHit] = []
        self._is_cut = False

    def _unavailable_ads(self, part: Part) -> Mask | None:
        if part.ads is None:
            return None
        found = part.ads.unavailable(self._filling.now).copy()
        for mask in self._used_up(part, part.ads).values():
            found |= mask
        return found

    def _used_up(self, part: Part, ads: AdTable) -> dict[str, Mask]:
        """Return the ads that have spent their budget, and those that the person has seen often enough, by reason."""
        found: dict[str, Mask] = {}
        filling = self._filling
        if filling.spending is not None:
            over = filling.spending.over(self._name, part, filling.now)
            if over is not None:
                found["budget"] = over
        for id, count in filling.seen.items():
            row = part.row(id)
            ad = None if row is None else ads.ad(row)
            if ad is not None and ad.cap is not None and count >= ad.cap.count:
                mask = ads.rows == row
                found["cap"] = mask | found["cap"] if "cap" in found else mask
        return found

    def place(
        self,
        search: Search,
        wanted: int,
        floor: PriceFloor | None,
        min_score: float | None,
        depth: int,
    ) -> int:
        """Place the best documents that may be placed now, at most some; return their number.

        Args:
            wanted: Most documents to place.
            floor: Least price of ads.
            min_score: Least score of documents.
            depth: From this place on scores descend.
        """
        spare = _SPARE_HITS if self._has_ads else 0
        placed = 0
        while placed < wanted:
            self._hide_placed()
            limit = max(wanted - placed + spare, depth)
            found = search(limit, self._excluded(floor))
            self.answers.append(found)
            fitting = [hit for hit in found.hits if min_score is None or hit.score >= min_score]
            # A hit is passed over only for an advertiser of an earlier one, which is hidden in the next search.
            for hit in fitting:
                if placed < wanted and self._take(hit):
                    placed += 1
            if len(found.hits) < limit or len(fitting) < len(found.hits):
                break
        return placed

    @property
    def is_certified(self) -> bool:
        """Whether each hit is proven to be the best that could be placed."""
        return not self._is_cut and all(answer.certified for answer in self.answers)

    def place_valued(self, search: Search, slot: Slot, valuation: Valuation) -> list[Valued]:
        """Place the documents of the largest values that may be placed now, and return them.

        Args:
            search: Ranks by score.
            slot: The placement.
            valuation: Ranks by value.
        """
        self._hide_placed()
        excluded = self._excluded(slot.floor)
        price, limit = self._dearest(excluded), FIRST
        while True:
            found = search(limit, excluded)
            fitting = [
                hit for hit in found.hits if slot.min_score is None or hit.score >= slot.min_score
            ]
            is_whole = len(found.hits) < limit or len(fitting) < len(found.hits)
            # The second stage may have reordered them.
            least = min((hit.score for hit in found.hits), default=0.0)
            bound = 0.0 if is_whole else valuation.bound(price, least, slot.id)
            chosen = self._choose(valuation.ranked(fitting, slot.id), slot.count)
            is_proven = is_whole or (len(chosen) == slot.count and chosen[-1].value > bound)
            if is_proven or limit >= MOST:
                break
            limit = min(limit * FACTOR, MOST)
        self.answers.append(found)
        self._is_cut = self._is_cut or not is_proven
        for one in chosen:
            self._take(one.hit)
        return chosen

    def _choose(self, ranked: Sequence[Valued], count: int) -> list[Valued]:
        """Return the first documents whose advertisers have free places, at most some."""
        advertisers, chosen = self._advertisers.copy(), list[Valued]()
        for one in ranked:
            if len(chosen) == count:
                break
            table = one.hit.part.ads
            ad = None if table is None else table.ad(one.hit.row)
            if ad is None or advertisers.take(ad.adomain):
                chosen.append(one)
        return chosen

    def _dearest(self, excluded: Sequence[Mask | None]) -> float:
        """Return the highest price of an ad that can be placed; 0 without ads."""
        prices = [
            float(part.ads.price.max(where=~mask[part.ads.rows], initial=0.0))
            for part, mask in zip(self._parts, excluded, strict=True)
            if part.ads is not None and mask is not None
        ]
        return max(prices, default=0.0)

    def left_out(self) -> dict[str, int]:
        """Count the ads that the page leaves out, each by its first reason."""
        on_page = {(self._number[id(hit.part)], hit.row) for hit in self.hits}
        found = []
        for number, ads, candidates, reasons in self._reasons():
            full = ads.advertisers.any_of(self._advertisers.full)
            for place in np.flatnonzero(full & (reasons == 0)).tolist():
                if (number, int(ads.rows[place])) not in on_page:
                    reasons[place] = _PER_ADVERTISER
            found.append(reasons[candidates])
        return count_reasons(found)

    def left_out_of(self, floor: PriceFloor | None) -> dict[str, int]:
        """Count the ads that a placement leaves out and the page does not."""
        if floor is None:
            return {}
        return count_reasons(
            [
                floor.reasons(ads)[candidates & (reasons == 0)]
                for _, ads, candidates, reasons in self._reasons()
            ]
        )

    def _reasons(self) -> Iterator[tuple[int, AdTable, Mask, Reasons]]:
        """Yield for each part with ads: its number, the ads, those that the filters let through, their reasons."""
        rules, now = self._filling.rules, self._filling.now
        for number, (part, mask) in enumerate(zip(self._parts, self._deleted, strict=True)):
            if part.ads is not None:
                ads = part.ads
                kept = np.ones(len(ads), np.bool_) if mask is None else ~mask[ads.rows]
                reasons = rules.reasons(ads, now)
                for name, mask in self._used_up(part, ads).items():
                    code = REASONS.index(name)
                    reasons[mask & ((reasons == 0) | (reasons > code))] = code
                yield number, ads, kept, reasons

    def _excluded(self, floor: PriceFloor | None) -> list[Mask | None]:
        """Return the documents that a placement with this floor cannot have now."""
        found: list[Mask | None] = []
        filling = self._filling
        for part, mask, now in zip(self._parts, self._hidden, self._unavailable, strict=True):
            forbidden = filling.masks.forbidden(part, filling.rules, floor)
            if forbidden is None or now is None:
                found.append(mask)
                continue
            documents = forbidden | now
            if len(documents) < len(part):
                assert part.ads is not None
                documents = _spread(documents, part.ads, len(part))
            found.append(documents if mask is None else documents | mask)
        return found

    def _take(self, hit: LiveHit) -> bool:
        """Note that a document is placed; False if one of its advertisers has all of its places."""
        table = hit.part.ads
        ad = None if table is None else table.ad(hit.row)
        if ad is not None and not self._advertisers.take(ad.adomain):
            return False
        self.hits.append(hit)
        self.ads.append(ad)
        self._new.append(hit)
        return True

    def _hide_placed(self) -> None:
        """Hide what was placed since the last search, and the other ads of advertisers without a free place."""
        if not self._new:
            return
        for number, part in enumerate(self._parts):
            unavailable = self._unavailable[number]
            if part.ads is not None and unavailable is not None:
                part.ads.advertisers.mark(self._advertisers.full, unavailable)
            rows = [hit.row for hit in self._new if hit.part is part]
            old = self._hidden[number]
            if rows:
                mask = np.zeros(len(part), np.bool_) if old is None else old.copy()
                mask[rows] = True
                self._hidden[number] = mask
        self._new = []


class _Advertisers:
    """How many ads of each advertiser are on a page; full: those without a free place."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._placed = Counter[str]()
        self.full = set[str]()

    def copy(self) -> _Advertisers:
        found = _Advertisers(self._most)
        found._placed, found.full = self._placed.copy(), self.full.copy()
        return found

    def take(self, adomain: Sequence[str]) -> bool:
        """Take a place of each domain of an ad; False if one of them has no free place."""
        domains = set(adomain)
        if not self.full.isdisjoint(domains):
            return False
        for domain in domains:
            self._placed[domain] += 1
            if self._placed[domain] >= self._most:
                self.full.add(domain)
        return True


def _spread(mask: Mask, ads: AdTable, count: int) -> Mask:
    """Return the documents whose ads are in a mask, bool (count,)."""
    documents = np.zeros(count, np.bool_)
    documents[ads.rows] = mask
    return documents
