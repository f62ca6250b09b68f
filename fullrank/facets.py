"""Facets: how often each value of a field occurs among the documents that a filter lets through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary, ref

import numpy as np

from fullrank.columns import Column, Columns, Kind, Part
from fullrank.filters.columns.build import LARGEST_INTEGER
from fullrank.filters.columns.table import KINDS, Int64, Mask
from fullrank.filters.query import Value, column_of


@dataclass(frozen=True, slots=True)
class ValueCount:
    """count documents hold the value."""

    value: Value
    count: int


@dataclass(frozen=True, slots=True)
class Facet:
    """The values of one field among the matching documents.

    values    the most frequent, ties by value: false and true, then numbers, then text by code point
    distinct  how many different values there are among them
    missing   how many of the documents have no value
    least, greatest   of the numbers among them; None where there are none
    """

    values: tuple[ValueCount, ...]
    distinct: int
    missing: int
    least: float | None
    greatest: float | None


def facet(columns: Columns, field: str, matching: Mask, limit: int, path: str = "facets") -> Facet:
    """Count the values of a field.

    matching  bool (n,): the documents to count in; a document with several values counts for each
    limit     most values returned, at least 1
    path      what the field is called in errors
    Raises FilterError where the field is unknown or no column.
    """
    return facet_over([(columns, matching)], field, limit, path)


def facet_over(
    parts: Sequence[tuple[Columns, Mask]], field: str, limit: int, path: str = "facets"
) -> Facet:
    """``facet`` over several sets of documents, each with its matching ones, as if they were one.

    parts  the largest first: values of the others are looked up among its own
    """
    columns = [column_of(columns, field, path) for columns, _ in parts]
    masks = [matching for _, matching in parts]
    counts = [_counts(column, mask) for column, mask in zip(columns, masks, strict=True)]
    own, first = counts[0], columns[0]
    others: Counter[tuple[int, Value]] = Counter()
    for column, found in zip(columns[1:], counts[1:], strict=True):
        for kind, part in column.parts.items():
            place = np.full(len(part.values), -1)
            if kind in first.parts:
                place = _places(part, first.parts[kind])
                np.add.at(own[kind], place[place >= 0], found[kind][place >= 0])
            for code in np.flatnonzero((place < 0) & (found[kind] > 0)).tolist():
                others[KINDS.index(kind), _shown(kind, part.values[code])] += int(found[kind][code])
    everything = np.concatenate([*own.values(), np.zeros(0, np.int64)])
    best = [
        (int(everything[place]), *_value(first, place))
        for place in _largest(everything, limit).tolist()
    ]
    best += [(times, kind, value) for (kind, value), times in others.items()]
    best.sort(key=lambda one: (-one[0], *one[1:]))
    bounds = [
        bound
        for column, found in zip(columns, counts, strict=True)
        for bound in _bounds(column, found)
    ]
    return Facet(
        values=tuple(ValueCount(value, times) for times, _, value in best[:limit]),
        distinct=int(np.count_nonzero(everything)) + len(others),
        missing=sum(
            int(np.count_nonzero(mask & ~column.present()))
            for column, mask in zip(columns, masks, strict=True)
        ),
        least=_plain(min(bounds)) if bounds else None,
        greatest=_plain(max(bounds)) if bounds else None,
    )


# Values of a segment of live documents → the bundle's: they stay as long as both do.
_known_places: WeakKeyDictionary[Part, tuple[ref[Part], Int64]] = WeakKeyDictionary()


def _places(part: Part, first: Part) -> Int64:
    """Where each value of a part stands among another's, int64 (V,); −1 where it does not."""
    known = _known_places.get(part)
    if known is not None and known[0]() is first:
        return known[1]
    spans = [first.equal(value) for value in part.values]
    place = np.array([span.start if span else -1 for span in spans], np.int64)
    _known_places[part] = ref(first), place
    return place


def _counts(column: Column, matching: Mask) -> dict[Kind, Int64]:
    return {kind: part.counts(matching) for kind, part in column.parts.items()}


def _bounds(column: Column, counts: Mapping[Kind, Int64]) -> list[float]:
    """The least and the greatest number that is counted."""
    if "number" not in counts:
        return []
    held = np.flatnonzero(counts["number"])
    values = column.parts["number"].values
    return [float(values[held[0]]), float(values[held[-1]])] if len(held) else []


def _largest(counts: Int64, limit: int) -> Int64:
    """Places of the largest counts above zero, descending, ties by place."""
    places = np.flatnonzero(counts)
    if len(places) > limit:
        found = counts[places]
        kth = np.partition(found, len(found) - limit)[len(found) - limit]
        ties = np.flatnonzero(found == kth)[: limit - np.count_nonzero(found > kth)]
        places = places[np.sort(np.concatenate([np.flatnonzero(found > kth), ties]))]
    return places[np.argsort(-counts[places], kind="stable")]


def _value(column: Column, place: int) -> tuple[int, Value]:
    """Kind, by its place among KINDS, and value at a place in the parts' dictionaries one after another."""
    for kind, part in column.parts.items():
        if place < len(part.values):
            return KINDS.index(kind), _shown(kind, part.values[place])
        place -= len(part.values)
    raise IndexError(place)


def _shown(kind: Kind, value: Value) -> Value:
    return _plain(float(value)) if kind == "number" else value


def _plain(number: float) -> float:
    """A number as JSON had it: 3, not 3.0. Beyond 2^53 it was no integer."""
    whole = number.is_integer() and abs(number) <= LARGEST_INTEGER
    return int(number) if whole else number
