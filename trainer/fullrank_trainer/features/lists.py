"""Lists of different lengths, one for each of some rows, in two arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Int64

Value = TypeVar("Value", bound=np.generic)
_Other = TypeVar("_Other", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Lists(Mapping[int, npt.NDArray[Value]], Generic[Value]):
    """A list for each of some rows.

    Attributes:
        rows: int64 (B,), distinct.
        starts: int64 (B + 1,); row i of ``rows`` has the entries starts[i]:starts[i + 1].
        entries: (entries,).
    """

    rows: Int64
    starts: Int64
    entries: npt.NDArray[Value]

    @staticmethod
    def of(given: Mapping[int, npt.NDArray[Value]], kind: npt.DTypeLike) -> Lists[Value]:
        """Make lists of a dtype from arrays by row.

        Example:
            >>> Lists.of({7: np.array([3, 5]), 2: np.array([4])}, np.int64).take(np.array([2, 7]))
            (array([0, 1, 3]), array([4, 3, 5]))
        """
        starts = np.zeros(len(given) + 1, np.int64)
        np.cumsum([len(found) for found in given.values()], out=starts[1:])
        entries = np.concatenate([np.zeros(0, kind), *given.values()], dtype=kind)
        return Lists(np.array([*given], np.int64), starts, entries)

    def __getitem__(self, row: int) -> npt.NDArray[Value]:
        place = self._place(row)
        if place < 0:
            raise KeyError(row)
        return self.entries[self.starts[place] : self.starts[place + 1]]

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int | np.integer) and self._place(int(row)) >= 0

    def __iter__(self) -> Iterator[int]:
        return iter(self.rows.tolist())

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def sizes(self) -> Int64:
        """The length of each list, int64 (B,)."""
        return np.diff(self.starts)

    @property
    def owners(self) -> Int64:
        """The row that each entry belongs to, int64 (entries,)."""
        return np.repeat(self.rows, self.sizes)

    def with_entries(self, entries: npt.NDArray[_Other]) -> Lists[_Other]:
        """Give lists of the same lengths other entries."""
        return Lists(self.rows, self.starts, entries)

    def take(self, rows: Int64) -> tuple[Int64, npt.NDArray[Value]]:
        """Return the lists of some rows one after another.

        Returns:
            starts, int64 (rows + 1,), and the entries: those of row i are from starts[i] to starts[i + 1].

        Raises:
            KeyError: a row has no list.
        """
        if np.array_equal(rows, self.rows):
            return self.starts, self.entries
        places = self._places(rows)
        if places.min(initial=0) < 0:
            raise KeyError(int(rows[places < 0][0]))
        first, sizes = self.starts[places], self.starts[places + 1] - self.starts[places]
        starts = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(sizes, out=starts[1:])
        return starts, self.entries[np.arange(starts[-1]) + np.repeat(first - starts[:-1], sizes)]

    def of_rows(self, rows: Int64) -> Lists[Value]:
        """Return the lists that some rows have, in the order of these rows."""
        rows = rows[self._places(rows) >= 0]
        return Lists(rows, *self.take(rows))

    def among(self, rows: Int64) -> Lists[Value]:
        """Return the lists of the rows that are among some, in their own order."""
        return self.of_rows(self.rows[np.isin(self.rows, rows)])

    def where(self, kept: npt.NDArray[np.bool_]) -> Lists[Value]:
        """Keep some entries, and the rows that have any.

        Args:
            kept: bool (entries,).
        """
        if kept.all() and (self.sizes > 0).all():
            return self
        # int32, because a number of 8 bytes for each entry would be the largest array here.
        before = np.cumsum(kept, dtype=np.int32 if len(kept) < 2**31 else np.int64)
        starts = np.zeros(len(self.starts), np.int64)
        starts[self.starts > 0] = before[self.starts[self.starts > 0] - 1]
        has_any = starts[1:] > starts[:-1]
        return Lists(
            self.rows[has_any], np.append(starts[:-1][has_any], starts[-1]), self.entries[kept]
        )

    def chosen(
        self, choose: Callable[[int, npt.NDArray[Value]], npt.NDArray[np.bool_]]
    ) -> npt.NDArray[np.bool_]:
        """Return which entries a function chooses, given a row and its list; bool (entries,)."""
        nothing = np.zeros(0, np.bool_)
        return np.concatenate([nothing, *(choose(row, found) for row, found in self.items())])

    def joined(self, other: Lists[Value]) -> Lists[Value]:
        """Return these lists, then those of other rows."""
        return Lists(
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.starts, other.starts[1:] + self.starts[-1]]),
            np.concatenate([self.entries, other.entries]),
        )

    @cached_property
    def _ascending(self) -> tuple[Int64, Int64] | None:
        """The rows ascending, and the place of each; None if they ascend already."""
        if (self.rows[1:] > self.rows[:-1]).all():
            return None
        order = np.argsort(self.rows)
        return self.rows[order], order

    def _place(self, row: int) -> int:
        rows, order = self._ascending or (self.rows, None)
        place = int(rows.searchsorted(row))
        if place == len(rows) or rows[place] != row:
            return -1
        return place if order is None else int(order[place])

    def _places(self, rows: Int64) -> Int64:
        """Return the place of each row; -1 where it has no list."""
        known, order = self._ascending or (self.rows, None)
        if not len(known):
            return np.full(len(rows), -1, np.int64)
        places = known.searchsorted(rows)
        places[places == len(known)] = 0
        missing = known[places] != rows
        if order is not None:
            places = order[places]
        places[missing] = -1
        return places
