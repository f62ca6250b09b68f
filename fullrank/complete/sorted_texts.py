"""Texts that begin with what was typed, or with what is one edit away from it.

All texts are kept in the order of their folded form, so those with one prefix stand next to each other: two binary
searches find them. A prefix one edit away is tried if its letters occur: in place of a letter, or between two, only
letters that some text has between the same neighbours. The part before the edit must be the beginning of a text, so the
first letter that no text goes on with ends the search.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import numpy as np

from fullrank.encoding import Int64
from fullrank.text.folding import folded_words
from fullrank.text.spelling import END, letters_between

MIN_LETTERS = 4
"""Shortest prefix of which an edit is forgiven."""
_LAST = "\U0010ffff"  # after every letter of a word


def folded_prefix(text: str) -> str:
    """Return the folded form of the beginning of a text; a space at its end completes its last word.

    Example:
        >>> folded_prefix("Crème"), folded_prefix("crème ")
        ('creme', 'creme ')
    """
    key = " ".join(folded_words(text))
    return key + " " if key and text[-1:].isspace() else key


class SortedTexts:
    """Texts, the best first, found by prefix.

    Args:
        keys: The folded form of each text, all different; a text of lesser number is better.

    Example:
        >>> texts = SortedTexts(["copy files", "move", "copy"])
        >>> texts.beginning("cop", 5), texts.one_edit_away("cpoy", 5)
        ([0, 2], [0, 2])
        >>> texts.one_edit_away("movr", 5), texts.one_edit_away("movr", 5, at_end=True)
        ([], [1])
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
        self._keys = [keys[number] for number in self._order.tolist()]
        self._between = letters_between(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: str) -> bool:
        place = bisect_left(self._keys, key)
        return place < len(self._keys) and self._keys[place] == key

    def beginning(self, prefix: str, limit: int) -> list[int]:
        """Return the numbers of the best texts with a prefix, the best first."""
        first, last = self._range(prefix)
        return self._best(self._order[first:last], limit)

    def one_edit_away(self, prefix: str, limit: int, *, at_end: bool = False) -> list[int]:
        """Return the numbers of the best texts with a prefix one edit away.

        Args:
            prefix: Folded. Empty for one of fewer than `MIN_LETTERS` letters.
            limit: How many.
            at_end: Whether the last letter too may be wrong; then every text that begins with the others is found.
        """
        if len(prefix.rstrip()) < MIN_LETTERS:
            return []
        ranges = {self._range(other) for other in self._edited(prefix, at_end)}
        found = [self._best(self._order[first:last], limit) for first, last in ranges]
        return sorted({number for some in found for number in some})[:limit]

    def _range(self, prefix: str) -> tuple[int, int]:
        first = bisect_left(self._keys, prefix)
        return first, bisect_left(self._keys, prefix + _LAST, first)

    def _best(self, numbers: Int64, limit: int) -> list[int]:
        if len(numbers) > limit:
            numbers = np.partition(numbers, limit - 1)[:limit]
        found: list[int] = np.sort(numbers).tolist()
        return found

    def _edited(self, typed: str, at_end: bool) -> Iterator[str]:
        """Yield prefixes one edit away."""
        marked = END + typed
        for i, letter in enumerate(typed):
            head, tail = typed[:i], typed[i + 1 :]
            first, last = self._range(head)
            if first == last:
                return
            before, after = marked[i], typed[i + 1 : i + 2]
            if after or at_end:
                yield head + tail
            if after:
                for other in self._between.get(before + after, ""):
                    if other != letter:
                        yield head + other + tail
                if after != letter:
                    yield head + after + letter + tail[1:]
            for other in self._between.get(before + letter, ""):
                yield head + other + letter + tail
