"""Known words one edit away from an unknown word, and how likely each is the word that was meant.

An edit adds, leaves out or replaces a letter, or swaps two neighbours (Damerau 1964). A known word w has the weight

    P(w | typed) ∝ frequency(w)^β · P(edit)            the noisy channel of Kernighan, Church and Gale 1990

where P(edit) depends on the kind of edit, and is lower if the first letter differs.

The search tries all words one edit away. In place of a letter, or between two, it tries only letters that some known
word has between the same neighbours, so its cost does not grow with the number of alphabets. A table of those letters
is all that it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice, pairwise
from typing import NamedTuple, Protocol

import numpy as np

from fullrank.storage.encoding import Int64, Rows
from fullrank.text.words import is_bigram

MIN_LETTERS = 4  # shorter words have too many neighbours
MAX_LETTERS = 40  # the search takes time in proportion to the square of the letters
MOST = 3
FREQUENCY_POWER = 0.75  # β
FIRST_LETTER = 0.5  # factor on edits that change the first letter, which typing errors rarely do

_CHUNK = 1 << 16  # words read at a time, to bound the memory
END = "\n"  # before and after each word; no word contains it
_BITS = 21  # of a code point
_MASK = (1 << _BITS) - 1


class Edit(Enum):
    MISSING = "a letter is missing"
    HALVED = "one of two equal letters is missing"
    EXTRA = "a letter was added"
    DOUBLED = "a letter was typed twice"
    REPLACED = "a letter was replaced"
    SWAPPED = "two letters changed places"


EDIT_WEIGHTS = {
    Edit.MISSING: 1.0,
    Edit.HALVED: 3.0,
    Edit.EXTRA: 1.0,
    Edit.DOUBLED: 3.0,
    Edit.REPLACED: 1.0,
    Edit.SWAPPED: 2.0,
}


class Neighbour(NamedTuple):
    """A known word one edit away from what was typed, and the edit."""

    word: str
    edit: Edit


class Correction(NamedTuple):
    word: str
    probability: float


class Spelling:
    """Finds the known words that an unknown word may stand for; `frequencies` returns 0 for an unknown word.

    Example:
        >>> counts = {"list": 9, "lift": 1, "files": 5}
        >>> spelling = Spelling(counts, lambda words: [counts.get(word, 0) for word in words])
        >>> spelling.best("flies")
        'files'
    """

    def __init__(
        self, words: Iterable[str], frequencies: Callable[[Sequence[str]], Sequence[float]]
    ) -> None:
        self._between = letters_between(word for word in words if not is_bigram(word))
        self._frequencies = frequencies

    def corrections(self, typed: str, most: int = MOST) -> list[Correction]:
        """Return at most `most` known words, likeliest first; their probabilities add up to 1.

        There is none for a known word, one with a digit, and one of less than `MIN_LETTERS` or more than `MAX_LETTERS`.
        """
        if not MIN_LETTERS <= len(typed) <= MAX_LETTERS or any(map(str.isdigit, typed)):
            return []
        if any(self._frequencies([typed])):
            return []
        weights = {
            near.word: self._weight(typed, near, frequency)
            for near, frequency in self._neighbours(typed)
        }
        best = sorted(weights, key=lambda word: (-weights[word], word))[:most]
        total = sum(weights[word] for word in best)
        return [Correction(word, weights[word] / total) for word in best]

    def best(self, typed: str) -> str | None:
        """Return the known word that was most likely meant; None if nothing is to be corrected."""
        found = self.corrections(typed, 1)
        return found[0].word if found else None

    def neighbours(self, typed: str) -> list[Neighbour]:
        """Return all known words exactly one edit away, each once."""
        return [near for near, _ in self._neighbours(typed)]

    def _neighbours(self, typed: str) -> list[tuple[Neighbour, float]]:
        edits: dict[str, Edit] = {}
        for word, edit in self._one_edit_away(typed):
            edits.setdefault(word, edit)
        frequencies = self._frequencies(list(edits))
        return [
            (Neighbour(word, edits[word]), frequency)
            for word, frequency in zip(edits, frequencies, strict=True)
            if frequency
        ]

    def _weight(self, typed: str, near: Neighbour, frequency: float) -> float:
        first = 1.0 if near.word[0] == typed[0] else FIRST_LETTER
        prior: float = frequency**FREQUENCY_POWER
        return prior * EDIT_WEIGHTS[near.edit] * first

    def _one_edit_away(self, typed: str) -> Iterator[tuple[str, Edit]]:
        """Yield words one edit away and the edit that turns each into `typed`, the known words among them."""
        marked = END + typed + END
        between = self._between
        for i, letter in enumerate(typed):
            before, after = marked[i], marked[i + 2]
            head, tail = typed[:i], typed[i + 1 :]
            if len(typed) > 1:
                yield head + tail, Edit.DOUBLED if letter in (before, after) else Edit.EXTRA
            for other in between.get(before + after, ""):
                if other != letter:
                    yield head + other + tail, Edit.REPLACED
            if tail and after != letter:
                yield head + after + letter + tail[1:], Edit.SWAPPED
        for i, (before, after) in enumerate(pairwise(marked)):
            head, tail = typed[:i], typed[i:]
            for other in between.get(before + after, ""):
                edit = Edit.HALVED if other in (before, after) else Edit.MISSING
                yield head + other + tail, edit


def letters_between(texts: Iterable[str]) -> dict[str, str]:
    """Return the letters that some text has between two neighbours, under the two; `END` is an end of the text."""
    rest = iter(texts)
    keys = np.zeros(0, np.int64)
    while chunk := list(islice(rest, _CHUNK)):
        keys = np.union1d(keys, _triples(END + END.join(chunk) + END))
    pairs, starts = np.unique(keys >> _BITS, return_index=True)
    letters = "".join(map(chr, (keys & _MASK).tolist()))
    bounds = pairwise([*starts.tolist(), len(letters)])
    return {
        chr(pair >> _BITS) + chr(pair & _MASK): letters[first:last]
        for pair, (first, last) in zip(pairs.tolist(), bounds, strict=True)
    }


def _triples(text: str) -> Int64:
    """Return the distinct triples of letters as (left, right, middle) in one integer, without those around an end."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.int64)
    left, middle, right = codes[:-2], codes[1:-1], codes[2:]
    packed = (left << 2 * _BITS) | (right << _BITS) | middle
    return np.unique(packed[middle != ord(END)])


# Known words that a word of a query may stand for, each with a share of its weight.
#
#     s ← s + Σ_w x_w S_w        x_w: the weight of word w of the query, S_w: the shares of its variants, each in (0, 1]
#
# Documents and the index stay as they are: only queries change. Folding (café, cafe) and spelling are sources of
# variants; of several sources the first that knows any variant of a word decides.


# Longer queries are documents: they have enough words of their own, and more of them only add noise and time.
MAX_WORDS = 64

_NO_INDICES, _NO_VALUES = np.zeros(0, np.int32), np.zeros(0, np.float32)


class Variants(Protocol):
    def of(self, word: str) -> Sequence[tuple[int, float]]:
        """Return (row, share) of every variant of a word, known or not; its own row is not among them."""


def variants_of(word: str, sources: Sequence[Variants]) -> Sequence[tuple[int, float]]:
    """Return the variants of a word that the first source with any finds."""
    for source in sources:
        found = source.of(word)
        if found:
            return found
    return ()


def short_queries(counts: Rows, most: int = MAX_WORDS) -> Rows:
    """Empty the rows of queries of more than `most` distinct words."""
    if len(counts.indices) <= most:
        return counts
    sizes = np.diff(counts.indptr)
    is_short = np.repeat(sizes <= most, sizes)
    indptr = np.concatenate([[0], np.cumsum(np.where(sizes <= most, sizes, 0))])
    return Rows(
        indptr.astype(np.int64), counts.indices[is_short], counts.values[is_short], counts.width
    )


def weigh_variants(
    words: Sequence[str], weights: Rows, sources: Sequence[Variants], width: int
) -> Rows:
    """Return Σ_w x_w S_w of queries, (B, width); weights: x, over the words; of sources the first one counts."""
    shares = _shares(words, weights.distinct(), sources, width)
    if not len(shares.indices):
        return Rows.empty(len(weights), width)
    return weights.multiply(shares)


def variant_shares(
    words: Sequence[str],
    counts: Rows,
    sources: Sequence[Variants],
    width: int,
    places: Sequence[int],
) -> Rows:
    """Return S_w of the words at some places, of short queries counted, (words, width); other words have empty rows."""
    if not places or (len(counts) == 1 and len(counts.indices) > MAX_WORDS):
        asked: Iterable[int] = ()
    elif len(counts) == 1 and len(words) == len(counts.indices):
        asked = places  # of a query counted alone, the common case
    else:
        asked = {*places}.intersection(short_queries(counts).distinct())
    return _shares(words, asked, sources, width)


def _shares(
    words: Sequence[str], asked: Iterable[int], sources: Sequence[Variants], width: int
) -> Rows:
    shares: list[tuple[Sequence[int], Sequence[float]]] = []
    if sources:
        for column in asked:
            found = variants_of(words[column], sources)
            if found:
                shares = shares or [((), ())] * len(words)
                known, parts = zip(*found, strict=True)
                shares[column] = (known, parts)
    if shares:
        return Rows.from_lists(shares, width)
    return Rows(np.zeros(len(words) + 1, np.int64), _NO_INDICES, _NO_VALUES, width)
