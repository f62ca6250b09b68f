"""Fill the placements of a page with documents of a set: the loop of one machine, whose searches the shards answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fullrank.live import View
from fullrank.rerank.stage import SecondStage
from fullrank.search.searchable import Hit, Hits
from fullrank_fleet.serving.asking import Asking
from fullrank_fleet.serving.head import Head, NewFields
from fullrank_fleet.serving.merge import Merged, SetHit
from fullrank_fleet.serving.wire import CountAds, LeftOut, Question
from fullrank_service.ads.filling import Conditions, PageFilling, has_ads
from fullrank_service.ads.placing import Candidates, Placed, Wanted
from fullrank_service.ads.rules import sum_reasons
from fullrank_service.search.request import RankRequest

Rank = Callable[[Conditions, Wanted], Question]
"""Returns the question for the documents that a page lacks."""


class SetPage:
    """One page, filled with documents of a set; ``stage`` reorders the first documents of each ranking."""

    def __init__(
        self,
        view: View,
        request: RankRequest,
        filling: PageFilling,
        asking: Asking,
        stage: SecondStage | None,
    ) -> None:
        self._view, self._request, self._filling, self._asking = view, request, filling, asking
        self._stage = stage
        head = view.bundle
        assert isinstance(head, Head)
        self._has_ads = head.set.has_ads or has_ads(view)
        conditions = filling.conditions
        # A shard has no taxonomy.
        self._conditions = replace(conditions, rules=conditions.rules.expanded)
        self._hits: dict[str, SetHit] = {}
        self.mode = "exact"
        """The mode: "fast" if a shard was."""

    async def fill(self, rank: Rank) -> tuple[Placed, list[SetHit]]:
        """Return the page, whose hits have no rows; and the same hits as shards gave them."""
        steps = self._filling.steps(has_ads=self._has_ads, is_reordered=self._stage is not None)
        try:
            wanted = next(steps)
            while True:
                wanted = steps.send(await self._candidates(rank, wanted))
        except StopIteration as ended:
            placed: Placed = ended.value
        filled = await self._counted(placed)
        return filled, [self._hits[hit.id] for hit in placed.hits.hits]

    async def _candidates(self, rank: Rank, wanted: Wanted) -> Candidates:
        merged = Merged.of(await self._asking.all(rank(self._conditions, wanted)), self._stage)
        if merged.mode == "fast":
            self.mode = "fast"
        places = merged.places[: wanted.limit]
        hits = []
        for place in places:
            hit = self._hits[place.id] = merged.hit(place)
            score, dense, lexical, bias, boost = hit.scores
            hits.append(Hit(self._view.base, -1, place.id, score, dense, lexical, bias, boost))
        total, is_total = merged.total(places, self._request, is_capped=False)
        return Candidates(
            Hits(hits, merged.is_certified, total, is_total, len(merged.features)),
            [merged.ad(place) for place in places],
            max((one.dearest for one in merged.found.values()), default=0.0),
        )

    async def _counted(self, placed: Placed) -> Placed:
        if not self._filling.counting:
            return placed
        ids = [hit.id for hit in placed.hits.hits]
        floors = [slot.floor for slot in self._filling.slots]
        request = replace(self._request, synonyms=(), filling=None)
        new = NewFields.of(self._view, request)
        asked = CountAds(request, self._conditions, ids, placed.full, floors, new)
        found: dict[int, LeftOut] = await self._asking.all(asked)
        of_slots = zip(*(one.placements for one in found.values()), strict=True)
        return replace(
            placed,
            left_out=sum_reasons([one.page for one in found.values()]),
            left_out_of=[sum_reasons(own) for own in of_slots],
        )
