"""From a text to ranked documents.

The event loop looks up the embedding of the text. A thread of a bounded pool, or the event loop itself for a short
search (mode_policy.py), encodes the text if need be, ranks, explains, and reads stored fields. All parts of one answer
come from the one view that the search was given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from time import thread_time
from typing import Any

import numpy as np
import orjson

from fullrank.encoding import Encoded
from fullrank.filters.columns import Columns
from fullrank.filters.facets import facet_over
from fullrank.filters.ranges import Range, range_counts
from fullrank.highlight import Highlight
from fullrank.live import View
from fullrank.live.hits import Hits, LiveHit
from fullrank.models.widening import widen
from fullrank.ordering.order import Order, Ordering
from fullrank.rerank.stage import SecondStage
from fullrank.retrieval import Floor
from fullrank.rules.synonyms import Replaced, features_of
from fullrank.scoring import TermShare
from service.ads.filling import Filled, PageFilling
from service.search.caching.bitmaps import Bitmaps, Mask
from service.search.caching.cache import EmbeddingCache, Key
from service.search.highlighting import check_highlight, highlighted
from service.search.mode_policy import SearchModePolicy
from service.search.paging import After, page_after
from service.search.restricting import Restriction, matching_documents
from service.telemetry.metrics import Metrics
from service.telemetry.stages import Stages

# Limits of a plain search: documents, and characters of the query.
_MAX_PLAIN_HITS, _MAX_PLAIN_CHARS = 100, 256


@dataclass(frozen=True, slots=True)
class RankRequest:
    """What to rank, and what to return.

    fields       stored fields of each hit; None: all
    exclude      ids of documents that must not be returned; unknown ids are ignored
    filter       JSON of fullrank.filters.query; filter_path is its name in errors
    mode         "exact", "fast" where the bundle has that mode, or "auto" (mode_policy.py)
    is_document  the text is a document or a page, not something that a person typed
    facets       fields whose values are counted in the documents that are found, facet_limit values of each
    after        begin after this hit, in place of the offset; then the order is that of the score alone
    facet_ranges ranges by field, whose documents are counted too
    min_score    the score that a hit must reach, in place of the evidence that the bundle asks for
    filling      the placements of a page, which get the hits; None: the hits are one list
    ordering     the order of the hits; None: by score
    highlight    what to mark in the hits
    prefix       what comes before the names of fields in errors
    restrictions filters of rules, besides the own one; one that does not fit the fields is left out
    by_prefix    the last word also matches words that begin with it (fullrank.complete.prefixes)
    synonyms     texts whose lexical features the query gains (fullrank.rules.synonyms)
    only         rank these documents alone; unknown ids are ignored
    pinned       ids that stand at places of their own: not ranked, but counted in facets
    """

    text: str
    limit: int
    offset: int = 0
    fields: Collection[str] | None = None
    explain: bool = False
    exclude: Collection[str] = ()
    filter: Mapping[str, Any] | None = None
    filter_path: str = "filter"
    mode: str = "auto"
    is_document: bool = False
    facets: Sequence[str] = ()
    facet_limit: int = 10
    after: After | None = None
    facet_ranges: Sequence[tuple[str, Sequence[Range]]] = ()
    min_score: float | None = None
    restrictions: Sequence[Restriction] = ()
    by_prefix: bool = False
    synonyms: Sequence[Replaced] = ()
    only: Collection[str] | None = None
    pinned: Collection[str] = ()
    filling: PageFilling | None = None
    ordering: Ordering | None = None
    highlight: Highlight | None = None
    prefix: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether it is a short query for the first hits and nothing else; such searches take similar times."""
        is_filtered = self.filter is not None or bool(self.exclude)
        has_extras = is_filtered or self.explain or self.facets or self.filling is not None
        has_extras = (
            has_extras
            or self.min_score is not None
            or bool(self.facet_ranges)
            or self.after is not None
        )
        is_ruled = self.restrictions or self.synonyms or self.pinned or self.only is not None
        has_extras = has_extras or self.highlight is not None or self.ordering is not None
        is_small = self.offset + self.limit <= _MAX_PLAIN_HITS
        return not has_extras and not is_ruled and is_small and len(self.text) <= _MAX_PLAIN_CHARS


@dataclass(frozen=True, slots=True)
class Ranked:
    """The answer: hits in order and facets by field, ready for JSON.

    certified  the hits are provably the top of the full ranking, before a second stage reordered it
    total      number of documents that are found
    is_total   whether these are all; otherwise they are at least so many
    mode       "exact" or "fast"
    reordered  number of the first documents that a second stage reordered
    following  where the next page begins, after a request with `after`; None: there is no other
    facet_ranges  how many documents of each range, by field
    filled     how the hits fill the placements of a page
    """

    hits: list[dict[str, Any]]
    certified: bool
    total: int
    is_total: bool
    facets: dict[str, Any]
    mode: str
    reordered: int
    filled: Filled | None = None
    following: After | None = None
    facet_ranges: dict[str, Any] = field(default_factory=dict)


class Ranker:
    """Ranks on a pool of threads, behind the embedding cache.

    Args:
        cache: embeddings of texts.
        metrics: counts searches and the time of their stages.
        bitmaps: results of filters.
        policy: chooses mode and thread.
        threads: size of the pool.
        searched: called with the stages of each search.
    """

    def __init__(
        self,
        cache: EmbeddingCache,
        metrics: Metrics,
        bitmaps: Bitmaps,
        policy: SearchModePolicy,
        *,
        threads: int = 2,
        searched: Callable[[Stages], None] | None = None,
    ) -> None:
        self._cache = cache
        self._metrics = metrics
        self._searched = searched
        self._bitmaps = bitmaps
        self._policy = policy
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rank")

    async def rank(self, view: View, request: RankRequest) -> Ranked:
        """Rank the documents of a view for a text. If the caller is cancelled, a ranking that waits never starts.

        Raises:
            FilterError: filter or facets do not fit the fields.
        """
        stages = Stages()
        key = cached = None
        if self._cache.on:
            model = view.model
            key = Key.of(view.bundle.bundle_id, request.text, model.n_dense, model.n_sparse)
            cached = await self._cache.get(key)
            stages.done("cache")
        mode = self._policy.mode(view.bundle, request.mode)
        work = partial(rank_view, view, request, mode, cached, self._bitmaps, self._policy, stages)
        if request.is_plain and self._policy.fits_event_loop(view.bundle, mode):
            encoded, ranked = work()
        else:
            loop = asyncio.get_running_loop()
            encoded, ranked = await loop.run_in_executor(self._pool, work)
        if request.only is None:  # else a part of another search
            self._metrics.search(stages, ranked.mode, ranked.certified)
            if self._searched is not None:
                self._searched(stages)
            if not ranked.hits and not request.offset:
                self._metrics.zero_results.inc()
        if key is not None and cached is None:
            self._cache.put(key, encoded, stages.seconds["encode"])
        return ranked

    async def close(self) -> None:
        """Wait for running searches, cancel waiting ones, close the cache."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        await self._cache.close()


def rank_view(
    view: View,
    request: RankRequest,
    mode: str,
    cached: Encoded | None,
    bitmaps: Bitmaps,
    policy: SearchModePolicy,
    stages: Stages,
) -> tuple[Encoded, Ranked]:
    stages.done("wait")
    began = thread_time()
    # Filters first, because they can be refused.
    matching = matching_documents(
        view, bitmaps, request.filter, request.filter_path, request.restrictions, request.only
    )
    if request.highlight is not None:
        check_highlight(view.columns[0], request.highlight, f"{request.prefix}highlight")
    order = None
    if request.ordering is not None and request.only is None:
        order = Order(view, request.ordering, request.prefix)
    deleted = view.deleted(matching, [*request.exclude, *request.pinned])
    if matching is not None or request.exclude:
        stages.done("filter")
    encoded = cached
    if encoded is None:
        encoded = view.model.encode_queries([request.text])
        stages.done("encode")
    additions = features_of(view.model, request.synonyms)
    if request.by_prefix:
        additions += view.bundle.prefixes.of(request.text)
    query = widen(encoded, additions)
    floor = _floor(view, request)
    facets = {}
    counted = request.only is None and (request.facets or request.facet_ranges)
    if floor is not None and (counted or order is not None):
        # Who counts values, or orders by others than scores, needs to know every document that is found.
        deleted, floor = view.below(query.encoded, floor, deleted), None
    ranges: dict[str, Any] = {}
    if counted:
        counts = _counted(view, view.without(deleted, request.pinned))
        facets, ranges = _facets(counts, request), _ranges(counts, request)
        stages.done("facets")
    # Once for all hits.
    terms = None
    if request.explain:
        terms = [*view.model.query_terms(request.text), *query.terms]
    stage = view.bundle.second_stage
    # Trees that were trained on short queries have seen nothing like a document as a query.
    fits = stage is not None and (stage.of_documents or not request.is_document)
    fits = fits and request.only is None and request.after is None
    text = request.text if fits else None

    def first(limit: int) -> Hits:
        """Search for the best documents by score, boosted or not."""
        if order is not None:
            return order.search(query.encoded, slice(limit), deleted=deleted, mode="exact")
        return view.search(query.encoded, limit, deleted=deleted, floor=floor)

    def search(limit: int, deleted: Sequence[Mask | None]) -> Hits:
        if order is not None:
            page = slice(request.offset, request.offset + limit)
            return order.search(query.encoded, page, deleted=deleted, mode=mode, text=text)
        return view.search(
            query.encoded,
            limit,
            offset=request.offset,
            deleted=deleted,
            mode=mode,
            text=text,
            floor=floor,
            is_counted=request.filling is None,
        )

    filled = following = None
    if request.after is not None:
        found, following = page_after(first, request.after, request.limit)
    elif request.filling is None:
        found = search(request.limit, deleted)
    else:
        filled = request.filling.fill(view, search, deleted, is_reordered=text is not None)
        found = filled.hits
    ranking_s = stages.done("rank")
    hits = [
        {
            "id": hit.id,
            "score": hit.score,
            "fields": _fields(hit, request.fields),
            "explanation": None if terms is None else _explained(terms, query.encoded, hit, stage),
            "rule": None,
            "highlight": None,
        }
        for hit in found.hits
    ]
    if request.highlight is not None:
        snippets = highlighted(view, request.text, query.encoded, found.hits, request.highlight)
        for hit, snippet in zip(hits, snippets, strict=True):
            hit["highlight"] = snippet
    stages.done("fields")
    if mode == "exact" and request.only is None and order is None:
        policy.observe_exact(view.bundle, ranking_s)
    if request.is_plain:
        policy.observe_plain(view.bundle, mode, thread_time() - began)
    return encoded, Ranked(
        hits, found.certified, found.total, found.is_total, facets, mode, found.reordered, filled,
        following, ranges,
    )  # fmt: skip


def _floor(view: View, request: RankRequest) -> Floor | None:
    """Return what a document must reach to be found; None: every document is found."""
    if request.only is not None:
        return None
    if request.min_score is not None:
        return Floor(score=request.min_score)
    return view.bundle.floor


def _counted(view: View, deleted: Sequence[Mask | None]) -> list[tuple[Columns, Mask]]:
    """Return the columns of each part, and which documents to count."""
    return [
        (columns, np.ones(columns.documents, np.bool_) if mask is None else ~mask)
        for columns, mask in zip(view.columns, deleted, strict=True)
    ]


def _ranges(parts: Sequence[tuple[Columns, Mask]], request: RankRequest) -> dict[str, Any]:
    counted = {}
    for name, ranges in request.facet_ranges:
        counts = range_counts(parts, name, ranges, f"{request.prefix}facet_ranges.{name}")
        counted[name] = [
            {"from": own.start, "to": own.stop, "count": count}
            for own, count in zip(ranges, counts, strict=True)
        ]
    return counted


def _facets(parts: Sequence[tuple[Columns, Mask]], request: RankRequest) -> dict[str, Any]:
    counted: dict[str, Any] = {}
    for place, name in enumerate(request.facets):
        found = facet_over(parts, name, request.facet_limit, f"facets.{place}")
        counted[name] = {
            "values": [{"value": v.value, "count": v.count} for v in found.values],
            "distinct": found.distinct,
            "missing": found.missing,
            "min": found.minimum,
            "max": found.maximum,
        }
    return counted


def _fields(hit: LiveHit, names: Collection[str] | None) -> dict[str, Any] | orjson.Fragment:
    """Return the requested stored fields of a hit; all of them are copied into the answer as they are stored."""
    if names is None:
        return orjson.Fragment(hit.part.store.json(hit.row))
    fields = hit.part.store.fields(hit.row)
    return {name: value for name, value in fields.items() if name in names}


def _explained(
    terms: Sequence[TermShare], query: Encoded, hit: LiveHit, stage: SecondStage | None
) -> dict[str, Any]:
    found = hit.part.explain(terms, query, hit.row)
    return {
        # The parts of the ranking itself: they add up to the score to the last digit.
        "dense": hit.dense,
        "lexical": hit.lexical,
        "bias": hit.bias,
        "boost": hit.boost,
        "words": [
            {"word": word.word, "dense": float(word.dense), "lexical": float(word.lexical)}
            for word in found.words
        ],
        "second_stage": _second_score(hit, stage),
    }


def _second_score(hit: LiveHit, stage: SecondStage | None) -> dict[str, Any] | None:
    """Split the score that reordered a hit; None if it was not reordered."""
    if stage is None or hit.features is None:
        return None
    found = stage.explain(hit.features)
    features = [feature._asdict() for feature in found.features]
    return {"score": found.score, "base": found.base, "features": features}
