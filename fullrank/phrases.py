"""Phrases: a document's title, taken whole, as one more exact-match feature.

Whoever links to an article writes its title; that the whole title stands in the query says more than that its words do.
A phrase is the sequence of words of a short field (1 to ``LONGEST`` words); a query holds it when the same words follow
one another there.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property
from multiprocessing import get_context

import numpy as np

from fullrank.features import Rows
from fullrank.text import words

LONGEST = 8
_PARALLEL_CHARACTERS = 4_000_000


def phrase_of(text: str) -> str:
    """The phrase a text is, words joined by spaces; "" when it has none or more than ``LONGEST``."""
    found = words(text)
    return " ".join(found) if len(found) <= LONGEST else ""


class Phrases:
    """Known phrases, each a row."""

    def __init__(self, phrases: Sequence[str]) -> None:
        self.phrases = phrases

    def __len__(self) -> int:
        return len(self.phrases)

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

    def count(self, text: str) -> dict[int, int]:
        """Row → how often that phrase stands in the text; overlapping ones all count."""
        if not len(self):
            return {}
        sequence = words(text)
        counts: dict[int, int] = {}
        lengths, index = self._lengths, self.index
        for start, word in enumerate(sequence):
            for length in lengths.get(word, ()):
                row = index.get(word if length == 1 else " ".join(sequence[start : start + length]))
                if row is not None:
                    counts[row] = counts.get(row, 0) + 1
        return counts

    def rows(self, texts: Sequence[str], *, processes: int = 1) -> Rows:
        """Counts of every phrase in every text, (B, phrases)."""
        if processes > 1 and sum(map(len, texts)) >= _PARALLEL_CHARACTERS:
            context = get_context("spawn")
            with ProcessPoolExecutor(processes, context, _receive, (list(self.phrases),)) as pool:
                counted = list(pool.map(_count, texts, chunksize=64))
        else:
            counted = [self.count(text) for text in texts]
        return Rows.from_lists([(list(c), list(c.values())) for c in counted], len(self))

    def own(self, texts: Sequence[str]) -> Rows:
        """For each text the row of the phrase that it is, value 1."""
        found = [self.index.get(phrase_of(text)) for text in texts]
        return Rows.from_lists(
            [([], []) if row is None else ([row], [1.0]) for row in found], len(self)
        )


def no_phrases(count: int) -> Rows:
    """``count`` empty rows of width 0."""
    return Rows(np.zeros(count + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 0)


_received = Phrases([])


def _receive(phrases: list[str]) -> None:
    """Give a worker process its phrases, once."""
    global _received
    _received = Phrases(phrases)


def _count(text: str) -> dict[int, int]:
    return _received.count(text)
