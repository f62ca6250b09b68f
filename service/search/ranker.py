"""From a text to ranked documents.

The event loop looks into the cache. What was not there is encoded, documents are ranked and explained and their stored
fields read by a thread of a bounded pool, or on the event loop itself where that is a matter of a moment (pace.py).
Every part of one answer comes from the one view it was given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import thread_time
from typing import Any

import numpy as np
import orjson

from fullrank.encoding import Encoded
from fullrank.facets import facet_over
from fullrank.live import View
from fullrank.live.view import Hit
from fullrank.model import TermShare
from service.caching.bitmaps import Bitmaps, Mask
from service.pace import Pace
from service.search.caching.cache import EmbeddingCache, Key
from service.telemetry.metrics import Metrics
from service.telemetry.stages import Stages

# Of a plain search: the most documents asked for, and the longest query, in characters.
_FEW, _SHORT = 100, 256


@dataclass(frozen=True, slots=True)
class Wish:
    """What to rank and what to return of it.

    fields       stored fields of a hit; None: all of them
    exclude      document ids that must not be returned; unknown ones are ignored
    filter       JSON of fullrank.filters.query: what may be returned at all; filter_path is its name in errors
    mode         "exact", "fast" where the bundle has that mode, or "auto" (pace.py)
    facets       fields whose values are counted among what the filter lets through, facet_limit of each
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
    facets: Sequence[str] = ()
    facet_limit: int = 10

    @property
    def plain(self) -> bool:
        """A short query for the first few documents and nothing else: these take about as long as each other."""
        more = self.explain or self.exclude or self.facets or self.filter is not None
        return not more and self.offset + self.limit <= _FEW and len(self.text) <= _SHORT


@dataclass(frozen=True, slots=True)
class Ranked:
    """Hits in order and facets by field, ready for JSON.

    certified: provably the top of the full ranking; total: documents that could have been returned;
    mode: exact or fast.
    """

    hits: list[dict[str, Any]]
    certified: bool
    total: int
    facets: dict[str, Any]
    mode: str


class Ranker:
    """The pool and the cache in front of it."""

    def __init__(
        self,
        cache: EmbeddingCache,
        metrics: Metrics,
        bitmaps: Bitmaps,
        pace: Pace,
        *,
        threads: int = 2,
        searched: Callable[[Stages], None] | None = None,
    ) -> None:
        self._cache = cache
        self._metrics = metrics
        self._searched = searched
        self._bitmaps = bitmaps
        self._pace = pace
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rank")

    async def rank(self, view: View, wish: Wish) -> Ranked:
        """Rank the documents of a view for a text.

        Raises FilterError where filter or facets do not fit. Whoever asks has been admitted; a caller that is
        cancelled leaves nothing behind that has not begun.
        """
        stages = Stages()
        key = cached = None
        if self._cache.on:
            model = view.model
            key = Key.of(view.bundle.bundle_id, wish.text, model.n_dense, model.n_sparse)
            cached = await self._cache.get(key)
            stages.done("cache")
        mode = self._pace.mode(view.bundle, wish.mode)
        work = partial(_rank, view, wish, mode, cached, self._bitmaps, self._pace, stages)
        if wish.plain and self._pace.brief(view.bundle, mode):
            encoded, ranked = work()
        else:
            loop = asyncio.get_running_loop()
            encoded, ranked = await loop.run_in_executor(self._pool, work)
        self._metrics.search(stages)
        if self._searched is not None:
            self._searched(stages)
        self._metrics.searches.labels(ranked.mode, str(ranked.certified).lower()).inc()
        if not ranked.hits and not wish.offset:
            self._metrics.zero_results.inc()
        if key is not None and cached is None:
            self._cache.put(key, encoded, stages.seconds["encode"])
        return ranked

    async def close(self) -> None:
        """Finish what runs, drop what waits, let the cache go."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        await self._cache.close()


def _rank(
    view: View,
    wish: Wish,
    mode: str,
    cached: Encoded | None,
    bitmaps: Bitmaps,
    pace: Pace,
    stages: Stages,
) -> tuple[Encoded, Ranked]:
    stages.done("wait")
    began = thread_time()
    # First what can be refused.
    matching = None
    if wish.filter is not None:
        matching = [
            bitmaps.matching(key, columns, wish.filter, wish.filter_path)
            for key, columns in zip(view.keys, view.columns, strict=True)
        ]
    facets = _facets(view, wish, view.deleted(matching)) if wish.facets else {}
    deleted = view.deleted(matching, wish.exclude)
    if matching is not None or wish.exclude or facets:
        stages.done("filter")
    encoded = cached
    if encoded is None:
        encoded = view.model.encode_queries([wish.text])
        stages.done("encode")
    # Taken apart once, for all hits.
    terms = view.model.query_terms(wish.text) if wish.explain else None
    found = view.search(encoded, wish.limit, offset=wish.offset, deleted=deleted, mode=mode)
    took = stages.done("rank")
    hits = [
        {
            "id": hit.id,
            "score": hit.score,
            "fields": _fields(hit, wish.fields),
            "explanation": None if terms is None else _explained(terms, encoded, hit),
        }
        for hit in found.hits
    ]
    stages.done("fields")
    if mode == "exact":
        pace.observe(view.bundle, took)
    if wish.plain:
        pace.observe_plain(view.bundle, mode, thread_time() - began)
    return encoded, Ranked(hits, found.certified, found.total, facets, mode)


def _facets(view: View, wish: Wish, deleted: Sequence[Mask | None]) -> dict[str, Any]:
    parts = [
        (columns, np.ones(columns.documents, np.bool_) if mask is None else ~mask)
        for columns, mask in zip(view.columns, deleted, strict=True)
    ]
    counted: dict[str, Any] = {}
    for place, name in enumerate(wish.facets):
        found = facet_over(parts, name, wish.facet_limit, f"facets.{place}")
        counted[name] = {
            "values": [{"value": v.value, "count": v.count} for v in found.values],
            "distinct": found.distinct,
            "missing": found.missing,
            "min": found.least,
            "max": found.greatest,
        }
    return counted


def _fields(hit: Hit, names: Collection[str] | None) -> dict[str, Any] | orjson.Fragment:
    """The stored fields of a hit, those that are wanted; all of them are passed on as they are stored."""
    if names is None:
        return orjson.Fragment(hit.part.store.line(hit.row).rstrip())
    fields = hit.part.store.fields(hit.row)
    return {name: value for name, value in fields.items() if name in names}


def _explained(terms: Sequence[TermShare], query: Encoded, hit: Hit) -> dict[str, Any]:
    found = hit.part.explain(terms, query, hit.row)
    return {
        # The parts as they were ranked: they add up to the score to the last digit.
        "learned": hit.learned,
        "exact": hit.exact,
        "bias": hit.bias,
        "words": [
            {"word": word.word, "learned": float(word.learned), "exact": float(word.exact)}
            for word in found.words
        ],
    }
