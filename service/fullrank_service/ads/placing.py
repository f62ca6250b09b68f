"""The loop that fills the placements of a page: which documents get which places, without any search of its own.

Where it needs candidates it yields what it wants, and is sent what was found. So one machine, which searches its own
documents, and a router, which asks shards, fill pages by the same loop.

By value (price × probability of a click) the best ads need not have the best scores. So the ranking by score is read
from its top until no document below can have a larger value: its price is at most that of the dearest ad, its
probability at most that of the last score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, repeat
from typing import NamedTuple, TypeVar

from fullrank.search.rerank.stage import DEPTH
from fullrank.search.searchable import Hit, Hits
from fullrank_service.ads.rules import PriceFloor
from fullrank_service.completion.calibrations import Calibration
from fullrank_service.documents.ad import Ad

# Documents that are read first, by which factor more each time, and most.
FIRST, FACTOR, MOST = DEPTH, 4, 10_000
# Hits beyond the free places that a search asks for, because one advertiser may have several of the best ads.
_SPARE_HITS = 4
Result = TypeVar("Result")


class Valued(NamedTuple):
    """A document, its ad, and its value; without an ad all numbers are 0."""

    hit: Hit
    ad: Ad | None
    price: float
    probability: float
    value: float

    def json(self) -> dict[str, float]:
        """Return the numbers, for the reply."""
        return {"price": self.price, "probability": self.probability, "value": self.value}


def ranked_by_value(
    hits: Iterable[tuple[Hit, Ad | None]], calibration: Calibration, placement: str
) -> list[Valued]:
    """Return hits, given with their ads, by descending value, ties by score, then id."""
    found = []
    for hit, ad in hits:
        if ad is None:
            found.append(Valued(hit, None, 0.0, 0.0, 0.0))
        else:
            probability = calibration.probability(hit.score, placement)
            found.append(Valued(hit, ad, ad.price, probability, ad.price * probability))
    return sorted(found, key=lambda one: (-one.value, -one.hit.score, one.hit.id))


@dataclass(frozen=True, slots=True)
class Slot:
    """A placement: how many documents it takes, at which least price and currency of ads and least score."""

    count: int
    floor: PriceFloor | None = None
    min_score: float | None = None
    id: str = ""


class Wanted(NamedTuple):
    """What the loop asks for: the first documents of the ranking by score that may still be placed.

    Attributes:
        placed: Ids of the documents that are on the page already.
        full: Domains of the advertisers without a free place.
        is_valued: Whether the highest price of an ad that can be placed is needed.
    """

    limit: int
    floor: PriceFloor | None
    placed: Sequence[str]
    full: frozenset[str]
    is_valued: bool


class Candidates(NamedTuple):
    """What was found.

    Attributes:
        hits: In the order of the ranking.
        ads: The ad of each; None: the document has no ad.
        dearest: The highest price of an ad that can be placed, if it is needed; 0 without ads.
    """

    hits: Hits
    ads: Sequence[Ad | None]
    dearest: float = 0.0


Steps = Generator[Wanted, Candidates, Result]


@dataclass(frozen=True, slots=True)
class Placed:
    """The documents on a page.

    Attributes:
        hits: Those of all placements, in their order; certified if each of them is the best that could be placed.
        ads: The ad of each; None: the document has no ad.
        counts: How many of them each placement has.
        full: Domains of the advertisers without a free place.
        values: The value of each; empty if they are ranked by score.
        left_out: Ads that the page leaves out, by reason, if they are counted.
        left_out_of: The same for each placement, of ads that the page lets through.
    """

    hits: Hits
    ads: list[Ad | None]
    counts: list[int]
    full: frozenset[str]
    values: list[Valued]
    left_out: Mapping[str, int]
    left_out_of: Sequence[Mapping[str, int]]

    def keeping(self, places: Collection[int]) -> Placed:
        """Return the page without some hits, given the ascending numbers of those that stay."""
        if len(places) == len(self.ads):
            return self
        number_of = chain.from_iterable(repeat(n, count) for n, count in enumerate(self.counts))
        kept = [number for place, number in enumerate(number_of) if place in places]
        return replace(
            self,
            hits=replace(self.hits, hits=[self.hits.hits[place] for place in places]),
            ads=[self.ads[place] for place in places],
            counts=[kept.count(number) for number in range(len(self.counts))],
            values=[self.values[place] for place in places] if self.values else [],
        )


def place(
    slots: Sequence[Slot],
    per_advertiser: int,
    calibration: Calibration | None,
    *,
    has_ads: bool,
    is_reordered: bool = False,
) -> Steps[Placed]:
    """Fill placements in their order, best documents first, each document once.

    Args:
        slots: The placements.
        per_advertiser: Most ads of one advertiser on the page.
        calibration: Ranks by value; None: documents rank by score.
        has_ads: Whether a document may have an ad.
        is_reordered: Whether a second stage reorders the first hits.
    """
    page = _Page(per_advertiser, has_ads=has_ads)
    if calibration is not None:
        values = list[Valued]()
        counts = []
        for slot in slots:
            found = yield from page.place_valued(slot, calibration)
            values += found
            counts.append(len(found))
        return page.placed(counts, values)
    counts = []
    # Neighbours with equal conditions share a ranking.
    for (floor, min_score), own in groupby(slots, lambda slot: (slot.floor, slot.min_score)):
        sizes = [slot.count for slot in own]
        # Scores descend only below the documents that a second stage reorders.
        depth = DEPTH if is_reordered and min_score is not None else 1
        left = yield from page.place(sum(sizes), floor, min_score, depth)
        for size in sizes:
            counts.append(min(size, left))
            left -= counts[-1]
    return page.placed(counts, [])


class _Page:
    def __init__(self, per_advertiser: int, *, has_ads: bool) -> None:
        self._spare = _SPARE_HITS if has_ads else 0
        self._answers: list[Hits] = []
        self._hits: list[Hit] = []
        self._ads: list[Ad | None] = []
        self._advertisers = _Advertisers(per_advertiser)
        self._is_cut = False

    def placed(self, counts: list[int], values: list[Valued]) -> Placed:
        first = self._answers[0]
        is_certified = not self._is_cut and all(answer.certified for answer in self._answers)
        reordered = 0 if values else first.reordered
        hits = Hits(self._hits, is_certified, first.total, first.is_total, reordered)
        full = frozenset(self._advertisers.full)
        return Placed(hits, self._ads, counts, full, values, {}, [{} for _ in counts])

    def place(
        self, wanted: int, floor: PriceFloor | None, min_score: float | None, depth: int
    ) -> Steps[int]:
        placed = 0
        while placed < wanted:
            limit = max(wanted - placed + self._spare, depth)
            found = yield self._wanted(limit, floor)
            self._answers.append(found.hits)
            fitting = _fitting(found, min_score)
            # A hit is passed over only for an advertiser of an earlier one, which is hidden in the next search.
            for hit, ad in fitting:
                if placed < wanted and self._take(hit, ad):
                    placed += 1
            if len(found.hits.hits) < limit or len(fitting) < len(found.hits.hits):
                break
        return placed

    def place_valued(self, slot: Slot, calibration: Calibration) -> Steps[list[Valued]]:
        limit = FIRST
        while True:
            found = yield self._wanted(limit, slot.floor, is_valued=True)
            hits = found.hits.hits
            fitting = _fitting(found, slot.min_score)
            is_whole = len(hits) < limit or len(fitting) < len(hits)
            # The second stage may have reordered them.
            least = min((hit.score for hit in hits), default=0.0)
            bound = 0.0 if is_whole else found.dearest * calibration.most(least, slot.id)
            chosen = self._choose(ranked_by_value(fitting, calibration, slot.id), slot.count)
            is_proven = is_whole or (len(chosen) == slot.count and chosen[-1].value > bound)
            if is_proven or limit >= MOST:
                break
            limit = min(limit * FACTOR, MOST)
        self._answers.append(found.hits)
        self._is_cut = self._is_cut or not is_proven
        for one in chosen:
            self._take(one.hit, one.ad)
        return chosen

    def _wanted(self, limit: int, floor: PriceFloor | None, *, is_valued: bool = False) -> Wanted:
        placed = [hit.id for hit in self._hits]
        return Wanted(limit, floor, placed, frozenset(self._advertisers.full), is_valued)

    def _choose(self, ranked: Sequence[Valued], count: int) -> list[Valued]:
        advertisers, chosen = self._advertisers.copy(), list[Valued]()
        for one in ranked:
            if len(chosen) == count:
                break
            if one.ad is None or advertisers.take(one.ad.adomain):
                chosen.append(one)
        return chosen

    def _take(self, hit: Hit, ad: Ad | None) -> bool:
        if ad is not None and not self._advertisers.take(ad.adomain):
            return False
        self._hits.append(hit)
        self._ads.append(ad)
        return True


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


def _fitting(found: Candidates, min_score: float | None) -> list[tuple[Hit, Ad | None]]:
    pairs = zip(found.hits.hits, found.ads, strict=True)
    return [(hit, ad) for hit, ad in pairs if min_score is None or hit.score >= min_score]
