"""Phrases: a document's whole title as one more lexical feature.

A link to an article often contains its title, and the whole title in a query says more than each of its words. A phrase
is the sequence of words of a short field (1 to `MAX_WORDS` words); a query contains it if the same words follow one
another there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from fullrank.encoding import Rows
from fullrank.text.features import count_corpus
from fullrank.text.words import words

MAX_WORDS = 8


def phrase_of(text: str) -> str:
    """Join the words of a text by spaces; "" for no words or more than `MAX_WORDS`."""
    found = words(text)
    return " ".join(found) if len(found) <= MAX_WORDS else ""


class Phrases:
    """Known phrases, ascending; the row of a phrase is its place."""

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
        """First word → the lengths of the phrases that start with it."""
        lengths: dict[str, set[int]] = {}
        for phrase in self.phrases:
            parts = phrase.split(" ")
            lengths.setdefault(parts[0], set()).add(len(parts))
        return {word: sorted(found) for word, found in lengths.items()}

    def count(self, text: str) -> dict[str, int]:
        """Count the known phrases of a text, overlapping ones too."""
        return self._count(words(text))

    def _count(self, sequence: Sequence[str]) -> dict[str, int]:
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
        """Count the known phrases of each text, (B, phrases)."""
        if not len(self):
            return Rows.empty(len(texts), 0)
        counted = count_corpus([texts], processes=processes, counter=self.count)
        place = np.array([self.index[phrase] for phrase in counted.words], np.int32)
        rows = counted.columns[0]
        # Phrases ascend in both vocabularies, so the entries of a row stay ascending.
        return Rows(rows.indptr, place[rows.indices], rows.values, len(self))

    def rows_of(self, sequence: Sequence[str]) -> Rows:
        """Count the known phrases in the words of one text, (1, phrases): as `rows`, in less time."""
        counts = self._count(sequence) if len(self) else {}
        if not counts:
            return self._none
        found = sorted([(self.index[phrase], count) for phrase, count in counts.items()])
        indices = np.array([row for row, _ in found], np.int32)
        values = np.array([count for _, count in found], np.float32)
        return Rows(np.array([0, len(found)]), indices, values, len(self))

    @cached_property
    def _none(self) -> Rows:
        """One text without a phrase."""
        return Rows.empty(1, len(self))

    def own(self, texts: Sequence[str]) -> Rows:
        """Return for each text the phrase that it is, with value 1."""
        found = [self.index.get(phrase_of(text)) for text in texts]
        return Rows.from_lists(
            [([], []) if row is None else ([row], [1.0]) for row in found], len(self)
        )
