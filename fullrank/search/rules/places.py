"""Pinned documents in a ranking, page by page.

The whole list is the ranking without the pinned documents, with each pinned document inserted at its place. A second
pin of one place moves to the next free place; a pin beyond the end follows the last document. A page needs no earlier
page: the pins alone say how many ranked documents stand before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


def spread(places: Iterable[int]) -> list[int]:
    """Return the places of pins, ascending: each requested place, or the next free one.

    Example:
        >>> spread([0, 0, 4])
        [0, 1, 4]
    """
    found: list[int] = []
    for place in sorted(places):
        found.append(max(place, found[-1] + 1) if found else place)
    return found


@dataclass(frozen=True, slots=True)
class Page:
    """The places offset..offset + limit of a list with pins."""

    offset: int
    limit: int
    pinned: Sequence[int]

    @property
    def ranked_offset(self) -> int:
        """The first place of the ranking that the page needs."""
        return self.offset - sum(place < self.offset for place in self.pinned)

    @property
    def ranked_limit(self) -> int:
        """How many documents of the ranking it needs."""
        end = self.offset + self.limit
        return self.limit - sum(self.offset <= place < end for place in self.pinned)

    def put(self, ranked: Sequence[T], total: int, pins: Sequence[T]) -> tuple[list[T], list[int]]:
        """Return the page and the places of its pins on it.

        Args:
            total: Documents of the whole ranking.
            pins: One for each of `pinned`.
        """
        at = self._at(total)
        end = min(self.offset + self.limit, total + len(pins))
        page: list[T] = []
        shown: list[int] = []
        rest = iter(ranked)
        for place in range(self.offset, end):
            if place in at:
                shown.append(len(page))
                page.append(pins[at[place]])
                continue
            found = next(rest, None)
            if found is None:  # the ranking was shorter than `total`
                break
            page.append(found)
        return page, shown

    def _at(self, total: int) -> Mapping[int, int]:
        return {min(place, total + number): number for number, place in enumerate(self.pinned)}
