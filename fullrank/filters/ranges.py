"""Ranges of a field: how many of the matching documents have a value in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fullrank.errors import FilterError
from fullrank.filters.columns import Columns
from fullrank.filters.columns.table import Mask
from fullrank.filters.columns.times import dictionary, largest, parse_time, scale_of
from fullrank.filters.fields import columns_of_field, kinds_of, usable_fields

Bound = float | str | None
"""A number; of a field of times ISO 8601 with an offset from UTC; None: no bound."""


class Range(NamedTuple):
    """The values from `start` on and below `stop`."""

    start: Bound = None
    stop: Bound = None


def range_counts(
    parts: Sequence[tuple[Columns, Mask]],
    field: str,
    ranges: Sequence[Range],
    path: str = "facet_ranges",
) -> list[int]:
    """Count the documents with a value in each of several ranges; a document counts once for each.

    Args:
        parts: (columns, matching) of each set of documents, columns as ``aligned`` returns them.
        field: A field with numbers or times.
        ranges: They may overlap.
        path: Place of the field in the request, for errors.

    Raises:
        FilterError: The field is unknown or has neither, or a bound is of another kind.

    Example:
        >>> columns = columns_of([{"price": 3}, {"price": [9, 12]}, {}])
        >>> range_counts([(columns, np.ones(3, bool))], "price", [Range(stop=10), Range(10, 20)])
        [2, 1]
    """
    tables = [columns for columns, _ in parts]
    columns = columns_of_field(tables, field, path)
    scale = scale_of(columns)
    if scale not in ("number", "time"):
        raise FilterError(
            path,
            f"this field has {kinds_of(columns)}; ranges need numbers or times, as in: "
            f"{usable_fields(tables, ('number', 'time'))}",
        )
    counts = []
    for place, (start, stop) in enumerate(ranges):
        first = _bound(start, -np.inf, scale == "time", f"{path}.{place}.from")
        after = _bound(stop, np.inf, scale == "time", f"{path}.{place}.to")
        if not first < after:
            raise FilterError(f"{path}.{place}", "holds no value: from must be below to")
        count = 0
        for column, (_, matching) in zip(columns, parts, strict=True):
            own = dictionary(column, scale)
            if own is not None:
                part, values = own
                inside = np.where((values >= first) & (values < after), 1.0, np.nan)
                found = largest(part, inside, column.documents) == 1
                count += int(np.count_nonzero(found & matching))
        counts.append(count)
    return counts


def _bound(value: Bound, default: float, is_time: bool, path: str) -> float:
    if value is None:
        return default
    if not is_time:
        if isinstance(value, str):
            raise FilterError(path, "this field has numbers: give a number")
        return float(value)
    found = parse_time(value, needs_offset=True) if isinstance(value, str) else None
    if found is None:
        raise FilterError(
            path,
            "this field has times: give one with an offset from UTC, as 2026-11-23T12:00:00+01:00",
        )
    return found
