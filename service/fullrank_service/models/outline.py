"""Outline a bundle for people who see it for the first time: fields to filter by, and texts to search for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fullrank.bundle import Bundle
from fullrank.filters.columns import Column, Kind
from fullrank.filters.columns.table import ColumnPart, time_of, times_of

EXAMPLES = 3
MAX_EXAMPLE_CHARS = 40
# Rows whose titles are read, spread over the bundle, so that a large one takes no longer.
_SAMPLED = 192


@dataclass(frozen=True, slots=True)
class FieldOutline:
    """A stored field that filters and facets can read: kinds and number of its values; booleans count as two.

    The least and largest value are those of a field of numbers alone, or of times alone: ISO 8601 in UTC. Else None.
    """

    kinds: tuple[Kind, ...]
    distinct: int
    min: float | str | None = None
    max: float | str | None = None


@dataclass(frozen=True, slots=True)
class Outline:
    """What a bundle holds: fields with values that filters and facets can read, none of a bundle without columns.

    The examples, to try as queries, are at most EXAMPLES titles, or values of the first field that its model reads.
    """

    fields: Mapping[str, FieldOutline]
    examples: tuple[str, ...]


_outlines: WeakKeyDictionary[Bundle, Outline] = WeakKeyDictionary()


def outline_of(bundle: Bundle) -> Outline:
    """Return the outline of a bundle; it is read once. Its live documents are not looked at."""
    outline = _outlines.get(bundle)
    if outline is None:
        # A bundle of an earlier release would have to read all documents to build its columns.
        columns = bundle.columns.by_name if "columns" in bundle.sections else {}
        fields = {name: _field(column) for name, column in columns.items() if column.parts}
        outline = _outlines[bundle] = Outline(fields, examples_of(bundle))
    return outline


def _field(column: Column) -> FieldOutline:
    distinct = sum(len(part.values) for part in column.parts.values())
    bounds = {kind: bounds_of(kind, part) for kind, part in column.parts.items()}
    return field_outline(bounds, distinct)


def field_outline(bounds: Mapping[Kind, tuple[float, float] | None], distinct: int) -> FieldOutline:
    """Return the outline of a field, given the bounds of each kind of its values, as ``bounds_of`` returns them."""
    low: float | str | None = None
    high: float | str | None = None
    if len(bounds) == 1:
        [(kind, found)] = bounds.items()
        if found is not None:
            low, high = found if kind == "number" else (_iso(found[0]), _iso(found[1]))
    return FieldOutline(tuple(bounds), distinct, low, high)


def bounds_of(kind: Kind, part: ColumnPart) -> tuple[float, float] | None:
    """Return the least and the largest of numbers, or of times in seconds since 1970; None of other values."""
    if kind == "number":
        return float(part.values[0]), float(part.values[-1])
    # Most fields of text are not of times, which the first value shows: the others need not be read then.
    if kind == "keyword" and time_of(part.values[0]) is not None:
        times = times_of(part)
        if np.isfinite(times).all():
            return float(times.min()), float(times.max())
    return None


def _iso(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat()


def examples_of(bundle: Bundle) -> tuple[str, ...]:
    """Return different short titles from all over the bundle, of several words if there are enough."""
    return chosen_examples(_titles(bundle))


def chosen_examples(titles: Iterable[str]) -> tuple[str, ...]:
    """Return at most EXAMPLES different titles from all over a list, of several words if there are enough."""
    found = list(dict.fromkeys(titles))
    several = [title for title in found if " " in title]
    wanted = several if len(several) >= EXAMPLES else found
    step = max(1, len(wanted) // EXAMPLES)
    return tuple(wanted[::step][:EXAMPLES])


def searched_fields(card: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields that a model reads; none if its card does not tell."""
    trained = card.get("trained", card)
    fields = trained.get("collection", {}).get("fields", ())
    return [field["name"] for field in fields if field.get("is_read")]


def _titles(bundle: Bundle) -> Iterator[str]:
    documents = bundle.documents
    names = ["title", *searched_fields(bundle.card)]
    for row in range(0, len(documents), max(1, len(documents) // _SAMPLED)):
        fields = documents.fields(row)
        title = next((fields[name] for name in names if fields.get(name)), None)
        if isinstance(title, str) and 0 < len(title.strip()) <= MAX_EXAMPLE_CHARS:
            yield title.strip()
