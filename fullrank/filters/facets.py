"""Facets: how often each value of a field, or each range of a number, occurs among the matching documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import numpy as np

from fullrank.errors import FilterError
from fullrank.filters.columns import ColumnPart, Columns, Kind
from fullrank.filters.columns.build import MAX_INTEGER
from fullrank.filters.columns.table import (
    KIND_NAMES,
    KINDS,
    Column,
    Scale,
    cut_below,
    dictionary,
    largest,
    scale_of,
    time_of,
)
from fullrank.filters.query import Value, column_of, listed
from fullrank.storage.encoding import Int64, Mask

# Fields with values on a scale, and what to say about the others.


def columns_of_field(parts: Sequence[Columns], field: str, path: str) -> list[Column]:
    """Return the column of a field in each part. Raises FilterError for an unknown field."""
    return [column_of(columns, field, path) for columns in parts]


def kinds_of(columns: Sequence[Column]) -> str:
    """Name the kinds of values of a field."""
    kinds = {kind for column in columns for kind in column.kinds}
    return " and ".join(name for kind, name in KIND_NAMES.items() if kind in kinds) or "no values"


def usable_fields(parts: Sequence[Columns], scales: Collection[Scale]) -> str:
    """List the fields whose values are on some scales."""
    names = [
        name
        for name in parts[0].by_name
        if scale_of([columns[name] for columns in parts]) in scales
    ]
    return listed(names) or "none of this model"


# Values of a field.


@dataclass(frozen=True, slots=True)
class ValueCount:
    """A value and the number of documents with it."""

    value: Value
    count: int


@dataclass(frozen=True, slots=True)
class Facet:
    """The values of one field among the matching documents.

    Attributes:
        values: The most frequent values; ties by value: false and true, then numbers, then text by code point.
        minimum: Smallest number; None without numbers.
        maximum: Largest number; None without numbers.
    """

    values: tuple[ValueCount, ...]
    distinct: int
    missing: int
    minimum: float | None
    maximum: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return the facet as a service answers it: ``fullrank.replies.FacetReply``."""
        return {
            "values": [{"value": v.value, "count": v.count} for v in self.values],
            "distinct": self.distinct,
            "missing": self.missing,
            "min": self.minimum,
            "max": self.maximum,
        }


@dataclass(frozen=True, eq=False)
class FacetCounts:
    """How many documents have each value of one field.

    Attributes:
        values: The values that some document has, by kind, ascending.
    """

    values: Mapping[Kind, Sequence[Value]]
    counts: Mapping[Kind, Int64]
    missing: int


def counted(
    columns: Columns, field: str, matching: Mask, path: str = "facets", under: str | None = None
) -> FacetCounts:
    """Count all values of a field, for ``merged``; the arguments are those of ``facet_over``."""
    column = _column(columns, field, path, under)
    values: dict[Kind, Sequence[Value]] = {}
    counts: dict[Kind, Int64] = {}
    for kind, found in _counts(column, matching).items():
        codes = np.flatnonzero(found)
        own = column.parts[kind].values
        values[kind] = [_json_value(kind, own[code]) for code in codes.tolist()]
        counts[kind] = found[codes]
    return FacetCounts(values, counts, _missing(column, matching))


def merged(parts: Sequence[FacetCounts], limit: int) -> Facet:
    """Return the facet of a field over several sets of documents.

    Example:
        >>> columns = [columns_of([{"tag": "a"}]), columns_of([{"tag": "b"}, {"tag": "a"}])]
        >>> merged([counted(one, "tag", np.ones(one.documents, bool)) for one in columns], 1).values
        (ValueCount(value='a', count=2),)
    """
    return _facet(
        [
            (
                {kind: ColumnPart(own, _NO_CODES) for kind, own in part.values.items()},
                part.counts,
                part.missing,
            )
            for part in parts
        ],
        limit,
    )


def facet_over(
    parts: Sequence[tuple[Columns, Mask]],
    field: str,
    limit: int,
    path: str = "facets",
    under: str | None = None,
) -> Facet:
    """Count the values of a field over several sets of documents.

    Args:
        parts: (columns, matching) of each set, columns as ``aligned`` returns them, matching bool (n,): the documents
            to count; one with several values counts for each. Put the largest set first: the values of the others are
            looked up in its dictionaries.
        under: Count a field of paths, "a > b > c", one level below this path; "": the first level. Documents without
            a path below count as missing.

    Raises:
        FilterError: The field is unknown or cannot be a column.
    """
    found = []
    for columns, matching in parts:
        column = _column(columns, field, path, under)
        found.append((column.parts, _counts(column, matching), _missing(column, matching)))
    return _facet(found, limit)


def _column(columns: Columns, field: str, path: str, under: str | None) -> Column:
    column = column_of(columns, field, path)
    return column if under is None else cut_below(column, under)


_NO_CODES = np.zeros(0, np.int8)
_Counted = tuple[Mapping[Kind, ColumnPart], Mapping[Kind, Int64], int]
"""Of one set of documents: the values by kind, how many documents have each, and how many have none."""


def _facet(parts: Sequence[_Counted], limit: int) -> Facet:
    own, own_counts, _ = parts[0]
    first = {kind: own[kind] for kind in KINDS if kind in own}
    first_counts = {kind: own_counts[kind].copy() for kind in first}
    others: Counter[tuple[int, Value]] = Counter()
    for columns, found, _ in parts[1:]:
        for kind, part in columns.items():
            code_in_first = np.full(len(part.values), -1)
            if kind in first:
                code_in_first = _codes_in(first[kind], part)
                known = code_in_first >= 0
                np.add.at(first_counts[kind], code_in_first[known], found[kind][known])
            for code in np.flatnonzero((code_in_first < 0) & (found[kind] > 0)).tolist():
                value = _json_value(kind, part.values[code])
                others[KINDS.index(kind), value] += int(found[kind][code])
    all_counts = np.concatenate([*first_counts.values(), np.zeros(0, np.int64)])
    places = _largest(all_counts, limit).tolist()
    best = [(int(all_counts[place]), *_value_at(first, place)) for place in places]
    best += [(count, kind, value) for (kind, value), count in others.items()]
    best.sort(key=lambda entry: (-entry[0], *entry[1:]))
    bounds = [bound for columns, found, _ in parts for bound in _bounds(columns, found)]
    return Facet(
        values=tuple(ValueCount(value, count) for count, _, value in best[:limit]),
        distinct=int(np.count_nonzero(all_counts)) + len(others),
        missing=sum(missing for _, _, missing in parts),
        minimum=_json_number(min(bounds)) if bounds else None,
        maximum=_json_number(max(bounds)) if bounds else None,
    )


# Parts never change, so the translated codes of a segment are kept until the segment or its bundle is unloaded.
_translated_codes: WeakKeyDictionary[ColumnPart, tuple[ref[ColumnPart], Int64]] = (
    WeakKeyDictionary()
)


def _codes_in(first: ColumnPart, part: ColumnPart) -> Int64:
    """Return the code in first of each value of part, int64 (V,); −1 for an unknown value."""
    cached = _translated_codes.get(part)
    if cached is not None and cached[0]() is first:
        return cached[1]
    spans = [first.codes_of(value) for value in part.values]
    codes = np.array([span.start if span else -1 for span in spans], np.int64)
    _translated_codes[part] = ref(first), codes
    return codes


def _counts(column: Column, matching: Mask) -> dict[Kind, Int64]:
    return {kind: part.counts(matching) for kind, part in column.parts.items()}


def _missing(column: Column, matching: Mask) -> int:
    return int(np.count_nonzero(matching & ~column.has_value()))


def _bounds(parts: Mapping[Kind, ColumnPart], counts: Mapping[Kind, Int64]) -> list[float]:
    if "number" not in counts:
        return []
    counted = np.flatnonzero(counts["number"])
    values = parts["number"].values
    return [float(values[counted[0]]), float(values[counted[-1]])] if len(counted) else []


def _largest(counts: Int64, limit: int) -> Int64:
    """Return the positions of the largest counts above zero, descending, ties by position."""
    places = np.flatnonzero(counts)
    if len(places) > limit:
        found = counts[places]
        kth = np.partition(found, len(found) - limit)[len(found) - limit]
        ties = np.flatnonzero(found == kth)[: limit - np.count_nonzero(found > kth)]
        places = places[np.sort(np.concatenate([np.flatnonzero(found > kth), ties]))]
    return places[np.argsort(-counts[places], kind="stable")]


def _value_at(parts: Mapping[Kind, ColumnPart], place: int) -> tuple[int, Value]:
    """Return (index of the kind in KINDS, value) at a position in the concatenated dictionaries of all parts."""
    for kind, part in parts.items():
        if place < len(part.values):
            return KINDS.index(kind), _json_value(kind, part.values[place])
        place -= len(part.values)
    raise IndexError(place)


def _json_value(kind: Kind, value: Value) -> Value:
    return _json_number(float(value)) if kind == "number" else value


def _json_number(number: float) -> float:
    """Return a number as it was in the JSON: 3, not 3.0. Integers beyond 2^53 are never stored."""
    is_whole = number.is_integer() and abs(number) <= MAX_INTEGER
    return int(number) if is_whole else number


# Ranges of a field: how many of the matching documents have a value in each.

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
    found = time_of(value, needs_offset=True) if isinstance(value, str) else None
    if found is None:
        raise FilterError(
            path,
            "this field has times: give one with an offset from UTC, as 2026-11-23T12:00:00+01:00",
        )
    return found
