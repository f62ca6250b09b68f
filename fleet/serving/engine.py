"""Rank the documents of a set by asking its shards: the engine of a router.

1. check the request against the fields of the set, encode and widen the query: once, in the router
2. ask every shard for the first documents of its own ranking, and merge them
3. where more than scores decides the order, ask for what does: groups further down, encodings for diversity
4. ask the shards that have the hits to show them, unless the answers of step 2 have them already
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fleet.serving.asking import Asking, Patience
from fleet.serving.columns import NewFields
from fleet.serving.head import Head, HeadView
from fleet.serving.merge import Merged, Place
from fleet.serving.transport import Shards
from fleet.serving.wire import Describe, Described, Question, Rank, Show, Shown
from fullrank.encoding import Encoded, concatenate
from fullrank.live import View
from fullrank.live.hits import Hits, LiveHit
from fullrank.models.widening import Widened
from fullrank.ordering.diversity import DEPTH, diverse_order, similarities
from service.ads.filling import Filled, PageFilling
from service.errors import NotSupported
from service.search.caching.bitmaps import Bitmaps
from service.search.counting import counts_of
from service.search.paging import After
from service.search.request import Ranked, RankRequest
from service.search.searching import check, floor_of, widened
from service.telemetry.stages import Stages

# Up to so many hits the shards show all that they find at once: that spares a second call, and costs the fields of
# hits that other shards beat.
_MOST_SHOWN_AT_ONCE = 10
# Where groups leave out too many hits, shards are asked for so many times as many.
_STEP = 8
# Bytes. Filters of sets are checked against no documents, so their results are empty.
_BITMAPS = 1 << 20


class SetEngine:
    """Ranks the documents of sets.

    Args:
        shards: Reaches the shards of a set.
        patience: How long to wait for them.
        threads: That check and encode long requests.
    """

    def __init__(self, shards: Shards, patience: Patience, threads: int = 2) -> None:
        self._shards, self._patience = shards, patience
        self._bitmaps = Bitmaps(_BITMAPS)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="route")

    async def rank(
        self, view: View, request: RankRequest, cached: Encoded | None, stages: Stages
    ) -> tuple[Encoded, Ranked]:
        """Rank; as ``service.search.engine.Engine`` describes, and:

        Raises:
            DocumentsMissing: A shard does not answer, and the request asks for all documents.
            NotSupported: A page is to be filled, and the documents have ads or are ranked by value.
        """
        head = view.bundle
        assert isinstance(head, Head)
        assert isinstance(view, HeadView)
        if request.filling is not None and view.has_ads:
            raise NotSupported("A fleet fills no placements where documents have ads.")
        if request.filling is not None and request.filling.valuation is not None:
            raise NotSupported("A fleet ranks nothing by value.")
        asking = Asking(
            self._shards,
            head.set,
            self._patience,
            partial=request.is_partial,
            min_seq=view.min_seq,
            at=view.at,
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
        """See Engine.close."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _prepared(
        self, view: View, request: RankRequest, cached: Encoded | None, stages: Stages
    ) -> tuple[Encoded, Widened]:
        """Check a request, and return its query: encoded, and widened. Raises FilterError."""
        checked = check(view, request, self._bitmaps)
        if request.is_counted:
            counts_of(view, request, checked.deleted)
        if checked.is_restricted:
            stages.done("filter")
        encoded = cached
        if encoded is None:
            encoded = view.model.encode_queries([request.text])
            stages.done("encode")
        return encoded, widened(view, request, encoded)


@dataclass(frozen=True, slots=True)
class _SetSearch:
    """One search over the shards of a set.

    Attributes:
        view: Of the head.
        head: What the router has of the set.
        request: What is asked for; it fits the fields of the set.
        query: Encoded and widened.
        asking: Asks the shards.
    """

    view: View
    head: Head
    request: RankRequest
    query: Widened
    asking: Asking

    async def run(self, stages: Stages) -> Ranked:
        """Rank, and show the hits."""
        request, ordering = self.request, self.request.ordering
        by_score = ordering is None or request.only is not None
        if by_score or ordering is None or not (ordering.group_by or ordering.diversity):
            merged = await self._merged(self._wanted)
            places = merged.places
        else:
            depth = max(self._wanted, DEPTH) if ordering.diversity else self._wanted
            merged, places = await self._grouped(depth)
            if ordering.diversity:
                places = await self._diverse(merged, places, ordering.diversity)
        filled = following = None
        if request.filling is not None:
            filled, page = self._filled(request.filling, merged, places)
        elif request.after is not None:
            page = places[: request.limit]
            following = _following(request.after, merged, page)
        else:
            page = places[request.offset : request.offset + request.limit]
        stages.done("rank")
        hits = await self._hits(merged, page)
        stages.done("fields")
        is_capped = floor_of(self.view, request) is not None and not request.is_counted and by_score
        total, is_total = merged.total(page, request, is_capped)
        covered = self.asking.covered
        return Ranked(
            hits,
            merged.is_certified and covered == 1,
            total,
            is_total and covered == 1,
            merged.facets(request) if request.is_counted else {},
            merged.mode,
            0,
            filled,
            following,
            merged.ranges(request) if request.is_counted else {},
            covered,
        )

    @property
    def _wanted(self) -> int:
        """How many of its first hits each shard must return."""
        request = self.request
        return request.limit if request.after is not None else request.offset + request.limit

    async def _merged(self, depth: int) -> Merged:
        """Return the first hits of every shard, merged."""
        request = self.request
        is_light = not (request.explain or request.highlight or request.offset)
        asked = Rank(
            # Shards read neither what the router has read already, nor what they cannot send.
            replace(
                request,
                offset=0,
                limit=depth,
                synonyms=(),
                by_prefix=False,
                filling=None,
            ),
            self.query.encoded,
            is_light and depth <= _MOST_SHOWN_AT_ONCE,
            floor_of(self.view, request),
            NewFields.of(self.view, request),
        )
        return Merged.of(await self.asking.all(asked))

    async def _grouped(self, depth: int) -> tuple[Merged, list[Place]]:
        """Return the first hits that their groups leave in."""
        assert self.request.ordering is not None
        group_by = self.request.ordering.group_by
        asked = depth
        while True:
            merged = await self._merged(asked)
            if group_by is None:
                return merged, merged.places[:depth]
            kept, is_final = merged.kept(group_by.limit, depth)
            if is_final:
                return merged, kept
            asked *= _STEP

    async def _diverse(self, merged: Merged, places: list[Place], diversity: float) -> list[Place]:
        """Put the first hits into the order of their variety."""
        first = places[:DEPTH]
        if not first:
            return places
        width = self.query.encoded.sparse.width
        asked: dict[int, Question] = {
            number: Describe(own.ids, width) for number, own in merged.by_shard(first).items()
        }
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

    def _filled(
        self, filling: PageFilling, merged: Merged, places: Sequence[Place]
    ) -> tuple[Filled, list[Place]]:
        """Fill placements in their order with the best documents that are left; none of them has an ad."""
        page: list[Place] = []
        counts = []
        for slot in filling.slots:
            best = places[len(page) : len(page) + slot.count]
            least = slot.min_score
            own = [p for p in best if least is None or merged.scores(p)[0] >= least]
            page += own
            counts.append(len(own))
        base = self.view.base
        hits = []
        for place in page:
            score, dense, lexical, bias, boost = merged.scores(place)
            hits.append(LiveHit(base, -1, place.id, score, dense, lexical, bias, boost))
        total, is_total = merged.total(page, self.request, is_capped=True)
        found = Hits(hits, merged.is_certified, total, is_total)
        return Filled(found, [None] * len(page), counts, {}, [{} for _ in filling.slots]), page

    async def _hits(self, merged: Merged, page: Sequence[Place]) -> list[dict[str, Any]]:
        """Return hits ready for JSON, without those of shards that are missing by now."""
        shown: dict[Place, Shown] = {}
        for place in page:
            own = merged.shown(place)
            if own is not None:
                shown[place] = own
        left = [place for place in page if place not in shown]
        request = replace(self.request, synonyms=(), filling=None)
        asked: dict[int, Question] = {
            number: Show(request, self.query.encoded, self.query.terms, own)
            for number, own in merged.by_shard(left).items()
        }
        for number, answers in (await self.asking.each(asked)).items():
            own_places = [place for place in left if place.shard == number]
            pairs = zip(own_places, answers, strict=True)
            # Without documents that were deleted meanwhile.
            shown |= {place: one for place, one in pairs if one is not None}
        return [
            shown[place].hit(place.id, merged.scores(place)[0]) for place in page if place in shown
        ]


def _following(after: After, merged: Merged, page: Sequence[Place]) -> After | None:
    """Return where the next page of a ranking by score begins; None after the last one."""
    is_all = all(answer.is_all for answer in merged.found.values())
    if not page or (is_all and len(page) == len(merged.places)):
        return None
    return After(merged.scores(page[-1])[0], page[-1].id, after.place + len(page))
