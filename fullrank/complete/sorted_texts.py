"""Texts that begin with what was typed, or with what is one edit away from it.

All texts are kept in the order of their folded form, so those with one prefix stand next to each other: two binary
searches find them. An edited prefix is tried only if it can occur: a replaced or added letter must be one that some
text has between the same neighbours. The part before the edit must be the beginning of some text, so the search ends
at the first letter that continues no text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from typing import Any, TypeVar

import numpy as np

from fullrank.text.folding import folded_words
from fullrank.text.spelling import END, letters_between

MIN_LETTERS = 4
"""Shortest prefix of which an edit is forgiven."""
_STEP, _MERGED_AT_ONCE = 2_000, 200
_NONE = np.zeros(0, np.int64)
_LAST = "\U0010ffff"  # after every letter of a word

T = TypeVar("T")
Pause = Callable[[], object]


def no_pause() -> None:
    """No-op pause."""


def folded_prefix(text: str) -> str:
    """Return the folded form of the beginning of a text; a space at its end marks its last word as complete.

    Example:
        >>> folded_prefix("Crème"), folded_prefix("crème ")
        ('creme', 'creme ')
    """
    key = " ".join(folded_words(text))
    return key + " " if key and text[-1:].isspace() else key


def sorted_in_steps(items: Sequence[T], key: Callable[[T], Any], pause: Pause) -> list[T]:
    """Return sorted(items, key=key), with pauses, because the built-in lets no other thread run."""
    parts = []
    for start in range(0, len(items), _STEP):
        parts.append(sorted(items[start : start + _STEP], key=key))
        pause()
    found = []
    for number, item in enumerate(merge(*parts, key=key)):
        if number % _MERGED_AT_ONCE == 0:
            pause()
        found.append(item)
    return found


class SortedTexts:
    """Texts, the best first, found by prefix.

    Args:
        keys: The folded form of each text, all different, the best text first.
        pause: Called at intervals, to let other threads run.

    Example:
        >>> texts = SortedTexts(["copy files", "move", "copy"])
        >>> texts.beginning("cop", 5), texts.one_edit_away("cpoy", 5)
        ([0, 2], [0, 2])
        >>> texts.one_edit_away("movr", 5), texts.without_last("movr", 5)
        ([], [1])
    """

    def __init__(self, keys: Sequence[str], pause: Pause = no_pause) -> None:
        order = sorted_in_steps(range(len(keys)), keys.__getitem__, pause)
        self._order = np.array(order, np.int64)
        self._keys = [keys[number] for number in self._order.tolist()]
        self._between = letters_between(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: str) -> bool:
        place = bisect_left(self._keys, key)
        return place < len(self._keys) and self._keys[place] == key

    def beginning(self, prefix: str, limit: int) -> list[int]:
        """Return the numbers of the best texts with a prefix, the best first."""
        return self._best([self._range(prefix, (0, len(self._keys)))], limit)

    def one_edit_away(self, prefix: str, limit: int) -> list[int]:
        """Return the numbers of the best texts with a prefix one edit away, in which the last letter is right.

        Empty for a prefix of fewer than `MIN_LETTERS` letters.
        """
        if len(prefix.rstrip()) < MIN_LETTERS:
            return []
        return self._best(list(dict.fromkeys(self._near(prefix))), limit)

    def without_last(self, prefix: str, limit: int) -> list[int]:
        """Return the numbers of the best texts that begin with all but the last letter of a prefix.

        Empty for a prefix of fewer than `MIN_LETTERS` letters.
        """
        return self.beginning(prefix[:-1], limit) if len(prefix.rstrip()) >= MIN_LETTERS else []

    def _range(self, prefix: str, inside: tuple[int, int]) -> tuple[int, int]:
        """Return the range of the texts with a prefix, given a range that has them all."""
        first = bisect_left(self._keys, prefix, *inside)
        if first == inside[1] or not self._keys[first].startswith(prefix):
            return first, first
        return first, bisect_left(self._keys, prefix + _LAST, first, inside[1])

    def _best(self, ranges: Sequence[tuple[int, int]], limit: int) -> list[int]:
        numbers = np.concatenate([self._order[first:last] for first, last in ranges] or [_NONE])
        if len(numbers) > limit * len(ranges):
            # Ranges may overlap, so a text may occur several times.
            numbers = np.partition(numbers, limit * len(ranges) - 1)[: limit * len(ranges)]
        found: list[int] = np.unique(numbers)[:limit].tolist()
        return found

    def _near(self, typed: str) -> Iterator[tuple[int, int]]:
        """Yield the ranges of the prefixes one edit away that some text has."""
        marked = END + typed
        inside = (0, len(self._keys))
        for i, letter in enumerate(typed):
            head, tail = typed[:i], typed[i + 1 :]
            inside = self._range(head, inside)
            if inside[0] == inside[1]:
                return
            for other in self._edited(marked[i], letter, tail):
                first, last = self._range(head + other, inside)
                if first < last:
                    yield first, last

    def _edited(self, before: str, letter: str, tail: str) -> Iterator[str]:
        """Yield the edits of a letter and the letters after it, given the letter before."""
        after = tail[:1]
        if after:
            yield tail
            for other in self._between.get(before + after, ""):
                if other != letter:
                    yield other + tail
            if after != letter:
                yield after + letter + tail[1:]
        for other in self._between.get(before + letter, ""):
            yield other + letter + tail
