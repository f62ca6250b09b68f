"""The last word of a query as the beginning of a word: "coff" finds coffee.

A query gets the lexical features of the most frequent known words that begin with its last word, with a share of the
weight that typed words have. An unknown last word is probably incomplete, so its completions get a larger share;
those of a known word weigh much less than the word itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from fullrank.encoding import Float64
from fullrank.kernels.words import find_beginning
from fullrank.models.contract import Model
from fullrank.models.known import KnownWords
from fullrank.models.widening import NO_ADDITIONS, Additions, shares_of
from fullrank.storage.strings import StringTable, bytes_of
from fullrank.text.words import query_words

# Chosen on validation queries of tldr/en: shares of completions of an unknown and of a known word, completions, and the
# least letters of a word.
UNKNOWN, KNOWN = 0.4, 0.1
MOST, LEAST_LETTERS = 8, 2
_LAST = "\U0010ffff"  # after every letter of a word
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
    """Completes the last words of queries for one model.

    Args:
        model: Encodes queries.
        known: Its words.
    """

    def __init__(self, model: Model, known: KnownWords) -> None:
        self._model, self._known = model, known
        self._tables = [_ascending(table.words, frequency) for table, frequency in known.tables]
        self._of_word = lru_cache(_CACHED)(self._find)

    def of(self, query: str) -> Additions:
        """Return the features that completions of its last word add to a query."""
        word = last_word(query)
        return self._of_word(word) if len(word) >= LEAST_LETTERS else NO_ADDITIONS

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

    def _find(self, word: str) -> Additions:
        return additions(self._model, self.completions(word), is_known=self._known.is_known(word))


def additions(model: Model, completions: Sequence[str], *, is_known: bool) -> Additions:
    """Return the features that completions of a word add to a query.

    Args:
        model: Encodes the query.
        completions: Words that begin with the word and are longer.
        is_known: Whether the word itself is known.
    """
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
