"""Rank the documents of one view for one request: filter, encode, count, search, show."""

from __future__ import annotations

import asyncio
from asyncio import to_thread
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random
from time import thread_time
from typing import Any, Protocol

from fullrank.bundle import Bundle
from fullrank.live import View
from fullrank.search.part import NewClicks
from fullrank.storage.encoding import Encoded
from fullrank_service.base.metrics import Metrics
from fullrank_service.base.tracing import Stages
from fullrank_service.search.cache import EmbeddingCache, Key
from fullrank_service.search.clicks import ClickCounter
from fullrank_service.search.presenting import shown
from fullrank_service.search.request import Ranked, RankRequest
from fullrank_service.search.restricting import Bitmaps
from fullrank_service.search.searching import Search, analysed, can_match_any_word, check, counts_of

# Choose the mode and the thread of a search from the time that searches of a bundle take.
#
# The policy keeps running means per bundle, m ← m + (t − m) / 16. If exact searches take longer than the budget,
# queries that leave the mode open run in the fast mode if the bundle has one, except every 64th. So the exact mode
# returns when the load falls or queries get shorter.
#
# Handing a search to another thread and back costs half a millisecond of processor time under load, because the
# threads compete for the interpreter lock. So a search that takes only a few times as long runs on the event loop,
# which it blocks meanwhile.
#
# To read the processor time of a thread is a system call, of up to 30 µs on a busy virtual machine. So it is measured
# for every search on another thread, and for a share of those on the event loop.

_WEIGHT = 1 / 16
_EXACT_TRIAL = 64
_MEASURED_SHARE = 1 / 8


class SearchModePolicy:
    """Chooses mode and thread of each search.

    Args:
        budget_s: longest mean time of an exact search.
        inline_s: longest mean time of a search on the event loop; 0: none runs there.
    """

    def __init__(self, budget_s: float, inline_s: float = 0.0) -> None:
        self._budget_s, self._inline_s = budget_s, inline_s
        self._exact = _RunningMeans()
        self._plain = _RunningMeans()
        self._auto_searches = count(1)
        self._drawn = Random()

    def mode(self, bundle: Bundle, requested: str) -> str:
        """Return "exact" or "fast", given "exact", "fast" or "auto"."""
        if requested != "auto":
            return requested
        if "fast" not in bundle.retriever.modes:
            return "exact"
        is_slow = self._exact.get(bundle.bundle_id, 0.0) > self._budget_s
        return "fast" if is_slow and next(self._auto_searches) % _EXACT_TRIAL else "exact"

    def fits_event_loop(self, bundle: Bundle, mode: str) -> bool:
        """Return whether a plain search in this mode is short enough; False before the first one was measured."""
        return self._plain.get(bundle.bundle_id + mode, self._inline_s) < self._inline_s

    def measures_plain(self, bundle: Bundle, mode: str) -> bool:
        """Return whether to measure a plain search in this mode. Drawn, so that no mode is always left out."""
        return not self.fits_event_loop(bundle, mode) or self._drawn.random() < _MEASURED_SHARE

    def observe_exact(self, bundle: Bundle, seconds: float) -> None:
        """Note the time of an exact ranking."""
        self._exact.observe(bundle.bundle_id, seconds)

    def observe_plain(self, bundle: Bundle, mode: str, seconds: float) -> None:
        """Note the processor time of a plain search, from its text to its fields."""
        self._plain.observe(bundle.bundle_id + mode, seconds)


class _RunningMeans(dict[str, float]):
    """Running means by key. Threads may overwrite each other's update; a lost update changes the mean only slightly."""

    def observe(self, key: str, seconds: float) -> None:
        mean = self.get(key, seconds)
        self[key] = mean + (seconds - mean) * _WEIGHT


def rank_view(
    view: View,
    request: RankRequest,
    mode: str,
    cached: Encoded | None,
    bitmaps: Bitmaps,
    policy: SearchModePolicy,
    stages: Stages,
    clicks: NewClicks | None = None,
) -> tuple[Encoded, Ranked]:
    """Rank documents as ``Engine.rank``, in the mode "exact" or "fast", with clicks that the bundle has not learned."""
    stages.done("wait")
    is_measured = request.is_plain and policy.measures_plain(view.bundle, mode)
    began = thread_time() if is_measured else 0.0
    # Check filters and fields first, so that an invalid request costs no ranking.
    checked = check(view, request, bitmaps)
    if checked.is_restricted:
        stages.done("filter")
    encoded = cached
    if encoded is None:
        encoded = view.analyzer.encode(request.text, is_document=request.is_document)
        stages.done("encode")
    query = analysed(view, request, encoded)
    if clicks is not None and request.counts_clicks:
        query = clicks.asked(query, clicks.key(request.text))
    search = Search.of(view, request, mode, query, checked)
    facets: dict[str, Any] = {}
    ranges: dict[str, Any] = {}
    if request.is_counted:
        facets, ranges = counts_of(view, request, search.counted)
        stages.done("facets")
    found, filled, following = search.run()
    ranking_s = stages.done("rank")
    hits = shown(view, request, query, found.hits)
    stages.done("fields")
    if mode == "exact" and search.is_usual:
        policy.observe_exact(view.bundle, ranking_s)
    if is_measured:
        policy.observe_plain(view.bundle, mode, thread_time() - began)
    return encoded, Ranked(
        hits, found.certified, found.total, found.is_total, facets, mode, found.reordered, filled,
        following, ranges,
    )  # fmt: skip


class LocalEngine:
    """Ranks the documents that this process has; without `clicks` these wait for the next training."""

    def __init__(
        self,
        bitmaps: Bitmaps,
        policy: SearchModePolicy,
        threads: int = 2,
        clicks: ClickCounter | None = None,
    ) -> None:
        self._bitmaps = bitmaps
        self._clicks = clicks
        self._policy = policy
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rank")

    async def rank(
        self, view: View, request: RankRequest, cached: Encoded | None, stages: Stages
    ) -> tuple[Encoded, Ranked]:
        mode = self._policy.mode(view.bundle, request.mode)
        clicks = None if self._clicks is None else self._clicks.of(view.bundle)
        work = partial(
            rank_view, view, request, mode, cached, self._bitmaps, self._policy, stages, clicks
        )
        if request.is_plain and self._policy.fits_event_loop(view.bundle, mode):
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def close(self) -> None:
        # Waiting would block the event loop, and no request needs the searches that still run.
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._clicks is not None:
            await asyncio.to_thread(self._clicks.close)


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
        if not ranked.hits and await to_thread(can_match_any_word, view, request, encoded):
            ranked = await self._by_any_word(view, request, ranked, encoded, stages)
        if not request.is_part:
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
