"""What one open shard of a set answers: the ordinary search of its bundle, up to where answers are merged."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import orjson

from fleet.serving.columns import view_in_set
from fleet.serving.wire import (
    Describe,
    Found,
    Question,
    Rank,
    Read,
    Scored,
    Show,
    Shown,
)
from fleet.sets import SetManifest
from fullrank.bundle import Bundle
from fullrank.encoding import Encoded
from fullrank.errors import FilterError
from fullrank.filters.facets import FacetCounts, counted
from fullrank.filters.ranges import range_counts
from fullrank.live import View
from fullrank.live.gather import Selection
from fullrank.live.hits import Hits, LiveHit
from fullrank.live.segments import gather_in_model_features
from fullrank.models.widening import Widened
from service.search.caching.bitmaps import Bitmaps
from service.search.counting import columns_to_count
from service.search.mode_policy import SearchModePolicy
from service.search.presenting import shown
from service.search.request import RankRequest
from service.search.searching import Search, check

MAX_FACET_VALUES = 100_000
"""Most values of a facet in one shard: all of them go to the router."""


class OpenShard:
    """The open bundle of a shard in one set.

    Args:
        bundle: The bundle.
        manifest: Of the set.
        bitmaps: Results of filters.
        policy: Chooses the mode of a search.
    """

    def __init__(
        self, bundle: Bundle, manifest: SetManifest, bitmaps: Bitmaps, policy: SearchModePolicy
    ) -> None:
        self.manifest = manifest
        self._bundle, self._bitmaps, self._policy = bundle, bitmaps, policy

    def answer(self, question: Question) -> Any:
        """Return the content of an answer. Raises FilterError."""
        match question:
            case Rank():
                return self._rank(question)
            case Show():
                return self._show(question)
            case Describe():
                return self._describe(question)
            case Read(id):
                try:
                    return self._plain.fields(id)
                except KeyError:
                    return None

    @cached_property
    def _plain(self) -> View:
        return View.of(self._bundle)

    @cached_property
    def _view(self) -> View:
        return view_in_set(self._bundle, self.manifest)

    def _rank(self, asked: Rank) -> Found:
        view, request = self._view, asked.request
        mode = self._policy.mode(view.bundle, request.mode)
        checked = check(view, request, self._bitmaps)
        search = Search.of(view, request, mode, asked.query, checked)
        facets, ranges = _counts(search) if request.is_counted else ((), {})
        began = time.perf_counter()
        found, is_all = _first(search)
        if mode == "exact" and request.only is None and search.order is None:
            self._policy.observe_exact(view.bundle, time.perf_counter() - began)
        hits, order = found.hits, search.order
        is_grouped = request.ordering is not None and request.ordering.group_by is not None
        return Found(
            _scored(hits),
            [hit.keys or () for hit in hits] if hits and hits[0].keys is not None else None,
            [order.groups_of(hit) for hit in hits] if order is not None and is_grouped else None,
            is_all,
            found.certified,
            found.total,
            found.is_total,
            mode,
            facets,
            ranges,
            _shown(view, request, Widened(asked.query, []), hits) if asked.is_shown else None,
        )

    def _show(self, asked: Show) -> list[Shown]:
        hits = []
        for id, scores in zip(asked.hits.ids, asked.hits.scores.tolist(), strict=True):
            part, row = self._plain.find(id)
            hits.append(LiveHit(part, row, id, *scores))
        query = Widened(asked.query, list(asked.terms))
        return _shown(self._plain, asked.request, query, hits)

    def _describe(self, asked: Describe) -> Encoded:
        rows = [(0, self._plain.find(id)[1]) for id in asked.ids]
        selected = Selection.of(rows)
        return gather_in_model_features(self._plain.parts, selected, asked.width)


def _first(search: Search) -> tuple[Hits, bool]:
    """Return the first hits of a search, and whether there are no others."""
    request = search.request
    if search.order is not None and request.after is None:
        return search.order.first(
            search.query, request.limit, deleted=search.deleted, mode=search.mode
        )
    found, _, following = search.run()
    if request.after is not None:
        return found, following is None
    return found, len(found.hits) < request.limit


def _counts(search: Search) -> tuple[list[FacetCounts], dict[str, list[int]]]:
    """Return all values of the facets, and the counts of the ranges."""
    request = search.request
    [(columns, matching)] = parts = columns_to_count(search.view, search.counted)
    facets = []
    for place, name in enumerate(request.facets):
        found = counted(columns, name, matching, f"facets.{place}")
        if sum(map(len, found.values.values())) > MAX_FACET_VALUES:
            reason = (
                f"more than {MAX_FACET_VALUES:,} values in one shard, which a fleet does not count"
            )
            raise FilterError(f"facets.{place}", reason)
        facets.append(found)
    ranges = {
        name: range_counts(parts, name, own, f"{request.prefix}facet_ranges.{name}")
        for name, own in request.facet_ranges
    }
    return facets, ranges


def _scored(hits: Sequence[LiveHit]) -> Scored:
    scores = [(hit.score, hit.dense, hit.lexical, hit.bias, hit.boost) for hit in hits]
    return Scored([hit.id for hit in hits], np.array(scores, np.float64).reshape(-1, 5))


def _shown(
    view: View, request: RankRequest, query: Widened, hits: Sequence[LiveHit]
) -> list[Shown]:
    return [
        Shown(orjson.dumps(hit["fields"]), hit["explanation"], hit["highlight"])
        for hit in shown(view, request, query, hits)
    ]
