"""Phrases: a document's whole title as one more lexical feature.

A link to an article often contains its title, and the whole title in a query says more than each of its words. A phrase
is the sequence of words of a short field (1 to `MAX_WORDS` words); a query contains it if the same words follow one
another there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from fullrank.encoding import Rows
from fullrank.text.features import count_corpus
from fullrank.text.sequences import number_words
from fullrank.text.words import words

MAX_WORDS = 8


def phrases_of(texts: Sequence[str]) -> list[str]:
    """Join the words of each text by spaces; "" for no words or more than `MAX_WORDS`."""
    number: dict[str, int] = {}
    indptr, numbers = number_words(texts, number)
    names, places = list(number), numbers.tolist()
    return [
        " ".join([names[i] for i in places[start:stop]]) if stop - start <= MAX_WORDS else ""
        for start, stop in pairwise(indptr.tolist())
    ]


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
    def _lengths(self) -> dict[str, dict[str, list[int]]]:
        """First word → second word, "" for none → the lengths of the phrases that start with the two."""
        lengths: dict[str, dict[str, list[int]]] = {}
        for phrase in self.phrases:
            first, *rest = phrase.split(" ")
            found = lengths.setdefault(first, {}).setdefault(rest[0] if rest else "", [])
            if len(rest) + 1 not in found:
                found.append(len(rest) + 1)
        return lengths

    def count(self, text: str) -> dict[str, int]:
        """Count the known phrases of a text, overlapping ones too."""
        return self._count(words(text))

    def _count(self, sequence: Sequence[str]) -> dict[str, int]:
        counts: dict[str, int] = {}
        lengths, index = self._lengths, self.index
        for start, word in enumerate(sequence):
            # Most words of a long query start no phrase, and most pairs of words none of the rest.
            seconds = lengths.get(word)
            if seconds is None:
                continue
            if "" in seconds:
                counts[word] = counts.get(word, 0) + 1
            if start + 1 == len(sequence):
                break
            for length in seconds.get(sequence[start + 1], ()):
                parts = sequence[start : start + length]
                if len(parts) == length and (phrase := " ".join(parts)) in index:
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
        if not len(self):
            return Rows.empty(len(texts), 0)
        found = [self.index.get(phrase) for phrase in phrases_of(texts)]
        return Rows.from_lists(
            [([], []) if row is None else ([row], [1.0]) for row in found], len(self)
        )
