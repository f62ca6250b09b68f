"""The values and the ranges of fields, counted over the documents that are found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fullrank.filters.columns import Columns
from fullrank.filters.facets import Facet, Range, facet_over, range_counts
from fullrank.live import View
from fullrank_service.search.caching.bitmaps import Mask
from fullrank_service.search.request import RankRequest

Counted = tuple[dict[str, Any], dict[str, Any]]
"""Facets and ranges by field, ready for JSON."""


def counts_of(view: View, request: RankRequest, deleted: Sequence[Mask | None]) -> Counted:
    """Count what a request asks for.

    Args:
        view: The documents.
        request: Names the fields.
        deleted: For each part the documents that are not found; None: all documents are found.

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
    for name, ranges in request.facet_ranges:
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
    for place, name in enumerate(request.facets):
        found = facet_over(parts, name, request.facet_limit, f"facets.{place}")
        counted[name] = facet_json(found)
    return counted


def facet_json(found: Facet) -> dict[str, Any]:
    """Return a facet, ready for JSON."""
    return {
        "values": [{"value": v.value, "count": v.count} for v in found.values],
        "distinct": found.distinct,
        "missing": found.missing,
        "min": found.minimum,
        "max": found.maximum,
    }
