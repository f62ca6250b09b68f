"""Completions: queries that several people asked, titles, and words.

Texts that begin with the typed text come before texts that begin one edit away from it, queries before titles, titles
before words, frequent texts before rare ones, short ones before long ones, and then by code point. Words that stand
with all other typed words in some query or title come before words that do not, and a number completes only so. Two
texts that are equal after folding are one, of the first kind. An edit of the last letter is tried only if nothing else
is found, because every text with the letters before it fits.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from fullrank.complete.sorted_texts import (
    Pause,
    SortedTexts,
    folded_prefix,
    no_pause,
    sorted_in_steps,
)
from fullrank.encoding import Int32

_WORD_LETTERS = 3
_LOOKED_AT = 50
"""Words that may complete the last one, of which those that stand with the other words come first."""
_BITS = 32
_TEXTS_PER_PAUSE = 200
Search = Callable[[str, int], list[int]]


class Kind(IntEnum):
    """Where a completion comes from, the best first."""

    QUERY = 0
    TITLE = 1
    WORD = 2


class Candidate(NamedTuple):
    """A text that may complete what is typed.

    Attributes:
        key: Its folded form, `folded_prefix` of it.
        text: As it is shown.
        kind: Where it comes from.
        frequency: For the order among texts of its kind.
    """

    key: str
    text: str
    kind: Kind
    frequency: float


class Completion(NamedTuple):
    """A completed text and where it comes from."""

    text: str
    kind: Kind


class Completions:
    """Completes texts. Immutable.

    Args:
        candidates: In any order. Queries and titles complete the whole typed text, words its last word.
        pause: Called at intervals while they are sorted, to let other threads run.

    Example:
        >>> title = Candidate("tv set", "TV set", Kind.TITLE, 0)
        >>> texts = Completions([title, Candidate("settings", "settings", Kind.WORD, 3)])
        >>> [found.text for found in texts.complete("tv se", 5)], [found.text for found in texts.complete("set", 5)]
        (['TV set'], ['settings'])
    """

    def __init__(self, candidates: Iterable[Candidate], pause: Pause = no_pause) -> None:
        best = sorted_in_steps(list(candidates), _rank, pause)
        whole: dict[str, Candidate] = {}
        words: dict[str, Candidate] = {}
        for found in best:
            (words if found.kind == Kind.WORD else whole).setdefault(found.key, found)
        self._together = _Together(list(whole), pause)
        for number in self._together.numbers:
            words.setdefault(number, Candidate(number, number, Kind.WORD, 0.0))
        self._whole, self._words = list(whole.values()), list(words.values())
        self._by_text = SortedTexts([found.key for found in self._whole], pause)
        self._by_word = SortedTexts([found.key for found in self._words], pause)

    def __len__(self) -> int:
        return len(self._whole) + len(self._words)

    def complete(self, typed: str, limit: int) -> list[Completion]:
        """Return at most `limit` completions of what is typed, the best first."""
        prefix = folded_prefix(typed)
        if not prefix:
            return []
        texts, words = self._by_text, self._by_word
        found = self._found(texts.beginning, words.beginning, typed, prefix, limit)
        if len(found) < limit:
            near = self._found(texts.one_edit_away, words.one_edit_away, typed, prefix, limit)
            found = {**found, **{key: one for key, one in near.items() if key not in found}}
        if not found:
            found = self._found(texts.without_last, words.without_last, typed, prefix, limit)
        return list(found.values())[:limit]

    def _found(
        self, by_text: Search, by_word: Search, typed: str, prefix: str, limit: int
    ) -> dict[str, Completion]:
        """Return queries and titles, then words, by their folded form."""
        found: dict[str, Completion] = {}
        for number in by_text(prefix, limit):
            text = self._whole[number]
            found[text.key] = Completion(text.text, text.kind)
        head, last = _last_word(typed, prefix)
        others = prefix.split()[:-1]
        if last and all(word in self._by_word for word in others):
            words = [self._words[number] for number in by_word(last, limit + _LOOKED_AT)]
            near = self._together.having(others)
            fits = {
                word.key
                for word in words
                if others and len(self._together.having([word.key], near))
            }
            words = [word for word in words if word.key in fits or not word.key.isdigit()]
            for word in sorted(words, key=lambda word: word.key not in fits)[:limit]:
                whole = head + word.text
                found.setdefault(folded_prefix(whole), Completion(whole, Kind.WORD))
        return found


class _Together:
    """Which words stand together in texts.

    Args:
        keys: The folded form of each text.
        pause: Called at intervals, to let other threads run.

    Attributes:
        numbers: Words of at least two digits and nothing else, the most frequent first.
    """

    def __init__(self, keys: Sequence[str], pause: Pause) -> None:
        place: dict[str, int] = {}
        entries = array("q")
        for text, key in enumerate(keys):
            if text % _TEXTS_PER_PAUSE == 0:
                pause()
            own = {place.setdefault(word, len(place)) for word in key.split()}
            entries.extend(word << _BITS | text for word in own)
        packed = np.sort(np.array(entries, np.int64))
        self._place = place
        self._bounds = np.searchsorted(packed, np.arange(len(place) + 1) << _BITS)
        self._texts = (packed & ((1 << _BITS) - 1)).astype(np.int32)
        numbers = [word for word in place if len(word) > 1 and word.isdigit()]
        self.numbers = sorted(numbers, key=lambda word: -len(self.having([word])))

    def having(self, words: Iterable[str], among: Int32 | None = None) -> Int32:
        """Return the texts that have all of some words, ascending; among: some of the texts, None for all."""
        found = among
        for word in words:
            row = self._place.get(word)
            own = (
                self._texts[:0] if row is None else self._texts[slice(*self._bounds[row : row + 2])]
            )
            if found is not None and len(found) and len(own):
                few, many = sorted((found, own), key=len)
                places = np.minimum(np.searchsorted(many, few), len(many) - 1)
                own = few[many[places] == few]
            found = own if found is None or len(found) else found
        return self._texts[:0] if found is None else found


def _last_word(typed: str, prefix: str) -> tuple[str, str]:
    """Return the text before the last word as typed, and the folded last word; "" if the text ends between words."""
    parts = typed.split()
    if typed[-1:].isspace() or " " in folded_prefix(parts[-1]):
        return "", ""
    return typed[: len(typed.rstrip()) - len(parts[-1])], folded_prefix(parts[-1])


def _rank(found: Candidate) -> tuple[int, float, int, str]:
    return found.kind, -found.frequency, len(found.text), found.text


def is_completing_word(word: str) -> bool:
    """Return whether a word of a vocabulary helps a person: no 2-gram, no number, no part of a run of letters."""
    if len(word) < _WORD_LETTERS or not any(map(str.isalpha, word)):
        return False
    return (word.isascii() and word.isalnum()) or (
        " " not in folded_prefix(word * 2) and " " not in word
    )
