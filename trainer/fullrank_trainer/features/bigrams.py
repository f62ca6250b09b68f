"""Find frequent 2-grams in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from fullrank.encoding import Int64
from fullrank.text.words import words

_MAX_BIGRAMS = 8_000_000  # distinct 2-grams in memory, 16 bytes each
_BUFFER = 2_000_000  # 2-grams of texts between two merges


class _BigramCounter:
    """Count in how many texts each 2-gram occurs; 2-grams are integers, ascending."""

    def __init__(self) -> None:
        self.keys = np.zeros(0, np.int64)
        self.counts = np.zeros(0, np.int64)
        self._buffer: list[Int64] = []
        self._buffered = 0

    def add(self, keys: Int64) -> None:
        """Add the distinct 2-grams of one text."""
        self._buffer.append(keys)
        self._buffered += len(keys)
        if self._buffered >= _BUFFER:
            self.merge()

    def merge(self) -> None:
        """Add the buffer to the counts. Beyond ``_MAX_BIGRAMS`` 2-grams the rarest are dropped."""
        new, new_counts = np.unique(
            np.concatenate([self.keys[:0], *self._buffer]), return_counts=True
        )
        self._buffer, self._buffered = [], 0
        keys = np.concatenate([self.keys, new])
        counts = np.concatenate([self.counts, new_counts])
        order = np.argsort(keys, kind="stable")
        keys, counts = keys[order], counts[order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        if len(first):
            keys, counts = keys[first], np.add.reduceat(counts, first)
        while len(keys) > _MAX_BIGRAMS:
            kept = counts > counts.min()
            keys, counts = keys[kept], counts[kept]
        self.keys, self.counts = keys, counts


def frequent_bigrams(
    texts: Iterable[str],
    known: Mapping[str, int],
    min_texts: int,
    *,
    progress: Callable[[int], object] | None = None,
) -> list[str]:
    """Find the 2-grams that occur in at least ``min_texts`` texts.

    Args:
        texts: a line end separates words, so no 2-gram spans it.
        known: words that 2-grams may consist of → distinct numbers below 2³¹. A 2-gram is no more frequent than its
            words, so leave out words of fewer than ``min_texts`` texts to save time and memory.
        min_texts: smallest number of texts.
        progress: called with the number of texts done since.

    Returns:
        2-grams as "word word", ascending. The result is exact up to 8 million distinct 2-grams of known words; beyond
        that the rarest are dropped, so a 2-gram that becomes frequent late may be missed.
    """
    counter = _BigramCounter()
    for text in texts:
        counter.add(_keys(text, known))
        if progress is not None:
            progress(1)
    counter.merge()
    name = {number: word for word, number in known.items()}
    frequent = counter.keys[counter.counts >= min_texts].tolist()
    return sorted(f"{name[key >> 32]} {name[key & 0xFFFFFFFF]}" for key in frequent)


def _keys(text: str, known: Mapping[str, int]) -> Int64:
    """Return the distinct 2-grams of a text, as integers: the first word's number · 2³² + the second's."""
    found = []
    for line in text.split("\n"):
        numbers = np.array([known.get(word, -1) for word in words(line)], np.int64)
        left, right = numbers[:-1], numbers[1:]
        both = (left >= 0) & (right >= 0)
        found.append((left[both] << 32) | right[both])
    return np.unique(np.concatenate(found))
