"""One search over a view: check it, analyse its query, find its hits, count values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fullrank.filters.columns import Columns
from fullrank.filters.facets import Range, facet_over, range_counts
from fullrank.live import View
from fullrank.retrieval.ranking import Choice
from fullrank.search.highlight import check_highlight
from fullrank.search.ordering import Order, Ordering
from fullrank.search.part import Query
from fullrank.search.searchable import Hits
from fullrank.storage.encoding import Encoded
from fullrank_service.search.request import After, RankRequest
from fullrank_service.search.restricting import (
    Bitmaps,
    Mask,
    hidden_documents,
    matching_documents,
)

# Pages that begin after the last hit of the page before, not at an offset.


def page_after(
    search: Callable[[int], Hits], after: After, limit: int
) -> tuple[Hits, After | None]:
    """Return a page of a ranking by score, and where the next one begins; None after the last one.

    Documents that were added or deleted meanwhile move no other one, because each is compared with the last hit alone.
    `search` returns so many of the best documents, ties by id.
    """
    depth = after.place + limit + 1
    while True:
        found = search(depth)
        rest = [hit for hit in found.hits if (-hit.score, hit.id) > (-after.score, after.id)]
        if len(rest) > limit or len(found.hits) < depth:
            break
        depth *= 2
    page = rest[:limit]
    following = None
    if len(rest) > limit:
        following = After(page[-1].score, page[-1].id, after.place + len(page))
    return replace(found, hits=page), following


# The values and the ranges of fields, counted over the documents that are found.

Counted = tuple[dict[str, Any], dict[str, Any]]
"""Facets and ranges by field, ready for JSON."""


def counts_of(view: View, request: RankRequest, deleted: Sequence[Mask | None]) -> Counted:
    """Count what a request asks for. `deleted` has for each part the documents that are not found; None: all are found.

    Raises:
        FilterError: A field does not exist, or has no values of the kind.
    """
    parts = columns_to_count(view, deleted)
    return _facets(parts, request), _ranges(parts, request)


def columns_to_count(view: View, deleted: Sequence[Mask | None]) -> list[tuple[Columns, Mask]]:
    """Return the columns of each part, and which documents to count."""
    return [
        (columns, np.ones(columns.documents, np.bool_) if mask is None else ~mask)
        for columns, mask in zip(view.columns, deleted, strict=True)
    ]


def _ranges(parts: Sequence[tuple[Columns, Mask]], request: RankRequest) -> dict[str, Any]:
    counted = {}
    for name, ranges in request.asked.ranges.items():
        if request.counts(name):
            counts = range_counts(parts, name, ranges, f"facet_ranges.{name}")
            counted[name] = ranges_json(ranges, counts)
    return counted


def ranges_json(ranges: Sequence[Range], counts: Sequence[int]) -> list[dict[str, Any]]:
    """Return counted ranges, ready for JSON."""
    return [
        {"from": own.start, "to": own.stop, "count": count}
        for own, count in zip(ranges, counts, strict=True)
    ]


def _facets(parts: Sequence[tuple[Columns, Mask]], request: RankRequest) -> dict[str, Any]:
    counted: dict[str, Any] = {}
    for place, name in enumerate(request.asked.facets):
        if request.counts(name):
            asked, path = request.asked, f"facets.{place}"
            under = asked.facet_under.get(name)
            found = facet_over(parts, name, asked.facet_limit, path, under)
            counted[name] = found.as_dict()
    return counted


class Checked(NamedTuple):
    """A request that fits the stored fields of a view.

    Attributes:
        order: Of the hits; None: by score.
        deleted: For each part the documents to leave out; None: no document.
        allowed: The same, but ids of the request are left in.
        is_restricted: Whether a filter or a list of ids leaves documents out.
        hidden: As deleted, what the key of the caller may not see; None: it may see all.
    """

    order: Order | None
    deleted: Sequence[Mask | None]
    allowed: Sequence[Mask | None]
    is_restricted: bool
    hidden: Sequence[Mask | None] | None


def check(view: View, request: RankRequest, bitmaps: Bitmaps) -> Checked:
    """Check a request against the stored fields, and choose the documents that it may return. Raises FilterError."""
    matching = matching_documents(view, bitmaps, request)
    if request.asked.highlight is not None:
        check_highlight(view.columns[0], request.asked.highlight.asked.fields, "highlight.fields")
    order = None
    asked = request.ordering
    if asked is not None and request.only is not None:
        # Their places are fixed; boosts are still part of their scores.
        asked = Ordering(boosts=asked.boosts, now=asked.now) if asked.boosts else None
    if asked is not None:
        order = Order(view, asked)
    allowed = view.deleted(matching)
    ids = [*request.exclude, *request.pinned]
    deleted = view.deleted(matching, ids) if ids else allowed
    is_restricted = matching is not None or bool(request.exclude)
    return Checked(order, deleted, allowed, is_restricted, hidden_documents(view, bitmaps, request))


class Search(NamedTuple):
    """One search over a view.

    Attributes:
        view: The documents.
        request: What is asked for.
        mode: "exact" or "fast".
        query: Analysed; its floor is left where the search has to ask for it.
        order: Of the hits; None: by score.
        deleted: For each part the documents that are not found; None: all are.
        choice: Of the words that documents must have; None: none is required.
    """

    view: View
    request: RankRequest
    mode: str
    query: Query
    order: Order | None
    deleted: Sequence[Mask | None]
    choice: Choice | None

    @classmethod
    def of(
        cls,
        view: View,
        request: RankRequest,
        mode: str,
        query: Query,
        checked: Checked,
        choice: Choice | None = None,
    ) -> Search:
        """Prepare a checked request.

        Args:
            choice: Of the required words; None: that of these documents.
        """
        deleted, floor = checked.deleted, query.floor
        if query.required is not None:
            deleted, choice = view.lacking(
                query, query.required, deleted, checked.allowed, choice, checked.hidden
            )
        if floor is not None and (request.is_counted or checked.order is not None):
            # Counting values, and any order but that of scores, needs every document with evidence.
            deleted, query = view.below(query, floor, deleted), replace(query, floor=None)
        return cls(view, request, mode, query, checked.order, deleted, choice)

    @property
    def is_usual(self) -> bool:
        """Whether it ranks all documents for a query by score."""
        request = self.request
        return request.only is None and self.order is None and not request.is_listing

    @property
    def counted(self) -> Sequence[Mask | None]:
        """For each part the documents that facets do not count; None: they count all."""
        return self.view.marked(self.deleted, self.request.pinned, False)

    def run(self) -> tuple[Hits, Any, After | None]:
        """Return the hits, how they fill placements, and where the next page begins."""
        request = self.request
        if request.after is not None:
            found, following = page_after(self._first, request.after, request.limit)
            return found, None, following
        if request.filling is None:
            return self._page(request.limit, self.deleted, is_counted=True), None, None
        filled = request.filling.fill(
            self.view, self.uncounted, self.deleted, is_reordered=self.query.is_reordered
        )
        return filled.hits, filled, None

    def uncounted(self, limit: int, deleted: Sequence[Mask | None]) -> Hits:
        """Return the first hits that are not deleted; their total is the least that is known."""
        return self._page(limit, deleted, is_counted=False)

    def _first(self, limit: int) -> Hits:
        if self.order is not None:
            return self.order.search(self.query, slice(limit), deleted=self.deleted, mode="exact")
        return self.view.search(self.query, limit, deleted=self.deleted)

    def _page(self, limit: int, deleted: Sequence[Mask | None], *, is_counted: bool) -> Hits:
        offset = self.request.offset
        if self.order is not None:
            page = slice(offset, offset + limit)
            return self.order.search(self.query, page, deleted=deleted, mode=self.mode)
        return self.view.search(
            self.query, limit, offset=offset, deleted=deleted, mode=self.mode, is_counted=is_counted
        )


def analysed(view: View, request: RankRequest, encoded: Encoded | None = None) -> Query:
    """Return the query of a request; encoded: its text, without additions."""
    query = view.analyzer.query(request.text, request.options, encoded)
    ordering = request.ordering
    is_by_score = ordering is None or ordering.is_by_score
    is_ranked = request.only is None and request.after is None and is_by_score
    is_ranked = is_ranked and not request.is_listing
    return query if is_ranked or not query.is_reordered else replace(query, is_reordered=False)


def can_match_any_word(view: View, request: RankRequest, encoded: Encoded) -> bool:
    """Return whether words of a query that weigh too little may be evidence where no document has more.

    Holds only for a query for a list of hits with a known word; a corrected typing error is no known word.
    """
    if request.is_document or request.filling is not None:
        return False
    floor = view.analyzer.query(request.text, request.options, encoded).floor
    if floor is None or not floor.can_be_any_word:
        return False
    return view.analyzer.has_known_word(request.text, request.options)
