"""Fill the placements of a page from the documents of this process (placing.py has the loop).

Documents without an ad have no advertiser and no price; rules about ads do not apply to them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat

from fullrank.ads import Ad, AdRules
from fullrank.ads.table import Mask
from fullrank.live import View
from fullrank.live.hits import Hits
from fullrank_service.ads.eligible import Conditions, Eligible, ads_of, has_ads
from fullrank_service.ads.ledger import Ledger
from fullrank_service.ads.masks import RuleMasks
from fullrank_service.ads.placing import Candidates, Placed, Slot, Steps, Wanted, place
from fullrank_service.ads.valuing import Valuation, Valued

# Returns the first hits of a query: their number, and documents to leave out, as `View.deleted` returns them.
Search = Callable[[int, Sequence[Mask | None]], Hits]


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

    def keeping(self, places: Collection[int]) -> Filled:
        """Return the page without some hits, whose placements then have fewer.

        Args:
            places: Ascending numbers of the hits that stay.
        """
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


@dataclass(frozen=True, slots=True)
class PageFilling:
    """What to place on a page.

    Attributes:
        slots: The placements.
        rules: Which ads the page forbids.
        now: Seconds since 1970.
        per_advertiser: Most ads of one advertiser on the page.
        counting: Count the ads left out.
        ledger: What ads have spent; None: budgets are not looked at.
        seen: How often the person has seen ads, by their ids.
        masks: What rules forbid; shared by all pages of a worker.
        valuation: Ranks by value; None: documents rank by score.
    """

    slots: Sequence[Slot]
    rules: AdRules
    now: float
    per_advertiser: int = 1
    counting: bool = False
    ledger: Ledger | None = None
    seen: Mapping[str, int] = field(default_factory=dict)
    masks: RuleMasks = field(default_factory=RuleMasks)
    valuation: Valuation | None = None

    @property
    def conditions(self) -> Conditions:
        """What decides whether an ad may be on the page."""
        return Conditions(self.rules, self.now, self.seen)

    def steps(self, *, has_ads: bool, is_reordered: bool = False) -> Steps[Placed]:
        """Return the loop that fills the placements; arguments as of ``place``."""
        return place(
            self.slots,
            self.per_advertiser,
            self.valuation,
            has_ads=has_ads,
            is_reordered=is_reordered,
        )

    def filled(
        self,
        placed: Placed,
        left_out: dict[str, int] | None = None,
        left_out_of: list[dict[str, int]] | None = None,
    ) -> Filled:
        """Return a page, with the counts of ads left out if these were asked for."""
        return Filled(
            placed.hits,
            placed.ads,
            placed.counts,
            left_out or {},
            left_out_of or [{} for _ in self.slots],
            placed.values,
        )

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
        eligible = Eligible(view, deleted, self.conditions, self.ledger, self.masks)
        steps = self.steps(has_ads=has_ads(view), is_reordered=is_reordered)
        try:
            wanted = next(steps)
            while True:
                wanted = steps.send(candidates(eligible, search, wanted))
        except StopIteration as ended:
            placed: Placed = ended.value
        if not self.counting:
            return self.filled(placed)
        ids = [hit.id for hit in placed.hits.hits]
        of_slots = [eligible.left_out_of(slot.floor) for slot in self.slots]
        return self.filled(placed, eligible.left_out(ids, placed.full), of_slots)


def candidates(eligible: Eligible, search: Search, wanted: Wanted) -> Candidates:
    """Search the documents that may be on a page for what its filling wants."""
    excluded = eligible.excluding(wanted.placed, wanted.full, wanted.floor)
    hits = search(wanted.limit, excluded)
    dearest = eligible.dearest(excluded) if wanted.is_valued else 0.0
    return Candidates(hits, ads_of(hits.hits), dearest)
