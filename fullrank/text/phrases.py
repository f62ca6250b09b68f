"""Phrases: a document's title, taken whole, as one more exact-match feature.

Whoever links to an article writes its title; that the whole title stands in the query says more than that its words do.
A phrase is the sequence of words of a short field (1 to ``LONGEST`` words); a query holds it when the same words follow
one another there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from fullrank.features import Rows, count_corpus
from fullrank.text.words import words

LONGEST = 8


def phrase_of(text: str) -> str:
    """The phrase a text is, words joined by spaces; "" when it has none or more than ``LONGEST``."""
    found = words(text)
    return " ".join(found) if len(found) <= LONGEST else ""


class Phrases:
    """Known phrases, ascending, each a row."""

    def __init__(self, phrases: Sequence[str]) -> None:
        self.phrases = phrases

    def __len__(self) -> int:
        return len(self.phrases)

    def __reduce__(self) -> tuple[type[Phrases], tuple[list[str]]]:
        return Phrases, (list(self.phrases),)

    @cached_property
    def index(self) -> dict[str, int]:
        """Phrase → row."""
        return {phrase: row for row, phrase in enumerate(self.phrases)}

    @cached_property
    def _lengths(self) -> dict[str, list[int]]:
        """First word → the numbers of words that phrases starting with it have."""
        lengths: dict[str, set[int]] = {}
        for phrase in self.phrases:
            parts = phrase.split(" ")
            lengths.setdefault(parts[0], set()).add(len(parts))
        return {word: sorted(found) for word, found in lengths.items()}

    def count(self, text: str) -> dict[str, int]:
        """Phrase → how often it stands in the text; overlapping ones all count."""
        sequence = words(text)
        counts: dict[str, int] = {}
        lengths, index = self._lengths, self.index
        for start, word in enumerate(sequence):
            for length in lengths.get(word, ()):
                if start + length > len(sequence):
                    break
                phrase = word if length == 1 else " ".join(sequence[start : start + length])
                if phrase in index:
                    counts[phrase] = counts.get(phrase, 0) + 1
        return counts

    def rows(self, texts: Sequence[str], *, processes: int = 1) -> Rows:
        """Counts of every phrase in every text, (B, phrases)."""
        if not len(self):
            return no_phrases(len(texts))
        counted = count_corpus([texts], processes=processes, counter=self.count)
        place = np.array([self.index[phrase] for phrase in counted.words], np.int32)
        rows = counted.columns[0]
        # Phrases ascend in both, so rows stay in order.
        return Rows(rows.indptr, place[rows.indices], rows.values, len(self))

    def own(self, texts: Sequence[str]) -> Rows:
        """For each text the row of the phrase that it is, value 1."""
        found = [self.index.get(phrase_of(text)) for text in texts]
        return Rows.from_lists(
            [([], []) if row is None else ([row], [1.0]) for row in found], len(self)
        )


def no_phrases(count: int) -> Rows:
    """``count`` empty rows of width 0."""
    return Rows(np.zeros(count + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 0)
