"""2-grams as features of the latent part: two words that follow one another, known ones only.

A 2-gram is written as its two words and a space, which no word holds, so words and 2-grams share one vocabulary. A line
end separates words: fields joined by one count what the fields count apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from fullrank.text.words import words


def is_bigram(feature: str) -> bool:
    """Whether a word of a vocabulary is a 2-gram."""
    return " " in feature


class Bigrams:
    """Known 2-grams, and the counter that counts them beside the words of a text."""

    def __init__(self, bigrams: Iterable[str]) -> None:
        self._known = {tuple(bigram.split(" ")): bigram for bigram in bigrams}

    def __len__(self) -> int:
        return len(self._known)

    def count(self, text: str) -> dict[str, int]:
        """How often each word and each known 2-gram stands in the text; overlapping ones all count."""
        counts: Counter[str] = Counter()
        pairs: Counter[tuple[str, str]] = Counter()
        for line in text.split("\n"):
            sequence = words(line)
            counts.update(sequence)
            pairs.update(pairwise(sequence))
        known = self._known
        for pair, times in pairs.items():
            bigram = known.get(pair)
            if bigram is not None:
                counts[bigram] = times
        return counts
