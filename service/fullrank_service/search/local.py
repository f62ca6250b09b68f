"""Rank in this process: on a bounded pool of threads, or on the event loop for a short search (ranking.py chooses)."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from fullrank.encoding import Encoded
from fullrank.live import View
from fullrank_service.base.tracing import Stages
from fullrank_service.search.clicks import ClickCounter
from fullrank_service.search.ranking import SearchModePolicy, rank_view
from fullrank_service.search.request import Ranked, RankRequest
from fullrank_service.search.restricting import Bitmaps


class LocalEngine:
    """Ranks the documents that this process has.

    Args:
        bitmaps: Results of filters.
        policy: Chooses mode and thread.
        threads: Size of the pool.
        clicks: Counts new clicks; None: they wait for the next training.
    """

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
        """See Engine.rank."""
        mode = self._policy.mode(view.bundle, request.mode)
        clicks = None if self._clicks is None else self._clicks.of(view.bundle)
        work = partial(
            rank_view, view, request, mode, cached, self._bitmaps, self._policy, stages, clicks
        )
        if request.is_plain and self._policy.fits_event_loop(view.bundle, mode):
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def close(self) -> None:
        """See Engine.close."""
        # Waiting would block the event loop, and no request needs the searches that still run.
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._clicks is not None:
            await asyncio.to_thread(self._clicks.close)
