"""Facets: how often each value of a field occurs among the documents that a filter lets through."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fullrank.columns import Column, Columns
from fullrank.columns.build import LARGEST_INTEGER
from fullrank.columns.table import Int64, Mask
from fullrank.filters import Value, column_of


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
    column = column_of(columns, field, path)
    counts = {kind: part.counts(matching) for kind, part in column.parts.items()}
    everything = np.concatenate([*counts.values(), np.zeros(0, np.int64)])
    least = greatest = None
    if "number" in counts:
        held = np.asarray(column.parts["number"].values)[counts["number"] > 0]
        if len(held):
            least, greatest = _plain(float(held[0])), _plain(float(held[-1]))
    return Facet(
        values=tuple(
            ValueCount(_value(column, place), int(everything[place]))
            for place in _largest(everything, limit).tolist()
        ),
        distinct=int(np.count_nonzero(everything)),
        missing=int(np.count_nonzero(matching & ~column.present())),
        least=least,
        greatest=greatest,
    )


def _largest(counts: Int64, limit: int) -> Int64:
    """Places of the largest counts above zero, descending, ties by place."""
    places = np.flatnonzero(counts)
    if len(places) > limit:
        found = counts[places]
        kth = np.partition(found, len(found) - limit)[len(found) - limit]
        ties = np.flatnonzero(found == kth)[: limit - np.count_nonzero(found > kth)]
        places = places[np.sort(np.concatenate([np.flatnonzero(found > kth), ties]))]
    return places[np.argsort(-counts[places], kind="stable")]


def _value(column: Column, place: int) -> Value:
    """The value at a place in the parts' dictionaries one after another."""
    for kind, part in column.parts.items():
        if place < len(part.values):
            value: Value = part.values[place]
            return _plain(float(value)) if kind == "number" else value
        place -= len(part.values)
    raise IndexError(place)


def _plain(number: float) -> float:
    """A number as JSON had it: 3, not 3.0. Beyond 2^53 it was no integer."""
    whole = number.is_integer() and abs(number) <= LARGEST_INTEGER
    return int(number) if whole else number
