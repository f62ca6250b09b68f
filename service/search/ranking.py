"""Rank the documents of one view for one request: filter, encode, count, search, show.

All parts of one answer come from the one view that the search was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import thread_time
from typing import Any

from fullrank.encoding import Encoded
from fullrank.live import View
from fullrank.live.hits import Hits
from fullrank.models.widening import Widened, widen
from fullrank.ordering.order import Order
from fullrank.retrieval import Floor
from fullrank.rules.synonyms import features_of
from service.ads.filling import Filled
from service.search.caching.bitmaps import Bitmaps, Mask
from service.search.counting import counts_of
from service.search.highlighting import check_highlight
from service.search.mode_policy import SearchModePolicy
from service.search.paging import After, page_after
from service.search.presenting import shown
from service.search.request import Ranked, RankRequest
from service.search.restricting import matching_documents
from service.telemetry.stages import Stages


def rank_view(
    view: View,
    request: RankRequest,
    mode: str,
    cached: Encoded | None,
    bitmaps: Bitmaps,
    policy: SearchModePolicy,
    stages: Stages,
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

    Returns:
        The encoded text, and the answer.

    Raises:
        FilterError: A field of the request does not fit the stored fields.
    """
    stages.done("wait")
    began = thread_time()
    # What can be refused comes first.
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
    query, floor = _widened(view, request, encoded), _floor(view, request)
    is_counted = request.only is None and bool(request.facets or request.facet_ranges)
    if floor is not None and (is_counted or order is not None):
        # Who counts values, or orders by others than scores, needs to know every document that is found.
        deleted, floor = view.below(query.encoded, floor, deleted), None
    facets: dict[str, Any] = {}
    ranges: dict[str, Any] = {}
    if is_counted:
        facets, ranges = counts_of(view, request, view.without(deleted, request.pinned))
        stages.done("facets")
    search = _Search(view, request, mode, query.encoded, order, floor)
    found, filled, following = search.run(deleted)
    ranking_s = stages.done("rank")
    hits = shown(view, request, query, found.hits)
    stages.done("fields")
    if mode == "exact" and request.only is None and order is None:
        policy.observe_exact(view.bundle, ranking_s)
    if request.is_plain:
        policy.observe_plain(view.bundle, mode, thread_time() - began)
    return encoded, Ranked(
        hits, found.certified, found.total, found.is_total, facets, mode, found.reordered, filled,
        following, ranges,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Search:
    """One search over a view.

    Attributes:
        view: The documents.
        request: What is asked for.
        mode: "exact" or "fast".
        query: Encoded and widened.
        order: Of the hits; None: by score.
        floor: What a document must reach to be found; None: every document is found.
    """

    view: View
    request: RankRequest
    mode: str
    query: Encoded
    order: Order | None
    floor: Floor | None

    def run(self, deleted: Sequence[Mask | None]) -> tuple[Hits, Filled | None, After | None]:
        """Return the hits, how they fill placements, and where the next page begins."""
        request = self.request
        if request.after is not None:
            first = partial(self._first, deleted=deleted)
            found, following = page_after(first, request.after, request.limit)
            return found, None, following
        if request.filling is None:
            return self._page(request.limit, deleted), None, None
        is_reordered = self._text is not None
        filled = request.filling.fill(self.view, self._page, deleted, is_reordered=is_reordered)
        return filled.hits, filled, None

    @property
    def _text(self) -> str | None:
        """What the second stage reads; None if it does not fit the request."""
        stage, request = self.view.bundle.second_stage, self.request
        # Trees that were trained on short queries have seen nothing like a document as a query.
        fits = stage is not None and (stage.of_documents or not request.is_document)
        return request.text if fits and request.only is None and request.after is None else None

    def _first(self, limit: int, deleted: Sequence[Mask | None]) -> Hits:
        """Return the best documents by score, boosted or not."""
        if self.order is not None:
            return self.order.search(self.query, slice(limit), deleted=deleted, mode="exact")
        return self.view.search(self.query, limit, deleted=deleted, floor=self.floor)

    def _page(self, limit: int, deleted: Sequence[Mask | None]) -> Hits:
        """Return so many hits from the offset on."""
        offset = self.request.offset
        if self.order is not None:
            page = slice(offset, offset + limit)
            return self.order.search(
                self.query, page, deleted=deleted, mode=self.mode, text=self._text
            )
        return self.view.search(
            self.query,
            limit,
            offset=offset,
            deleted=deleted,
            mode=self.mode,
            text=self._text,
            floor=self.floor,
            is_counted=self.request.filling is None,
        )


def _widened(view: View, request: RankRequest, encoded: Encoded) -> Widened:
    """Return the query with the features of synonyms and of words that its last word begins."""
    additions = features_of(view.model, request.synonyms)
    if request.by_prefix:
        additions += view.bundle.prefixes.of(request.text)
    return widen(encoded, additions)


def _floor(view: View, request: RankRequest) -> Floor | None:
    """Return what a document must reach to be found; None: every document is found."""
    if request.only is not None:
        return None
    if request.min_score is not None:
        return Floor(score=request.min_score)
    return view.bundle.floor
