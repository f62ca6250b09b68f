"""Outline a bundle for people who see it for the first time: fields to filter by, and texts to search for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from fullrank.bundle import Bundle
from fullrank.filters.columns import Column, Kind

EXAMPLES = 3
MAX_EXAMPLE_CHARS = 40
# Titles are read in so many places of the bundle, so that a large bundle takes no longer.
_SAMPLED = 192


@dataclass(frozen=True, slots=True)
class FieldOutline:
    """A stored field that filters and facets can read.

    Attributes:
        kinds: Kinds of its values.
        distinct: Number of different values; booleans count as two.
    """

    kinds: tuple[Kind, ...]
    distinct: int


@dataclass(frozen=True, slots=True)
class Outline:
    """What a bundle holds.

    Attributes:
        fields: Fields with values that filters and facets can read, by name; none of a bundle without columns.
        examples: At most EXAMPLES titles of its documents, to try as queries.
    """

    fields: Mapping[str, FieldOutline]
    examples: tuple[str, ...]


_outlines: WeakKeyDictionary[Bundle, Outline] = WeakKeyDictionary()


def outline_of(bundle: Bundle) -> Outline:
    """Return the outline of a bundle; it is read once.

    Args:
        bundle: A loaded bundle. Its live documents are not looked at.

    Returns:
        Its fields and examples.
    """
    outline = _outlines.get(bundle)
    if outline is None:
        # A bundle of an earlier release would have to read all documents to build its columns.
        columns = bundle.columns.by_name if "columns" in bundle.sections else {}
        fields = {name: _field(column) for name, column in columns.items() if column.parts}
        outline = _outlines[bundle] = Outline(fields, _examples(bundle))
    return outline


def _field(column: Column) -> FieldOutline:
    return FieldOutline(
        tuple(column.parts), sum(len(part.values) for part in column.parts.values())
    )


def _examples(bundle: Bundle) -> tuple[str, ...]:
    """Return different short titles from all over the bundle, of several words if there are enough."""
    found = list(dict.fromkeys(_titles(bundle)))
    several = [title for title in found if " " in title]
    wanted = several if len(several) >= EXAMPLES else found
    step = max(1, len(wanted) // EXAMPLES)
    return tuple(wanted[::step][:EXAMPLES])


def _titles(bundle: Bundle) -> Iterator[str]:
    documents = bundle.documents
    for row in range(0, len(documents), max(1, len(documents) // _SAMPLED)):
        title = documents.fields(row).get("title")
        if isinstance(title, str) and 0 < len(title.strip()) <= MAX_EXAMPLE_CHARS:
            yield title.strip()
