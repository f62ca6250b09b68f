"""φ of texts over the trained rows that their words are composed of, without multiplying it out.

    φ = x C        x: (texts, words), C: (words, trained rows), see ``composition``

A word has a row of its own and one for each of its letter trigrams, so x C of a corpus has several times as many
entries as x. A step on a batch composes each word of the batch once, and then reads it for every text that has it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Rows


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

    @property
    def arrays(self) -> list[npt.NDArray[np.generic]]:
        """The arrays of both matrices."""
        return [*self.words.arrays, *(() if self.parts is None else self.parts.arrays)]
