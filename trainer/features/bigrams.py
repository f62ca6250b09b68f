"""Which 2-grams occur often enough to be features, found in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from fullrank.encoding import Int64
from fullrank.text.words import words

_MOST = 8_000_000  # distinct 2-grams held at once, 16 bytes each
_BUFFER = 2_000_000  # 2-grams of texts before they are merged


class _Tally:
    """2-grams as integers, ascending, and how many texts hold each."""

    def __init__(self) -> None:
        self.keys = np.zeros(0, np.int64)
        self.counts = np.zeros(0, np.int64)
        self._waiting: list[Int64] = []
        self._size = 0

    def add(self, keys: Int64) -> None:
        """The distinct 2-grams of one text."""
        self._waiting.append(keys)
        self._size += len(keys)
        if self._size >= _BUFFER:
            self.merge()

    def merge(self) -> None:
        """What waits is added up. Beyond ``_MOST`` 2-grams the rarest so far are forgotten."""
        new, times = np.unique(np.concatenate([self.keys[:0], *self._waiting]), return_counts=True)
        self._waiting, self._size = [], 0
        keys = np.concatenate([self.keys, new])
        counts = np.concatenate([self.counts, times])
        order = np.argsort(keys, kind="stable")
        keys, counts = keys[order], counts[order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        if len(first):
            keys, counts = keys[first], np.add.reduceat(counts, first)
        while len(keys) > _MOST:
            kept = counts > counts.min()
            keys, counts = keys[kept], counts[kept]
        self.keys, self.counts = keys, counts


def frequent_bigrams(
    texts: Iterable[str],
    known: Mapping[str, int],
    least: int,
    *,
    progress: Callable[[int], object] | None = None,
) -> list[str]:
    """The 2-grams that stand in at least ``least`` texts, ascending; a line end separates words.

    known   words that 2-grams may be made of → any distinct numbers below 2³¹. A 2-gram is no more frequent than its
            words: leave out those of fewer than ``least`` texts, and rare 2-grams cost nothing

    Exact as long as no more than 8 million distinct 2-grams of known words are met; beyond that the rarest so far are
    forgotten, and one that comes late may be missed.
    """
    tally = _Tally()
    for text in texts:
        tally.add(_keys(text, known))
        if progress is not None:
            progress(1)
    tally.merge()
    name = {number: word for word, number in known.items()}
    often = tally.keys[tally.counts >= least].tolist()
    return sorted(f"{name[key >> 32]} {name[key & 0xFFFFFFFF]}" for key in often)


def _keys(text: str, known: Mapping[str, int]) -> Int64:
    found = []
    for line in text.split("\n"):
        numbers = np.array([known.get(word, -1) for word in words(line)], np.int64)
        left, right = numbers[:-1], numbers[1:]
        both = (left >= 0) & (right >= 0)
        found.append((left[both] << 32) | right[both])
    return np.unique(np.concatenate(found))
