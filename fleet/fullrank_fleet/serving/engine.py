"""Rank the documents of a set by asking its shards: the engine of a router.

1. check the request against the fields of the set, encode and widen the query: once, in the router
2. ask every shard for the first documents of its own ranking, and merge them
   where words are required, ask those again that chose others than all shards together
3. where more than scores decides the order, ask for what does: groups further down, encodings for diversity
   where the placements of a page are filled, ask for more candidates until they are
   where a second stage reorders the first documents of all, shards send what it reads (merge.py)
4. ask the shards that have the hits to show them, unless the answers of step 2 have them already
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fullrank.live import View
from fullrank.search.ordering import DEPTH, diverse_order, similarities
from fullrank.search.part import Query
from fullrank.search.rerank.stage import DEPTH as REORDERED
from fullrank.search.rerank.stage import SecondStage
from fullrank.search.searchable import Hit, Hits
from fullrank.storage.encoding import Encoded, concatenate
from fullrank_fleet.serving.asking import Asking, Patience
from fullrank_fleet.serving.fanout import ReplicatedShards
from fullrank_fleet.serving.head import Head, HeadView, NewFields
from fullrank_fleet.serving.merge import Merged, Place, SetHit, scored
from fullrank_fleet.serving.wire import (
    CountAds,
    Describe,
    Described,
    Found,
    LeftOut,
    Question,
    Rank,
    SentClicks,
    Show,
    Shown,
)
from fullrank_service.ads.filling import Conditions, PageFilling, has_ads
from fullrank_service.ads.placing import Candidates, Placed, Wanted
from fullrank_service.ads.rules import sum_reasons
from fullrank_service.base.tracing import Stages
from fullrank_service.search.clicks import ClickCounter
from fullrank_service.search.request import After, Ranked, RankRequest
from fullrank_service.search.restricting import Bitmaps
from fullrank_service.search.searching import analysed, check, counts_of

# Up to so many hits the shards show all that they find at once: that spares a second call, and costs the fields of
# hits that other shards beat.
_MOST_SHOWN_AT_ONCE = 10
# Where groups leave out too many hits, shards are asked for so many times as many.
_STEP = 8
# More hits are merged in a thread: 10,000 of each of 16 shards take half a second.
_MERGED_AT_ONCE = 2_000
# Bytes. Filters of sets are checked against no documents, so their results are empty.
_BITMAPS = 1 << 20


class SetEngine:
    """Ranks the documents of sets; without ``clicks``, new clicks wait for the next training."""

    def __init__(
        self,
        shards: ReplicatedShards,
        patience: Patience,
        threads: int = 2,
        clicks: ClickCounter | None = None,
    ) -> None:
        self._shards, self._patience, self._clicks = shards, patience, clicks
        self._bitmaps = Bitmaps(_BITMAPS)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="route")

    async def rank(
        self, view: View, request: RankRequest, cached: Encoded | None, stages: Stages
    ) -> tuple[Encoded, Ranked]:
        """Rank as ``fullrank_service.search.ranking.Engine``. Raises DocumentsMissing if a shard does not answer."""
        head = view.bundle
        assert isinstance(head, Head)
        assert isinstance(view, HeadView)
        clicks = None
        if self._clicks is not None and request.counts_clicks:
            clicks = self._clicks.of(head)
        asking = Asking(
            self._shards,
            head.set,
            self._patience,
            partial=request.asked.partial,
            min_seq=view.min_seq,
            clicks=None if clicks is None else SentClicks.of(clicks, request.text),
        )
        stages.done("wait")
        if request.is_plain:
            encoded, query = self._prepared(view, request, cached, stages)
        else:
            encoded, query = await asyncio.get_running_loop().run_in_executor(
                self._pool, self._prepared, view, request, cached, stages
            )
        search = _SetSearch(view, head, request, query, asking)
        return encoded, await search.run(stages)

    async def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._clicks is not None:
            await asyncio.to_thread(self._clicks.close)

    def _prepared(
        self, view: View, request: RankRequest, cached: Encoded | None, stages: Stages
    ) -> tuple[Encoded, Query]:
        checked = check(view, request, self._bitmaps)
        if request.is_counted:
            counts_of(view, request, checked.deleted)
        if checked.is_restricted:
            stages.done("filter")
        encoded = cached
        if encoded is None:
            encoded = view.analyzer.encode(request.text, is_document=request.is_document)
            stages.done("encode")
        return encoded, analysed(view, request, encoded)


@dataclass(frozen=True, slots=True)
class _SetSearch:
    view: View
    head: Head
    request: RankRequest
    query: Query
    asking: Asking

    async def run(self, stages: Stages) -> Ranked:
        request, ordering = self.request, self.request.ordering
        if request.filling is not None:
            return await self._filled(request.filling, stages)
        by_score = ordering is None or request.only is not None
        if by_score or ordering is None or not (ordering.group_by or ordering.diversity):
            merged = await self._merged(self._wanted)
            places = merged.places
        else:
            depth = max(self._wanted, DEPTH) if ordering.diversity else self._wanted
            merged, places = await self._grouped(depth)
            if ordering.diversity:
                places = await self._diverse(merged, places, ordering.diversity)
        following = None
        if request.after is not None:
            page = places[: request.limit]
            following = _following(request.after, merged, page)
        else:
            page = places[request.offset : request.offset + request.limit]
        stages.done("rank")
        hits = await self._shown([merged.hit(place) for place in page])
        stages.done("fields")
        is_capped = self.query.floor is not None and not request.is_counted and by_score
        total, is_total = merged.total(page, request, is_capped)
        covered = self.asking.covered
        return Ranked(
            [hit for hit in hits if hit is not None],
            merged.is_certified and covered == 1,
            total,
            is_total and covered == 1,
            merged.facets(request) if request.is_counted else {},
            merged.mode,
            len(merged.features),
            None,
            following,
            merged.ranges(request) if request.is_counted else {},
            covered,
        )

    @property
    def _stage(self) -> SecondStage | None:
        request = self.request
        # As on one machine: groups are read from the first place on, a page below the first hits alone is not.
        is_below = request.ordering is None and request.offset >= REORDERED
        fits = self.query.is_reordered and not is_below
        return self.head.second_stage if fits else None

    @property
    def _wanted(self) -> int:
        request = self.request
        return request.limit if request.after is not None else request.offset + request.limit

    async def _merged(self, depth: int, *, is_all: bool = False) -> Merged:
        """Return the first hits of every shard, merged; is_all: all that shards send, not only as many as each does."""
        asked = self._rank(depth)
        found: dict[int, Found] = await self.asking.all(asked)
        if asked.query.required is not None and found:
            chosen = {number: one.choice for number, one in found.items() if one.choice}
            choice = asked.query.required.together(chosen.values())
            again = replace(asked, choice=choice)
            others = [number for number, own in chosen.items() if own != choice]
            found |= await self.asking.each(dict.fromkeys(others, again))
            found = {n: one for n, one in found.items() if one.choice == choice}
        if not is_all:
            # One more shows whether there is a next page.
            return Merged.of(found, self._stage, max(depth, REORDERED) + 1)
        if sum(len(answer.hits.ids) for answer in found.values()) <= _MERGED_AT_ONCE:
            return Merged.of(found, self._stage)
        return await asyncio.to_thread(Merged.of, found, self._stage)

    def _rank(
        self, depth: int, page: Conditions | None = None, wanted: Wanted | None = None
    ) -> Rank:
        """Return the question for the first hits of a shard, or for those that a page lacks."""
        request, is_reordered = self.request, self._stage is not None
        if is_reordered:
            depth = max(depth, REORDERED)
            wanted = None if wanted is None else wanted._replace(limit=depth)
        is_light = not (request.asked.explain or request.asked.highlight or request.offset)
        return Rank(
            # Shards read neither what the router has read already, nor what they cannot send.
            replace(request, offset=0, limit=depth, synonyms=(), filling=None),
            replace(self.query, find_terms=list),
            is_light and depth <= _MOST_SHOWN_AT_ONCE,
            NewFields.of(self.view, request.compared),
            page,
            wanted,
            is_reordered,
        )

    async def _grouped(self, depth: int) -> tuple[Merged, list[Place]]:
        assert self.request.ordering is not None
        group_by = self.request.ordering.group_by
        asked = depth if self._stage is None else max(depth, REORDERED)
        while True:
            merged = await self._merged(asked, is_all=group_by is not None)
            if group_by is None:
                return merged, merged.places[:depth]
            kept, is_final = merged.kept(group_by.limit, depth)
            if is_final:
                return merged, kept
            asked *= _STEP

    async def _diverse(self, merged: Merged, places: list[Place], diversity: float) -> list[Place]:
        first = places[:DEPTH]
        if not first:
            return places
        width = self.query.sparse.width
        ids: dict[int, list[str]] = {}
        for place in first:
            ids.setdefault(place.shard, []).append(place.id)
        asked: dict[int, Question] = {number: Describe(own, width) for number, own in ids.items()}
        answers: dict[int, Described] = await self.asking.each(asked)
        places_of = {(place.shard, place.id): place for place in first}
        order = [places_of[number, id] for number, own in answers.items() for id in own.ids]
        row_of = {place: row for row, place in enumerate(order)}
        # Without documents of shards that are missing, or that were deleted meanwhile.
        first = [place for place in first if place in row_of]
        if not first:
            return places[DEPTH:]
        encoded = concatenate([own.encoded for own in answers.values()])
        encoded = encoded.take(np.array([row_of[place] for place in first], np.int64))
        scores = np.array([merged.scores(place)[0] for place in first])
        chosen = diverse_order(scores, similarities(encoded), diversity)
        return [first[place] for place in chosen.tolist()] + places[DEPTH:]

    async def _filled(self, filling: PageFilling, stages: Stages) -> Ranked:
        """Fill the placements of a page by the loop of one machine, whose searches the shards answer."""
        # A shard has no taxonomy.
        conditions = replace(filling.conditions, rules=filling.conditions.rules.expanded)
        has = self.head.set.has_ads or has_ads(self.view)
        steps = filling.steps(has_ads=has, is_reordered=self._stage is not None)
        hit_of: dict[str, SetHit] = {}
        modes = set[str]()
        try:
            wanted = next(steps)
            while True:
                asked = self._rank(wanted.limit, conditions, wanted)
                merged = Merged.of(await self.asking.all(asked), self._stage)
                modes.add(merged.mode)
                places = merged.places[: wanted.limit]
                hit_of |= {place.id: merged.hit(place) for place in places}
                wanted = steps.send(self._candidates(merged, places))
        except StopIteration as ended:
            filled: Placed = ended.value
        if filling.counting:
            filled = await self._counted(filling, conditions, filled)
        stages.done("rank")
        hits = await self._shown([hit_of[hit.id] for hit in filled.hits.hits])
        stages.done("fields")
        covered = self.asking.covered
        # A hit that is gone must not leave its place, and the price of its ad, to the next one.
        filled = filled.keeping([place for place, hit in enumerate(hits) if hit is not None])
        return Ranked(
            [hit for hit in hits if hit is not None],
            filled.hits.certified and covered == 1,
            filled.hits.total,
            filled.hits.is_total and covered == 1,
            {},
            "fast" if "fast" in modes else "exact",
            filled.hits.reordered,
            filled,
            covered=covered,
        )

    def _candidates(self, merged: Merged, places: Sequence[Place]) -> Candidates:
        hits = []
        for place in places:
            score, dense, lexical, bias, boost = merged.scores(place)
            hits.append(Hit(self.view.base, -1, place.id, score, dense, lexical, bias, boost))
        total, is_total = merged.total(places, self.request, is_capped=False)
        return Candidates(
            Hits(hits, merged.is_certified, total, is_total, len(merged.features)),
            [merged.ad(place) for place in places],
            max((one.dearest for one in merged.found.values()), default=0.0),
        )

    async def _counted(
        self, filling: PageFilling, conditions: Conditions, placed: Placed
    ) -> Placed:
        """Count the ads that are left out."""
        ids = [hit.id for hit in placed.hits.hits]
        floors = [slot.floor for slot in filling.slots]
        request = replace(self.request, synonyms=(), filling=None)
        new = NewFields.of(self.view, request.compared)
        asked = CountAds(request, conditions, ids, placed.full, floors, new)
        found: dict[int, LeftOut] = await self.asking.all(asked)
        of_slots = zip(*(one.placements for one in found.values()), strict=True)
        return replace(
            placed,
            left_out=sum_reasons([one.page for one in found.values()]),
            left_out_of=[sum_reasons(own) for own in of_slots],
        )

    async def _shown(self, hits: Sequence[SetHit]) -> list[dict[str, Any] | None]:
        """Return hits ready for JSON; None for one whose shard is missing by now, or that was deleted meanwhile."""
        rows = [row for row, hit in enumerate(hits) if hit.shown is None]
        wanted = [hits[row] for row in rows]
        request = replace(self.request, synonyms=(), filling=None)
        # Packing a question takes longer than sending each shard the ids of hits that others have.
        question = Show(request, self.query, scored(wanted))
        answers = await self.asking.each(dict.fromkeys({hit.shard for hit in wanted}, question))
        shown = [hit.shown for hit in hits]
        for place, row in enumerate(rows):
            if hits[row].shard in answers:
                shown[row] = answers[hits[row].shard][place]
        return [
            None if own is None else self._json(hit, own)
            for hit, own in zip(hits, shown, strict=True)
        ]

    def _json(self, hit: SetHit, shown: Shown) -> dict[str, Any]:
        found = shown.hit(hit.id, hit.scores[0])
        if found["explanation"] is not None:
            stage = self.head.second_stage
            if stage is not None and hit.features is not None:
                found["explanation"]["second_stage"] = stage.explain(hit.features).as_dict()
        return found


def _following(after: After, merged: Merged, page: Sequence[Place]) -> After | None:
    """Return where the next page of a ranking by score begins; None after the last one."""
    is_all = all(answer.is_all for answer in merged.found.values())
    if not page or (is_all and len(page) == len(merged.places)):
        return None
    return After(merged.scores(page[-1])[0], page[-1].id, after.place + len(page))
