"""From a text to ranked documents.

The event loop looks up the embedding of the text. A thread of a bounded pool, or the event loop itself for a short
search (mode_policy.py), does the rest (ranking.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from fullrank.live import View
from service.search.caching.bitmaps import Bitmaps
from service.search.caching.cache import EmbeddingCache, Key
from service.search.mode_policy import SearchModePolicy
from service.search.ranking import rank_view
from service.search.request import Ranked, RankRequest
from service.telemetry.metrics import Metrics
from service.telemetry.stages import Stages


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
