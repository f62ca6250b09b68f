"""Split u·v by word of the document: (the word's share of v)·u. The shares of all words add up to u·v.

A v that training fitted to a document, or that was made from more than its text, is not that of its text alone; the
shares then only say which of its words are near the query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fullrank.encoding import Float32, Float64, Int64, Rows
from fullrank.models.linear.dense import DenseSide
from fullrank.models.linear.terms import without_each
from fullrank.text.bigrams import is_bigram
from fullrank.text.features import Counts

Finish = Callable[[Float32], Float32]


def dense_shares(
    side: DenseSide,
    finish: Finish,
    is_unit: bool,
    u: Float32,
    counts: Counts,
    weights: Sequence[float],
    words: Sequence[str],
) -> Float64:
    """Return the dense shares of words of documents.

    Args:
        side: The documents' dense side.
        finish: Scales rows of v as the model does.
        is_unit: Whether it divides them by their norms.
        u: float32 (N,), of the query.
        counts: Of B documents, one column per field.
        weights: Of the fields.
        words: W distinct words.

    Returns:
        float64 (B, W), zero for words that a document lacks; a 2-gram counts half for each of its words.
    """
    found = np.zeros((len(counts.columns[0]), len(words)))
    x, unseen = side.features(counts.words, counts.columns, weights)
    known = len(side.words)
    used, entry = np.unique(x.indices, return_inverse=True)
    vectors = side.table[used[used < known]]
    if unseen:
        late = used[used >= known] - known
        vectors = np.concatenate([vectors, side.rows_for(unseen)[late]])
    owner = np.repeat(np.arange(len(x)), np.diff(x.indptr))
    if side.tower:
        shares = _tower_shares(side, finish, u, x, vectors[entry])
    else:
        shares = x.values * (vectors @ u).astype(np.float64)[entry]
        if is_unit:
            v = Rows(x.indptr, entry.astype(np.int32), x.values, len(used)).matmul(vectors)
            length = np.linalg.norm(v, axis=1).astype(np.float64)
            shares /= np.where(length > 0, length, 1.0)[owner]
    rows = side.words.rows(words)
    if unseen:
        rows = rows.copy()
        late_row = {word: known + i for i, word in enumerate(unseen)}
        for i in np.flatnonzero(rows < 0).tolist():
            rows[i] = late_row.get(words[i], -1)
    target = _places(used, rows)[entry]
    wanted = np.flatnonzero(target >= 0)
    found[owner[wanted], target[wanted]] = shares[wanted]
    if side.has_bigrams:
        place = {word: i for i, word in enumerate(words)}
        _add_bigrams(found, place, side, used[entry], owner, shares)
    return found


def _places(used: np.ndarray, rows: np.ndarray) -> Int64:
    """Return for each used row its place in `rows`, -1 where it is not there."""
    order = np.argsort(rows, kind="stable")
    if not len(order):
        return np.full(len(used), -1)
    found: Int64 = order[np.minimum(np.searchsorted(rows[order], used), len(order) - 1)]
    return np.where(rows[found] == used, found, -1)


def _tower_shares(side: DenseSide, finish: Finish, u: Float32, x: Rows, parts: Float32) -> Float64:
    """Return the shares of the entries of x under a tower, given the row of the table of each."""
    shares = np.zeros(len(parts))
    for start, stop in zip(x.indptr.tolist(), x.indptr[1:].tolist(), strict=False):
        own = parts[start:stop] * x.values[start:stop, None]
        if len(own):
            v = finish(side.tower.apply(own.sum(0, keepdims=True)))[0]
            shares[start:stop] = without_each(side, finish, own, v) @ u.astype(np.float64)
    return shares


def _add_bigrams(
    found: Float64,
    place: Mapping[str, int],
    side: DenseSide,
    rows: np.ndarray,
    owner: np.ndarray,
    shares: Float64,
) -> None:
    """Give the shares of 2-grams to their words."""
    names = side.words.words
    for row, document, share in zip(rows.tolist(), owner.tolist(), shares.tolist(), strict=True):
        if row < len(names) and is_bigram(names[row]):
            for word in names[row].split(" "):
                if word in place:
                    found[document, place[word]] += share / 2
