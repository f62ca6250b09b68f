"""Known words that a word of a query may stand for, each with a share of its weight.

    s ← s + Σ_w x_w S_w        x_w: the weight of word w of the query, S_w: the shares of its variants, each in (0, 1]

Documents and the index stay as they are: only queries change. Folding (café, cafe) and spelling are sources of
variants; of several sources the first that knows any variant of a word decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from fullrank.encoding import Rows

# Longer queries are documents: they have enough words of their own, and more of them only add noise and time.
MAX_WORDS = 64

_NO_INDICES, _NO_VALUES = np.zeros(0, np.int32), np.zeros(0, np.float32)


class Variants(Protocol):
    """Finds the variants of a word among known words."""

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
    """Return Σ_w x_w S_w of queries, (B, width).

    Args:
        words: The words of the columns of weights.
        weights: x, (B, words).
        sources: Of variants, the first one first.
        width: Number of known words.
    """
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
    """Return S_w of some words of short queries, (words, width); other words have empty rows.

    Args:
        words: The words of the columns of counts.
        counts: Of queries, (B, words).
        sources: Of variants, the first one first.
        width: Number of known words.
        places: Those of the words to look up.
    """
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
    """Return the shares of the variants of the words of some columns, (words, width)."""
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
