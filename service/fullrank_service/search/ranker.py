"""From a text to ranked documents: the embedding cache, then an engine; searches are counted and timed."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from fullrank.encoding import Encoded
from fullrank.live import View
from fullrank_service.base.metrics import Metrics
from fullrank_service.base.tracing import Stages
from fullrank_service.search.cache import EmbeddingCache, Key
from fullrank_service.search.request import Ranked, RankRequest
from fullrank_service.search.searching import can_match_any_word


class Engine(Protocol):
    """Ranks documents."""

    async def rank(
        self, view: View, request: RankRequest, cached: Encoded | None, stages: Stages
    ) -> tuple[Encoded, Ranked]:
        """Rank the documents of a view for a text; return the encoded text, too. If the caller is cancelled, work that
        waits never starts.

        Args:
            cached: The encoded text of the request; None: encode it.
            stages: The stopwatch.

        Raises:
            FilterError: A field of the request does not fit the stored fields.
        """

    async def close(self) -> None:
        """Wait for running searches, cancel waiting ones."""


class Ranker:
    """Ranks by an engine, behind the embedding cache; `searched` is called with the stages of each search."""

    def __init__(
        self,
        cache: EmbeddingCache,
        metrics: Metrics,
        engine: Engine,
        *,
        searched: Callable[[Stages], None] | None = None,
    ) -> None:
        self._cache = cache
        self._metrics = metrics
        self._engine = engine
        self._searched = searched

    async def rank(self, view: View, request: RankRequest) -> Ranked:
        """Rank as ``Engine.rank``."""
        stages = Stages()
        key = cached = None
        if self._cache.on:
            model = request.model(view)
            # A blend may weigh a document as a query otherwise than the same text typed.
            id = view.bundle.bundle_id + ("" if model is view.model else "/documents")
            key = Key.of(id, request.text, model.n_dense, model.n_sparse)
            cached = await self._cache.get(key)
            stages.done("cache")
        encoded, ranked = await self._engine.rank(view, request, cached, stages)
        # On a thread, because it may look up many words.
        if not ranked.hits and await to_thread(can_match_any_word, view, request):
            ranked = await self._by_any_word(view, request, ranked, encoded, stages)
        if request.only is None:  # else a part of another search
            self._metrics.search(stages, ranked.mode, ranked.certified)
            if self._searched is not None:
                self._searched(stages)
            if not ranked.hits and not request.offset:
                self._metrics.zero_results.inc()
        if key is not None and cached is None:
            self._cache.put(key, encoded, stages.seconds["encode"])
        return ranked

    async def _by_any_word(
        self, view: View, request: RankRequest, ranked: Ranked, encoded: Encoded, stages: Stages
    ) -> Ranked:
        """Rank again with less evidence if no document has enough, whatever filters and pages leave out."""
        found = ranked
        if request.offset or request.is_restricted:
            _, found = await self._engine.rank(view, request.unrestricted, encoded, stages)
        if found.hits:
            return ranked
        weaker = replace(request, by_any_word=True)
        return (await self._engine.rank(view, weaker, encoded, stages))[1]

    async def close(self) -> None:
        """Wait for running searches, cancel waiting ones, close the cache."""
        await self._engine.close()
        await self._cache.close()
