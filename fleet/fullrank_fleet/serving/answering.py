"""What one open shard of a set answers: the ordinary search of its bundle, up to where answers are merged."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import orjson

from fullrank.bundle import Bundle
from fullrank.errors import FilterError
from fullrank.filters.facets import FacetCounts, counted, range_counts
from fullrank.live import View
from fullrank.search.part import NewClicks, Query
from fullrank.search.rerank.stage import DEPTH
from fullrank.search.searchable import Hit, Hits, Selection, features_of, gather_in_model_features
from fullrank.storage.encoding import Float32
from fullrank_fleet.serving.head import NewFields, view_in_set
from fullrank_fleet.serving.wire import (
    Answer,
    Ask,
    Behind,
    CountAds,
    Describe,
    Described,
    Found,
    LacksClicks,
    LeftOut,
    Question,
    Rank,
    Read,
    Scored,
    SentClicks,
    Show,
    Shown,
)
from fullrank_fleet.sets.manifest import SetManifest
from fullrank_service.ads.filling import Eligible, RuleMasks, candidates
from fullrank_service.documents.ad import Ad, prepare_ads
from fullrank_service.documents.follow import Followed, Tail
from fullrank_service.documents.live import fields_of
from fullrank_service.search.presenting import shown
from fullrank_service.search.ranking import SearchModePolicy
from fullrank_service.search.request import RankRequest
from fullrank_service.search.restricting import Bitmaps
from fullrank_service.search.searching import Search, check, columns_to_count

# Counts of clicks that are kept, for several routers and searches that began before the last.
_MAX_CLICKS = 64
MAX_FACET_VALUES = 100_000
"""Most values of a facet in one shard: all of them go to the router."""


class OpenShard:
    """The open bundle of a shard in one set; without ``tail``, there is no log."""

    def __init__(
        self,
        bundle: Bundle,
        manifest: SetManifest,
        bitmaps: Bitmaps,
        policy: SearchModePolicy,
        tail: Tail | None = None,
    ) -> None:
        self.manifest = manifest
        self._bitmaps, self._policy, self._tail = bitmaps, policy, tail
        self._bundle = Followed(View.of(bundle), 0, 0)
        prepare_ads(self._bundle.view.parts)
        self._masks = RuleMasks()
        self._clicks: dict[str, NewClicks] = {}
        # Replaced, never changed: two threads may answer at once.
        self._in_set: tuple[View, NewFields, View] | None = None

    def reply(self, ask: Ask) -> Answer | Behind | LacksClicks:
        followed = self._followed
        if followed.seq < ask.min_seq:
            if self._tail is not None:
                self._tail.nudge(is_urgent=True)
            return Behind(followed.seq)
        view = followed.view
        question = ask.question
        if ask.clicks is not None and isinstance(question, Rank | Show):
            clicks = self._counted(ask.clicks, view.bundle)
            if clicks is None:
                return LacksClicks()
            question = replace(question, query=clicks.asked(question.query, ask.clicks.key))
        return Answer(ask.set_id, self._content(view, question), followed.seq)

    def _counted(self, sent: SentClicks, bundle: Bundle) -> NewClicks | None:
        """Return the clicks of a router; None if it must send those after any query."""
        found = self._clicks.get(sent.fingerprint)
        if found is None and sent.popular is not None:
            found = NewClicks.of(bundle.click_parts, ())
            assert found is not None  # the set has the model of the router, which counts clicks
            found = replace(found, of_document=sent.popular)
            kept = [*self._clicks.items()][1 - _MAX_CLICKS :]
            self._clicks = {**dict(kept), sent.fingerprint: found}
        if found is None or sent.key is None:
            return found
        return found.of_one(sent.key, sent.clicked)

    def close(self) -> None:
        if self._tail is not None:
            self._tail.close()

    @property
    def _followed(self) -> Followed:
        return self._bundle if self._tail is None else self._tail.views()[0]

    def _content(self, view: View, question: Question) -> Any:
        match question:
            case Rank():
                return self._rank(self._view_in_set(view, question.fields), question)
            case CountAds():
                return self._count_ads(self._view_in_set(view, question.fields), question)
            case Show():
                return _show(view, question)
            case Describe():
                return _describe(view, question)
            case Read(id, only, fields):
                filtered = view if only is None else self._view_in_set(view, fields)
                return fields_of(filtered, id, only)

    def _view_in_set(self, view: View, fields: NewFields) -> View:
        """Return a view with the fields of the set; most requests ask for the same as the one before."""
        found = self._in_set
        if found is None or found[0] is not view or found[1] != fields:
            self._in_set = found = view, fields, view_in_set(view, self.manifest, fields)
        return found[2]

    def _rank(self, view: View, asked: Rank) -> Found:
        request = asked.request
        mode = self._policy.mode(view.bundle, request.mode)
        checked = check(view, request, self._bitmaps)
        # The router reorders the hits of all shards.
        query = replace(asked.query, is_reordered=False)
        search = Search.of(view, request, mode, query, checked, asked.choice)
        facets, ranges = _counts(search) if request.is_counted else ((), {})
        began = time.perf_counter()
        ads: Sequence[Ad | None] = ()
        dearest = 0.0
        if asked.page is not None and asked.wanted is not None:
            eligible = Eligible(view, search.deleted, asked.page, self._masks)
            found, ads, dearest = candidates(eligible, search.uncounted, asked.wanted)
            is_all = len(found.hits) < asked.wanted.limit
        else:
            found, is_all = _first(search, DEPTH if asked.is_reordered else 0)
        if mode == "exact" and search.is_usual:
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
            _shown(view, request, asked.query, hits) if asked.is_shown else None,
            ads,
            dearest,
            _features(view, request.text, hits) if asked.is_reordered else None,
            search.choice,
        )

    def _count_ads(self, view: View, asked: CountAds) -> LeftOut:
        deleted = check(view, asked.request, self._bitmaps).deleted
        eligible = Eligible(view, deleted, asked.page, self._masks)
        return LeftOut(
            eligible.left_out(asked.placed, asked.full),
            [eligible.left_out_of(floor) for floor in asked.floors],
        )


def _show(view: View, asked: Show) -> list[Shown | None]:
    found = []
    for id, scores in zip(asked.hits.ids, asked.hits.scores.tolist(), strict=True):
        with suppress(KeyError):
            found.append(Hit(*view.find(id), id, *scores))
    shown = dict(
        zip([hit.id for hit in found], _shown(view, asked.request, asked.query, found), strict=True)
    )
    return [shown.get(id) for id in asked.hits.ids]


def _describe(view: View, asked: Describe) -> Described:
    number_of = {id(part): number for number, part in enumerate(view.parts)}
    ids, pairs = [], []
    for one in asked.ids:
        with suppress(KeyError):
            part, row = view.find(one)
            ids.append(one)
            pairs.append((number_of[id(part)], row))
    encoded = gather_in_model_features(view.parts, Selection.of(pairs), asked.width)
    return Described(ids, encoded)


def _features(view: View, text: str, hits: Sequence[Hit]) -> Float32 | None:
    stage = view.bundle.second_stage
    return None if stage is None else features_of(stage, text, view.parts, hits[:DEPTH])


def _first(search: Search, unordered: int) -> tuple[Hits, bool]:
    """Return the first hits of a search, and whether there are no others; unordered: as for ``Order.first``."""
    request = search.request
    if search.order is not None and request.after is None:
        return search.order.first(
            search.query,
            request.limit,
            deleted=search.deleted,
            mode=search.mode,
            unordered=unordered,
        )
    found, _, following = search.run()
    if request.after is not None:
        return found, following is None
    return found, len(found.hits) < request.limit


def _counts(search: Search) -> tuple[list[list[FacetCounts]], dict[str, list[int]]]:
    request = search.request
    parts = columns_to_count(search.view, search.counted)
    facets = []
    for place, name in enumerate(request.asked.facets):
        own_parts = parts if request.counts(name) else ()
        under = request.asked.facet_under.get(name)
        found = [
            counted(columns, name, own, f"facets.{place}", under) for columns, own in own_parts
        ]
        if sum(len(values) for one in found for values in one.values.values()) > MAX_FACET_VALUES:
            reason = (
                f"more than {MAX_FACET_VALUES:,} values in one shard, which a fleet does not count"
            )
            raise FilterError(f"facets.{place}", reason)
        facets.append(found)
    ranges = {
        name: range_counts(parts, name, own, f"facet_ranges.{name}")
        for name, own in request.asked.ranges.items()
        if request.counts(name)
    }
    return facets, ranges


def _scored(hits: Sequence[Hit]) -> Scored:
    scores = [(hit.score, hit.dense, hit.lexical, hit.bias, hit.boost) for hit in hits]
    return Scored([hit.id for hit in hits], np.array(scores, np.float64).reshape(-1, 5))


def _shown(view: View, request: RankRequest, query: Query, hits: Sequence[Hit]) -> list[Shown]:
    return [
        Shown(orjson.dumps(hit["fields"]), hit["explanation"], hit["highlight"])
        for hit in shown(view, request, query, hits)
    ]
