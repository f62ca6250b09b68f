"""Groups: documents with an equal value of a field; an answer has a limited number of each.

A document with several values belongs to the group of each value and is left out if one of these is full. A document
without a value is in no group. Values of different kinds are different.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fullrank.filters.columns import Columns
from fullrank.filters.columns.table import Column
from fullrank.filters.fields import columns_of_field

Group = tuple[str, object]


@dataclass(frozen=True, slots=True)
class GroupBy:
    """At most `limit` hits for each value of a field."""

    field: str
    limit: int = 1


class Groups:
    """The groups of the documents of several parts.

    Args:
        parts: The columns of each part, as ``aligned`` returns them.
        field: The field.
        path: Place of the field in the request, for errors.

    Raises:
        FilterError: The field is unknown or cannot be a column.
    """

    def __init__(self, parts: Sequence[Columns], field: str, path: str = "group_by.field") -> None:
        self._columns: list[Column] = columns_of_field(parts, field, path)

    def of(self, part: int, row: int) -> list[Group]:
        """Return the groups of a document, given the index of its part and its row."""
        found: list[Group] = []
        for kind, values in self._columns[part].parts.items():
            if values.indptr is None:
                codes = values.codes[row : row + 1]
            else:
                codes = values.codes[values.indptr[row] : values.indptr[row + 1]]
            found += [(kind, values.values[code]) for code in codes.tolist() if code >= 0]
        return found


def within(documents: Iterable[Sequence[Group]], limit: int) -> list[int]:
    """Return the places of the documents that leave their groups within the limit, given the groups of each."""
    counts: Counter[Group] = Counter()
    kept = []
    for place, groups in enumerate(documents):
        if all(counts[group] < limit for group in groups):
            counts.update(groups)
            kept.append(place)
    return kept


def possible(documents: Iterable[Sequence[Group]], limit: int, unordered: int = 0) -> list[int]:
    """Return the places of the documents that may be kept when others, unknown here, come between these.

    A group is full, whatever the others are, after `limit` documents of no other group: each of them is kept and
    counts, or is left out because the group is full already.

    Args:
        documents: The groups of each, in their order.
        limit: Most documents of a group.
        unordered: So many of the first documents may change places with each other, so any of them may be kept.
    """
    counts: Counter[Group] = Counter()
    kept = []
    for place, groups in enumerate(documents):
        if place < unordered or all(counts[group] < limit for group in groups):
            if len(groups) == 1:
                counts.update(groups)
            kept.append(place)
    return kept
