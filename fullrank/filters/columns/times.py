"""Numbers, and times in text fields, of the documents of a column.

A time is ISO 8601 text: 2026-11-23, or 2026-11-23T12:00:00+01:00. A day is its midnight, and what a document stores
without an offset is in UTC. Times count as seconds since 1970.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np

from fullrank.filters.columns.table import Column, ColumnPart, Float64, Kind

Scale = Literal["number", "boolean", "time"]
"""What the values of a column are on: numbers, false and true as 0 and 1, or times."""

# Parts never change, so the times of a dictionary are kept until its bundle or segment is unloaded.
_times: WeakKeyDictionary[ColumnPart, Float64] = WeakKeyDictionary()


def parse_time(text: str, *, needs_offset: bool = False) -> float | None:
    """Read a time, in seconds since 1970; None for a text that is no time.

    Args:
        text: ISO 8601.
        needs_offset: A time without an offset from UTC, or a day, is no time.

    Example:
        >>> parse_time("1970-01-02"), parse_time("1970-01-02", needs_offset=True), parse_time("tea")
        (86400.0, None, None)
    """
    # Most texts; an exception takes much longer. Eight digits are a code more often than a day.
    if not text[:4].isdigit() or text[4:5] != "-":
        return None
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            if needs_offset:
                return None
            found = found.replace(tzinfo=UTC)
        return found.timestamp()
    except (ValueError, OverflowError):
        return None


def times_of(part: ColumnPart) -> Float64:
    """Return the time of each value of a text part, float64 (V,); NaN for a text that is no time."""
    found = _times.get(part)
    if found is None:
        times = (parse_time(text) for text in part.values)
        found = np.array([np.nan if time is None else time for time in times], np.float64)
        _times[part] = found
    return found


def scale_of(columns: list[Column]) -> Scale | None:
    """Choose what to compare the documents of several parts by: numbers, else true and false, else times.

    Args:
        columns: The column of one field in each part.

    Returns:
        The scale, None for a field that has no value on one.
    """
    kinds: set[Kind] = {kind for column in columns for kind in column.kinds}
    if "number" in kinds:
        return "number"
    if "boolean" in kinds:
        return "boolean"
    if any(column.has_times_elsewhere for column in columns):
        return "time"
    texts = [column.parts["keyword"] for column in columns if "keyword" in column.parts]
    return "time" if any(np.isfinite(times_of(part)).any() for part in texts) else None


def dictionary(column: Column, scale: Scale) -> tuple[ColumnPart, Float64] | None:
    """Return the part of a column that a scale reads, and the number of each of its values; None without that part."""
    part = column.parts.get("keyword" if scale == "time" else scale)
    if part is None:
        return None
    if scale == "time":
        return part, times_of(part)
    return part, np.asarray(part.values, np.float64)


def largest(part: ColumnPart, values: Float64, documents: int) -> Float64:
    """Return the largest of the values that each document has, float64 (documents,); NaN for one without a value.

    Args:
        part: The values of the documents.
        values: float64 (V,), one for each value of the dictionary, NaN for none.
        documents: Number of documents.
    """
    # Code −1 reads the last entry.
    table = np.append(values, np.nan)
    if part.indptr is None:
        return table[part.codes]
    found = np.full(documents, np.nan)
    some = np.flatnonzero(part.has_value())
    if len(some):
        entries = table[part.codes]
        found[some] = np.fmax.reduceat(entries, part.indptr[some])
    return found
