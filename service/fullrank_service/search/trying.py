"""Rank with the active version, with two interleaved, or with a small deviation from the active one.

A person who asks the same again sees the same list while an experiment lasts, so that its pages fit together. Lists of
people who are not named are interleaved on the first page only.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from random import Random, random
from typing import Any

from fullrank.errors import FilterError
from fullrank.experiment.interleave import CANDIDATE, DEPTH, explore, interleave
from fullrank.live import View
from fullrank_service.base.errors import DocumentsMissing
from fullrank_service.base.experiment import Experiment
from fullrank_service.documents.live import Documents
from fullrank_service.events.shown import Tried
from fullrank_service.http.serving import RequestModel
from fullrank_service.search.ranker import Ranker
from fullrank_service.search.request import Ranked, RankRequest

_DAY_S = 86_400


class Trying:
    """Ranks, and tries other documents on some of the lists.

    Args:
        ranker: Ranks.
        live: Gives the view of a candidate.
        explored: Share of lists that are explored, in each of two ways.
    """

    def __init__(self, ranker: Ranker, live: Documents, explored: float) -> None:
        self._ranker = ranker
        self._live = live
        self._explored = explored

    async def rank(
        self,
        serving: RequestModel,
        view: View,
        request: RankRequest,
        person: str | None,
        min_seq: int,
    ) -> Ranked:
        """Rank a search that names no model.

        Args:
            serving: The generation that answers.
            view: Of its active version.
            request: The search.
            person: Who asks, if known.
            min_seq: Write that both versions must have seen.

        Raises:
            FilterError: Filter or facets do not fit the fields.
        """
        experiment = serving.serving.experiment
        if experiment is not None:
            coin = _coin(experiment, request, person)
            if coin is not None:
                # These lists are longer than the page, which may fit FULLRANK_MAX_ANSWER_BYTES alone.
                with suppress(FilterError):
                    return await self._interleaved(
                        serving, view, request, experiment, coin, min_seq
                    )
        is_sorted = request.ordering is not None and bool(request.ordering.sort)
        if not (request.offset or is_sorted) and random() < 2 * self._explored:
            with suppress(FilterError):
                return await self._explore(view, request)
        return await self._ranker.rank(view, request)

    async def _interleaved(
        self,
        serving: RequestModel,
        view: View,
        request: RankRequest,
        experiment: Experiment,
        coin: Random,
        min_seq: int,
    ) -> Ranked:
        if serving.slot is not None:
            serving.slot.set_cost(
                serving.slot.cost + 1
            )  # two rankings for this search of the batch
        count = request.offset + request.limit
        whole = replace(request, limit=count, offset=0)
        candidate = await self._live.view(serving.serving.models[experiment.candidate], min_seq)
        a = await self._ranker.rank(view, whole)
        try:
            b = await self._ranker.rank(candidate, replace(whole, facets=(), facet_ranges=()))
        except DocumentsMissing:
            # Of a fleet: shards that were started again have the active version first.
            return replace(a, hits=a.hits[request.offset :])
        rankings = [[hit["id"] for hit in ranked.hits] for ranked in (a, b)]
        picks = interleave(rankings[0], rankings[1], count, coin)[request.offset :]
        hits = [(b if pick.team == CANDIDATE else a).hits[pick.rank] for pick in picks]
        return replace(
            a,
            hits=hits,
            certified=a.certified and b.certified,
            reordered=max(a.reordered, b.reordered),
            covered=min(a.covered, b.covered),
            tried=Tried(experiment.candidate, "".join(pick.team for pick in picks)),
        )

    async def _explore(self, view: View, request: RankRequest) -> Ranked:
        deep = replace(request, limit=max(request.limit, DEPTH), with_clicks=True)
        ranked = await self._ranker.rank(view, deep)
        ids = [hit["id"] for hit in ranked.hits]
        clicked = {hit["id"] for hit in ranked.hits if _is_clicked(hit["explanation"])}
        # This list was chosen already; each of the two ways is as likely.
        coin = Random(random())
        found = explore(ids, 0.5, coin, view.is_live, shown=request.limit, clicked=clicked)
        tried = Tried(pair=found.pair, swapped=found.swapped, inserted=found.inserted)
        hits = [ranked.hits[place] for place in found.order]
        if not request.explain:
            hits = [{**hit, "explanation": None} for hit in hits]
        return replace(ranked, hits=hits, tried=tried)


def _is_clicked(explanation: Mapping[str, Any] | None) -> bool:
    """Return whether people clicked a hit after this query."""
    clicks = None if explanation is None else explanation["clicks"]
    return clicks is not None and clicks["after_query"] > 0


def _coin(experiment: Experiment, request: RankRequest, person: str | None) -> Random | None:
    """Return the coin of a list that is interleaved, None of others."""
    if time.time() > experiment.started + experiment.max_days * _DAY_S:
        return None
    if person is None:
        chosen = not request.offset and random() < experiment.share
        return Random(random()) if chosen else None
    key = "\0".join((experiment.candidate, str(experiment.started), person, request.text))
    seed = int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest())
    # The low half decides whether, the rest decides how.
    chosen = (seed & (1 << 64) - 1) < experiment.share * (1 << 64)
    return Random(seed >> 64) if chosen else None
