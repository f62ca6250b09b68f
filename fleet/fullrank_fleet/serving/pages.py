"""Fill the placements of a page with documents of a set: the loop of one machine, whose searches the shards answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fullrank.ads.rules import sum_reasons
from fullrank.live import View
from fullrank.live.hits import Hits, LiveHit
from fullrank.rerank.stage import SecondStage
from fullrank_fleet.serving.asking import Asking
from fullrank_fleet.serving.columns import NewFields
from fullrank_fleet.serving.merge import Hit, Merged
from fullrank_fleet.serving.wire import CountAds, LedgerBehind, LeftOut, Page, Question
from fullrank_service.ads.eligible import has_ads
from fullrank_service.ads.filling import Filled, PageFilling
from fullrank_service.ads.placing import Candidates, Placed, Wanted
from fullrank_service.search.request import RankRequest

Rank = Callable[[Page, Wanted], Question]
"""Returns the question for the documents that a page lacks."""


class SetPage:
    """One page, filled with documents of a set.

    Args:
        view: Of the router.
        request: What is asked for.
        filling: The placements.
        asking: Asks the shards.
        stage: The second stage that reorders the first documents of each ranking; None: none does.
    """

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
        conditions = filling.conditions
        # A shard has no taxonomy.
        self._conditions = replace(conditions, rules=conditions.rules.expanded)
        self._hits: dict[str, Hit] = {}
        self.mode = "exact"
        """The mode: "fast" if a shard was."""

    async def fill(self, rank: Rank) -> tuple[Filled, list[Hit]]:
        """Fill the placements.

        Returns:
            The page, whose hits have no rows; and the same hits as shards gave them.
        """
        steps = self._filling.steps(
            has_ads=has_ads(self._view), is_reordered=self._stage is not None
        )
        try:
            wanted = next(steps)
            while True:
                wanted = steps.send(await self._candidates(rank, wanted))
        except StopIteration as ended:
            placed: Placed = ended.value
        filled = await self._filled(placed)
        return filled, [self._hits[hit.id] for hit in placed.hits.hits]

    async def _candidates(self, rank: Rank, wanted: Wanted) -> Candidates:
        """Return the first documents of all shards that may still be placed."""
        merged = Merged.of(await self._ask(lambda page: rank(page, wanted)), self._stage)
        if merged.mode == "fast":
            self.mode = "fast"
        places = merged.places[: wanted.limit]
        hits = []
        for place in places:
            hit = self._hits[place.id] = merged.hit(place)
            score, dense, lexical, bias, boost = hit.scores
            hits.append(LiveHit(self._view.base, -1, place.id, score, dense, lexical, bias, boost))
        total, is_total = merged.total(places, self._request, is_capped=False)
        return Candidates(
            Hits(hits, merged.is_certified, total, is_total, len(merged.features)),
            [merged.ad(place) for place in places],
            max((one.dearest for one in merged.found.values()), default=0.0),
        )

    async def _filled(self, placed: Placed) -> Filled:
        """Count the ads that are left out, if these are asked for."""
        if not self._filling.counting:
            return self._filling.filled(placed)
        ids = [hit.id for hit in placed.hits.hits]
        floors = [slot.floor for slot in self._filling.slots]
        request = replace(self._request, synonyms=(), filling=None)
        new = NewFields.of(self._view, request)
        found: dict[int, LeftOut] = await self._ask(
            lambda page: CountAds(request, page, ids, placed.full, floors, new)
        )
        of_slots = zip(*(one.placements for one in found.values()), strict=True)
        return self._filling.filled(
            placed,
            sum_reasons([one.page for one in found.values()]),
            [sum_reasons(own) for own in of_slots],
        )

    async def _ask(self, question: Callable[[Page], Question]) -> dict[int, Any]:
        """Ask all shards; those that lack changes of what ads have spent are asked again with these."""
        found = await self._asking.all(question(self._page()))
        # Another replica may answer then, so the last time all changes are sent.
        for is_last in (False, True):
            behind = {n: a.last for n, a in found.items() if isinstance(a, LedgerBehind)}
            lasts = {0} if is_last else set(behind.values())
            questions = {last: question(self._page(last)) for last in lasts}
            again = {n: questions[0 if is_last else last] for n, last in behind.items()}
            found |= await self._asking.each(again)
        return found

    def _page(self, after: int | None = None) -> Page:
        """Return the page for shards; after: the last change of what ads have spent that they have."""
        ledger = self._filling.ledger
        if ledger is None:
            return Page(self._conditions, None)
        now = self._conditions.now
        return Page(self._conditions, ledger.excerpt(self._view.bundle.name, now, after))
