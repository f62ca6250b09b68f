"""φ of texts over the trained rows that their words are composed of, without multiplying it out.

    φ = x C        x: (texts, words), C: (words, trained rows), see ``composition``

A word has a row of its own and one for each of its letter trigrams, so x C of a corpus has several times as many
entries as x. A step on a batch composes each word of the batch once, and then reads it for every text that has it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Int64, Rows


@dataclass(frozen=True, eq=False)
class Phi:
    """φ of texts.

    Attributes:
        words: x, (texts, words).
        parts: C, (words, trained rows); None if each word is a trained row.
    """

    words: Rows
    parts: Rows | None = None

    def __len__(self) -> int:
        return len(self.words)

    @property
    def width(self) -> int:
        """Number of trained rows."""
        return self.words.width if self.parts is None else self.parts.width

    def slice(self, start: int, stop: int) -> Phi:
        """View texts start..stop."""
        return Phi(self.words.slice(start, stop), self.parts)

    def composed(self) -> Rows:
        """Return x C, (texts, trained rows)."""
        return self.words if self.parts is None else self.words.multiply(self.parts)

    def split(self) -> tuple[Rows | None, Rows]:
        """Return C of the words that occur, (occurring words, trained rows), and x over these words.

        Without C it is None, and x is returned as it is.
        """
        if self.parts is None:
            return None, self.words
        occurring, local = localized(self.words)
        return self.parts.take(occurring), local

    @property
    def arrays(self) -> list[npt.NDArray[np.generic]]:
        """The arrays of both matrices."""
        return [*self.words.arrays, *(() if self.parts is None else self.parts.arrays)]


def localized(rows: Rows) -> tuple[Int64, Rows]:
    """Return the columns that have an entry, ascending, and the rows over these columns."""
    occurs = np.zeros(rows.width, np.bool_)
    occurs[rows.indices] = True
    columns = np.flatnonzero(occurs)
    place = np.empty(rows.width, np.int32)
    place[columns] = np.arange(len(columns), dtype=np.int32)
    return columns, Rows(rows.indptr, place[rows.indices], rows.values, len(columns))
