"""The rows of words in a vocabulary of stems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fullrank.encoding import Int32
from fullrank.text.features import Vocabulary
from fullrank.text.stemming import stemmer


@dataclass(frozen=True, eq=False)
class Stems:
    """A vocabulary of stems, and words as they are written, whose rows are known without their stems.

    Attributes:
        language: Of the stemmer.
        stems: The vocabulary.
        written: Words as they are written.
        stored: int32, the row of the stem of each of them; None to find them on first use.

    Raises:
        ValueError: The stored rows do not fit the words or the stems.
    """

    language: str
    stems: Vocabulary
    written: Vocabulary
    stored: Int32 | None = None

    def __post_init__(self) -> None:
        rows = self.stored
        if rows is None:
            return
        if len(rows) != len(self.written):
            raise ValueError(f"{len(rows)} rows of stems for {len(self.written)} words")
        if len(rows) and not -1 <= rows.min() <= rows.max() < len(self.stems):
            raise ValueError("rows of stems: not every entry is a row of words")

    @cached_property
    def of_written(self) -> Int32:
        """The row of the stem of each word that is written, int32."""
        return self._search(self.written.words) if self.stored is None else self.stored

    def rows(self, words: Sequence[str]) -> Int32:
        """Return the row of the stem of each word, int32, -1 for an unknown one."""
        written = self.written.known.rows(words)
        found = np.full(len(written), -1, np.int32)
        is_written = written >= 0
        found[is_written] = self.of_written[written[is_written]]
        unknown = np.flatnonzero(~is_written)
        if len(unknown):
            found[unknown] = self._search([words[i] for i in unknown.tolist()])
        return found

    def _search(self, words: Sequence[str]) -> Int32:
        return self.stems.rows([*map(stemmer(self.language), words)])
