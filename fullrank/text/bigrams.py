"""Known 2-grams, two consecutive words, as features of the dense part.

A 2-gram is written as its two words and a space, which no word contains, so words and 2-grams share one vocabulary. A
line end separates words: fields joined by newlines give the same counts as the fields alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from fullrank.text.words import words


def is_bigram(feature: str) -> bool:
    return " " in feature


class Bigrams:
    """Known 2-grams; counts them along with the words of a text."""

    def __init__(self, bigrams: Iterable[str]) -> None:
        self._known = {tuple(bigram.split(" ")): bigram for bigram in bigrams}

    def __len__(self) -> int:
        return len(self._known)

    def count(self, text: str) -> dict[str, int]:
        """Count each word and each known 2-gram of a text, overlapping ones too."""
        counts: Counter[str] = Counter()
        pairs: Counter[tuple[str, str]] = Counter()
        for line in text.split("\n"):
            sequence = words(line)
            counts.update(sequence)
            pairs.update(pairwise(sequence))
        known = self._known
        for pair, count in pairs.items():
            bigram = known.get(pair)
            if bigram is not None:
                counts[bigram] = count
        return counts
