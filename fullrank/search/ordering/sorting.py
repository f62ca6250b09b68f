"""The order of documents by fields, and boosts: what fields add to a score."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.errors import FilterError
from fullrank.filters.columns import ColumnPart, Columns
from fullrank.filters.columns.table import (
    Column,
    Point,
    Scale,
    dictionary,
    distances_of,
    largest,
    scale_of,
    time_of,
)
from fullrank.filters.facets import columns_of_field, kinds_of, usable_fields
from fullrank.storage.encoding import Float64, Int64

# The order of documents by fields.
#
# A field has numbers, true and false, times, or places, which count by their distance from a point in km. Of several
# values of a document the smallest counts in ascending order, the largest in descending order. Documents without a
# value come last in both.

MAX_KEYS = 4


@dataclass(frozen=True, slots=True)
class SortKey:
    """A field to order by; near: by the distance of its places from this point."""

    field: str
    is_descending: bool = False
    near: Point | None = None


def sort_values(parts: Sequence[Columns], keys: Sequence[SortKey]) -> list[Float64]:
    """Return the sort values of the documents of several parts.

    Returns:
        For each part float64 (keys, documents): the smallest come first, infinity is missing.

    Raises:
        FilterError: A field is unknown or has no order.
    """
    found = [np.empty((len(keys), columns.documents)) for columns in parts]
    for i, key in enumerate(keys):
        here = f"sort.{i}.field"
        columns = columns_of_field(parts, key.field, here)
        scale = scale_of(columns)
        if key.near is not None:
            _check_places(columns, here)
        elif scale is None:
            known = usable_fields(parts, ("number", "boolean", "time"))
            raise FilterError(
                here,
                f"this field has {kinds_of(columns)}, which is not sorted; fields to sort by: {known}",
            )
        sign = 1.0 if key.is_descending else -1.0
        for rows, column in zip(found, columns, strict=True):
            own = _numbers(column, scale, key.near)
            if own is None:
                rows[i] = np.inf
            else:
                part, values = own
                rows[i] = -largest(part, sign * values, column.documents)
    for rows in found:
        rows[np.isnan(rows)] = np.inf
    return found


def _check_places(columns: Sequence[Column], path: str) -> None:
    if not any("keyword" in column.kinds for column in columns):
        raise FilterError(path, f"this field has {kinds_of(columns)}, and no places")


def _numbers(
    column: Column, scale: Scale | None, near: Point | None
) -> tuple[ColumnPart, Float64] | None:
    """Return a part of a column, and a number for each of its values: on the scale, or the distance from a point."""
    if near is None:
        return None if scale is None else dictionary(column, scale)
    part = column.parts.get("keyword")
    return None if part is None else (part, distances_of(part, near))


def first_rows(values: Float64, rows: Int64, count: int) -> Int64:
    """Return the first `count` of some rows in the order of their values, ties by row."""
    if len(rows) > count:
        first = values[0, rows]
        # Only these can be among the first.
        rows = rows[first <= np.partition(first, count - 1)[count - 1]]
    order = np.lexsort((rows, *values[::-1, rows]))
    return rows[order[:count]]


# Boosts: what fields of a document add to its score.
#
#     decay   weight · factor^(|x − origin| / scale)        1 at the origin, factor one scale away
#     log     weight · ln(1 + x), 0 for x below 0
#
# A document without a value gets 0. A document with several values gets the largest result before the weight.

MAX_BOOSTS = 8
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")


@dataclass(frozen=True, slots=True)
class Decay:
    """How a boost falls with the distance from an origin.

    Attributes:
        origin: A number; of a field of times "now", or ISO 8601 with an offset from UTC; of places a point.
        scale: A number above 0, of places in km; of a field of times a duration: 90s, 15m, 12h, 30d or 2w.
        factor: What is left one scale away, between 0 and 1.
    """

    origin: float | str | Point
    scale: float | str
    factor: float = 0.5


@dataclass(frozen=True, slots=True)
class Boost:
    """The boost by one field: a decay, or the logarithm of its value.

    Attributes:
        weight: Any finite number.
        decay: None for the logarithm.
    """

    field: str
    weight: float
    decay: Decay | None = None


def boosts_of(parts: Sequence[Columns], boosts: Sequence[Boost], now: float) -> list[Float64]:
    """Return the sum of the boosts of each document of several parts; now: in seconds since 1970.

    Returns:
        For each part float64 (documents,).

    Raises:
        FilterError: A field is unknown or is neither numbers nor times, or a decay does not fit it.
    """
    total = [np.zeros(columns.documents) for columns in parts]
    for place, boost in enumerate(boosts):
        path = f"boost.{place}"
        columns = columns_of_field(parts, boost.field, f"{path}.field")
        for sums, own in zip(total, _values(parts, columns, boost, now, path), strict=True):
            sums += boost.weight * np.nan_to_num(own, nan=0.0)
    return total


def _values(
    parts: Sequence[Columns], columns: list[Column], boost: Boost, now: float, path: str
) -> list[Float64]:
    """Return the value of one boost for each document of each part, NaN without one."""
    scale = scale_of(columns)
    near = boost.decay.origin if boost.decay and isinstance(boost.decay.origin, Point) else None
    if near is not None:
        _check_places(columns, f"{path}.field")
    elif scale not in ("number", "time") or (scale == "time" and boost.decay is None):
        needed: tuple[Scale, ...] = ("number",) if boost.decay is None else ("number", "time")
        known = usable_fields(parts, needed)
        raise FilterError(
            f"{path}.field",
            f"this field has {kinds_of(columns)}; {'log' if boost.decay is None else 'decay'} needs "
            f"{' or '.join(f'{kind}s' for kind in needed)}, as in: {known}",
        )
    is_time = scale == "time" and near is None
    decay = None if boost.decay is None else _read(boost.decay, is_time, now, path)
    found = []
    for column in columns:
        own = _numbers(column, scale, near)
        if own is None:
            found.append(np.full(column.documents, np.nan))
            continue
        part, x = own
        if decay is None:
            values = np.log1p(np.maximum(x, 0.0))
        else:
            origin, length, factor = decay
            with np.errstate(
                over="ignore"
            ):  # a distance beyond float64 is infinite, and its boost 0
                values = factor ** (np.abs(x - origin) / length)
        found.append(largest(part, values, column.documents))
    return found


def _read(decay: Decay, is_time: bool, now: float, path: str) -> tuple[float, float, float]:
    """Return origin, scale and factor as numbers. Raises FilterError if they do not fit the field."""
    path = f"{path}.decay"
    if not is_time:
        for name, value in (("origin", decay.origin), ("scale", decay.scale)):
            if isinstance(value, str):
                raise FilterError(
                    f"{path}.{name}", "must be a number for a field of numbers or places"
                )
        # Of places, x is the distance from the origin.
        origin = 0.0 if isinstance(decay.origin, Point) else float(decay.origin)
        length = float(decay.scale)
    else:
        origin = _origin(decay.origin, now, f"{path}.origin")
        length = duration(decay.scale, f"{path}.scale")
    if not (math.isfinite(length) and length > 0):
        raise FilterError(f"{path}.scale", "must be above 0")
    return origin, length, decay.factor


def _origin(value: float | str | Point, now: float, path: str) -> float:
    if value == "now":
        return now
    found = time_of(value, needs_offset=True) if isinstance(value, str) else None
    if found is None:
        raise FilterError(
            path,
            'this field has times: give "now" or a time with an offset from UTC, as 2026-11-23T12:00:00+01:00',
        )
    return found


def duration(value: float | str, path: str) -> float:
    """Read a duration, in seconds. Raises FilterError if it is not one."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise FilterError(
            path, "this field has times: give a duration, as 90s, 15m, 12h, 30d or 2w"
        )
    return float(found[1]) * _SECONDS[found[2]]
