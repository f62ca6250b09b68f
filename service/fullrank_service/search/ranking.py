"""Rank the documents of one view for one request: filter, encode, count, search, show.

All parts of an answer come from the same view.
"""

from __future__ import annotations

from dataclasses import replace
from time import thread_time
from typing import Any

from fullrank.encoding import Encoded
from fullrank.live import View
from fullrank.live.clicks import NewClicks
from fullrank_service.search.caching.bitmaps import Bitmaps
from fullrank_service.search.counting import counts_of
from fullrank_service.search.mode_policy import SearchModePolicy
from fullrank_service.search.presenting import shown
from fullrank_service.search.request import Ranked, RankRequest
from fullrank_service.search.searching import (
    Search,
    check,
    floor_of,
    reordered_text,
    required_of,
    widened,
)
from fullrank_service.telemetry.stages import Stages


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
    """Rank documents.

    Args:
        view: The documents.
        request: What to rank and to return.
        mode: "exact" or "fast".
        cached: The encoded text of the request; None: encode it.
        bitmaps: Results of filters.
        policy: Learns from the time that this takes.
        stages: The stopwatch.
        clicks: That the bundle has not learned yet.

    Returns:
        The encoded text, and the answer.

    Raises:
        FilterError: A field of the request does not fit the stored fields.
    """
    stages.done("wait")
    is_measured = request.is_plain and policy.measures_plain(view.bundle, mode)
    began = thread_time() if is_measured else 0.0
    # Check filters and fields first, so that an invalid request costs no ranking.
    checked = check(view, request, bitmaps)
    if checked.is_restricted:
        stages.done("filter")
    encoded = cached
    if encoded is None:
        encoded = request.model(view).encode_queries([request.text])
        stages.done("encode")
    query = widened(view, request, encoded)
    if clicks is not None and request.counts_clicks:
        query = replace(query, encoded=clicks.asked(query.encoded, clicks.key(request.text)))
    floor, text = floor_of(view, request), reordered_text(view, request)
    required = required_of(view, request)
    search = Search.of(view, request, mode, query.encoded, checked, floor, text, required)
    facets: dict[str, Any] = {}
    ranges: dict[str, Any] = {}
    if request.is_counted:
        facets, ranges = counts_of(view, request, search.counted)
        stages.done("facets")
    found, filled, following = search.run()
    ranking_s = stages.done("rank")
    hits = shown(view, request, query, found.hits)
    stages.done("fields")
    if mode == "exact" and request.only is None and checked.order is None:
        policy.observe_exact(view.bundle, ranking_s)
    if is_measured:
        policy.observe_plain(view.bundle, mode, thread_time() - began)
    return encoded, Ranked(
        hits, found.certified, found.total, found.is_total, facets, mode, found.reordered, filled,
        following, ranges,
    )  # fmt: skip
