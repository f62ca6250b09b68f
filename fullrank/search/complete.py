"""Completion of what a person is typing."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from heapq import merge
from itertools import islice, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fullrank.kernels.words import find_beginning
from fullrank.models.contract import Model
from fullrank.models.widening import NO_ADDITIONS, Additions, shares_of
from fullrank.models.words import Words
from fullrank.storage.encoding import Float64, Int32
from fullrank.storage.strings import StringTable, bytes_of
from fullrank.text.folding import folded_words
from fullrank.text.spelling import END, letters_between
from fullrank.text.words import query_words

# Texts that begin with what was typed, or with what is one edit away from it.
#
# All texts are kept in the order of their folded form, so those with one prefix stand next to each other: two binary
# searches find them. An edited prefix is tried only if it can occur: a replaced or added letter must be one that some
# text has between the same neighbours. The part before the edit must be the beginning of some text, so the search
# ends at the first letter that continues no text.

MIN_LETTERS = 4
"""A prefix of this many letters or more may have one typing error."""
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


# Completions: queries that several people asked, titles, and words.
#
# Texts that begin with the typed text come before texts that begin one edit away from it, queries before titles,
# titles before words, frequent texts before rare ones, short ones before long ones, and then by code point. If some
# query or title has all other typed words, a word completes the last one only if such a text has it, too. If none has,
# any word does, but no number. Two texts that are equal after folding are one, of the first kind. An edit of the last
# letter is tried only if nothing else is found, because every text with the letters before it fits.

_WORD_LETTERS = 3
_LOOKED_AT = 50
"""How many words beyond the limit are tried, because those that no text has with the other words are left out."""
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
        found: dict[str, Completion] = {}
        for number in by_text(prefix, limit):
            text = self._whole[number]
            found[text.key] = Completion(text.text, text.kind)
        head, last = _last_word(typed)
        others = prefix.split()[:-1]
        if last and all(word in self._by_word for word in others):
            words = [self._words[number] for number in by_word(last, limit + _LOOKED_AT)]
            near = self._together.having(others)

            def fits(word: Candidate) -> bool:
                if len(near):
                    return len(self._together.having([word.key], near)) > 0
                return not word.key.isdigit()

            for word in islice(filter(fits, words), limit):
                whole = head + word.text
                found.setdefault(folded_prefix(whole), Completion(whole, Kind.WORD))
        return found


class _Together:
    """Which words stand together in texts.

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


def _last_word(typed: str) -> tuple[str, str]:
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


# The last word of a query as the beginning of a word: "coff" finds coffee.
#
# A query gets the lexical features of the most frequent known words that begin with its last word, with a share of
# the weight that typed words have. An unknown last word is probably incomplete, so its completions get a larger
# share; those of a known word weigh much less than the word itself.


# Chosen on validation queries of tldr/en: shares of completions of an unknown and of a known word, completions, and the
# least letters of a word.
UNKNOWN, KNOWN = 0.4, 0.1
MOST, LEAST_LETTERS = 8, 2
# after every letter of a word
# Last words of queries; of each, a kilobyte.
_CACHED = 1 << 14
_LONGEST = 200  # characters of a query that are read


def last_word(query: str) -> str:
    """Return the word at the end of a query; "" if the query ends with a space or a sign, because the word is complete.

    Example:
        >>> last_word("Hot Coff"), last_word("hot coffee ")
        ('coff', '')
    """
    if not query[-1:].isalnum():
        return ""
    return (query_words(query[-_LONGEST:]) or ("",))[-1]


def places_beginning(ascending: Sequence[str], word: str) -> range:
    """Return the places of the words that begin with a word and are longer."""
    if isinstance(ascending, StringTable):
        first, last = find_beginning(ascending.blob, ascending.offsets, bytes_of(word))
    else:
        first = bisect_left(ascending, word)
        last = bisect_left(ascending, word + _LAST, first)
    return range(first + (first < last and ascending[first] == word), last)


def has(ascending: Sequence[str], word: str) -> bool:
    """Return whether a word is one of some ascending words."""
    place = bisect_left(ascending, word)
    return place < len(ascending) and ascending[place] == word


class Prefixes:
    """Completes the last words of queries for one model."""

    def __init__(self, model: Model, known: Words) -> None:
        self._model, self._known = model, known
        self._of_word: dict[str, Additions] = {}

    @cached_property
    def _tables(self) -> list[tuple[Sequence[str], Float64]]:
        return [_ascending(table.words, frequency) for table, frequency in self._known.tables]

    def of(self, query: str) -> Additions:
        """Return the features that completions of its last word add to a query."""
        word = last_word(query)
        if len(word) < LEAST_LETTERS:
            return NO_ADDITIONS
        found = self._of_word.get(word)
        if found is None:
            if len(self._of_word) >= _CACHED:
                self._of_word.clear()
            is_known = self._known.is_known(word)
            found = additions(self._model, self.completions(word), is_known=is_known)
            self._of_word[word] = found
        return found

    def completions(self, word: str) -> list[str]:
        """Return the most frequent known words that begin with a word and are longer, the most frequent first."""
        found: dict[str, float] = {}
        for known, frequency in self._tables:
            places = places_beginning(known, word)
            rows: Sequence[int] = places
            if len(places) > MOST:
                own = -frequency[places.start : places.stop]
                rows = (places.start + np.argpartition(own, MOST - 1)[:MOST]).tolist()
            for row in rows:
                found.setdefault(known[row], float(frequency[row]))
        return sorted(found, key=lambda other: (-found[other], other))[:MOST]


def additions(model: Model, completions: Sequence[str], *, is_known: bool) -> Additions:
    """Return the features that completions of a word add to a query."""
    if not completions:
        return NO_ADDITIONS
    sparse = model.encode_queries(completions).sparse
    return shares_of(completions, sparse, KNOWN if is_known else UNKNOWN)


def _ascending(known: Sequence[str], frequency: Float64) -> tuple[Sequence[str], Float64]:
    """Return the known words, ascending, and their frequencies; pairs of words are left out."""
    has_pairs = any(" " in word for word in known)
    if not has_pairs and all(one < other for one, other in pairwise(known)):
        return known, frequency
    names = list(known)
    words = (row for row, name in enumerate(names) if " " not in name)
    order = sorted(words, key=names.__getitem__)
    return StringTable.of(names[row] for row in order), frequency[order]
