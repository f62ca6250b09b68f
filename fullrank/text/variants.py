"""Known words that a word of a query may stand for, each with a share of its weight.

    s ← s + Σ_w x_w S_w        x_w: the weight of word w of the query, S_w: the shares of its variants, each in (0, 1]

Documents and the index stay as they are: only queries change. Folding (café, cafe) and spelling are sources of
variants; of several sources the first that knows any variant of a word decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from fullrank.encoding import Rows

# Longer queries are documents: they have enough words of their own, and more of them only add noise and time.
MAX_WORDS = 64


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


def share_table(
    words: Sequence[str], counts: Rows, sources: Sequence[Variants], width: int
) -> Rows | None:
    """Return S: the shares of each word's variants, a row a word, (words, width).

    Args:
        words: The words of the columns of counts.
        counts: Of queries; a word that does not occur gets an empty row.
        sources: Of variants, the first one first.
        width: Number of known words.

    Returns:
        The shares; None if no word has a variant.
    """
    if not sources:
        return None
    rows: list[tuple[Sequence[int], Sequence[float]]] = [((), ())] * len(words)
    is_empty = True
    for column in counts.distinct():
        found = variants_of(words[column], sources)
        if found:
            rows[column] = ([row for row, _ in found], [share for _, share in found])
            is_empty = False
    return None if is_empty else Rows.from_lists(rows, width)


def spread(weights: Rows, shares: Rows) -> Rows:
    """Return Σ_w x_w S_w of every row of weights, (B, width)."""
    return weights.multiply(shares)
