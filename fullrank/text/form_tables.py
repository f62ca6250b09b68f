"""What the forms of words are found by, in arrays that can be mapped.

KeyedRows   words, or compounds, under a key
FormTables  the folded keys of words, their keys in the singular, and the forms of each known word
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from fullrank.encoding import Float64, Int32, Int64
from fullrank.storage.checks import ascends
from fullrank.storage.lexicon import Lexicon

RowTuple = tuple[int, ...]
"""The row of a word, or those of the words of a compound."""


@dataclass(frozen=True, eq=False)
class KeyedRows:
    """Row tuples under keys.

    Attributes:
        keys: K strings.
        starts: int64 (K + 1,); the tuples of key k are those from starts[k] to starts[k + 1].
        ends: int64 (tuples + 1,); tuple e is rows[ends[e]:ends[e + 1]].
        rows: int32.

    Raises:
        ValueError: The arrays do not fit together.
    """

    keys: Lexicon
    starts: Int64
    ends: Int64
    rows: Int32

    def __post_init__(self) -> None:
        is_fit = len(self.starts) == len(self.keys) + 1 and len(self.ends) > 0
        is_fit = is_fit and ascends(self.starts, len(self.ends) - 1)
        if not is_fit or not ascends(self.ends, len(self.rows)):
            raise ValueError("the rows of forms do not fit their keys")

    @staticmethod
    def of(found: Mapping[str, Sequence[RowTuple]]) -> KeyedRows:
        """Store a dictionary."""
        tuples = list(chain.from_iterable(found.values()))
        return KeyedRows(
            Lexicon.of(found),
            _bounds(list(map(len, found.values()))),
            _bounds(list(map(len, tuples))),
            np.array(list(chain.from_iterable(tuples)), np.int32),
        )

    def get(self, key: str) -> list[RowTuple]:
        """Return the tuples under a key."""
        place = self.keys.find(key)
        if place < 0:
            return []
        first, last = self.starts[place : place + 2].tolist()
        ends = self.ends[first : last + 1].tolist()
        return [tuple(self.rows[a:b].tolist()) for a, b in pairwise(ends)]


@dataclass(frozen=True, eq=False)
class FormTables:
    """The tables of Forms.

    Attributes:
        folded: Key → the words that are equal to it after folding but not before, and compounds.
        singulars: Key in the singular → the words whose folded key differs from it.
        starts: int64 (W + 1,); the forms of known word w are those from starts[w] to starts[w + 1].
        rows: int32, ascending for each word.
        shares: float64, of its weight.

    Raises:
        ValueError: The arrays do not fit together.
    """

    folded: KeyedRows
    singulars: KeyedRows
    starts: Int64
    rows: Int32
    shares: Float64

    def __post_init__(self) -> None:
        words = len(self.starts) - 1
        if len(self.rows) != len(self.shares) or not ascends(self.starts, len(self.rows)):
            raise ValueError("the forms of known words do not fit together")
        for rows in (self.rows, self.folded.rows, self.singulars.rows):
            if len(rows) and not 0 <= rows.min() <= rows.max() < words:
                raise ValueError("a form is not one of the known words")

    def of(self, row: int) -> list[tuple[int, float]]:
        """Return (row, share) of the forms of a known word."""
        first, last = self.starts[row : row + 2].tolist()
        rows, shares = self.rows[first:last].tolist(), self.shares[first:last].tolist()
        return list(zip(rows, shares, strict=True))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays by name."""
        found: dict[str, np.ndarray] = {
            "forms.starts": self.starts,
            "forms.rows": self.rows,
            "forms.shares": self.shares,
        }
        for name, keyed in (("folded", self.folded), ("singulars", self.singulars)):
            found[f"forms.{name}.starts"] = keyed.starts
            found[f"forms.{name}.ends"] = keyed.ends
            found[f"forms.{name}.rows"] = keyed.rows
        return found

    def strings(self) -> dict[str, Sequence[str]]:
        """Return the keys by name."""
        return {"forms.folded": self.folded.keys, "forms.singulars": self.singulars.keys}

    @staticmethod
    def stored(
        arrays: Mapping[str, np.ndarray], strings: Mapping[str, Sequence[str]], words: int
    ) -> FormTables | None:
        """Return the tables of `words` known words from their stored parts; None if the bundle has no tables.

        Raises:
            KeyError, ValueError: They are incomplete, or do not fit together.
        """
        if "forms.starts" not in arrays:
            return None
        folded, singulars = (
            KeyedRows(
                Lexicon.of(strings[f"forms.{name}"]),
                arrays[f"forms.{name}.starts"],
                arrays[f"forms.{name}.ends"],
                arrays[f"forms.{name}.rows"],
            )
            for name in ("folded", "singulars")
        )
        starts = arrays["forms.starts"]
        if len(starts) != words + 1:
            raise ValueError(f"forms.starts has {len(starts)} numbers where {words + 1} are needed")
        return FormTables(folded, singulars, starts, arrays["forms.rows"], arrays["forms.shares"])


def _bounds(sizes: Sequence[int]) -> Int64:
    bounds = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return bounds
