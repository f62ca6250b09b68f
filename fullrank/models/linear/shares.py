"""Split u·v by word of the document: (the word's share of v)·u. The shares of all words add up to u·v.

A v that training fitted to a document, or that was made from more than its text, is not that of its text alone; the
shares then only say which of its words are near the query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fullrank.models.linear.sides import DenseSide, SparseSide
from fullrank.retrieval.scoring import TermShare
from fullrank.storage.encoding import Encoded, Float32, Float64, Int64, Rows
from fullrank.text.features import Counts
from fullrank.text.spelling import MAX_WORDS, variants_of
from fullrank.text.words import is_bigram

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
    """Return the dense shares of W distinct words in B documents, float64 (B, W), zero for words that a document lacks.

    A 2-gram counts half for each of its words.

    Args:
        finish: Scales rows of v as the model does.
        is_unit: Whether it divides them by their norms.
        u: float32 (N,), of the query.
        counts: Of the documents, one column per field.
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


# Split an encoded query by word: the share of each word in u and s.


def terms(
    dense: DenseSide,
    sparse: SparseSide,
    finish: Finish,
    counts: Counts,
    dense_counts: Rows,
    sequences: Rows,
    encoded: Encoded,
) -> list[TermShare]:
    """Return each word with its share of u and its sparse weight; then the phrases.

    Args:
        finish: Scales rows of the dense side as the model does.
        counts, dense_counts: Of one text, for the lexical and for the dense side.
        sequences: What SparseSide.sequences returned for it.
        encoded: That text, encoded.
    """
    weight = dict(zip(encoded.sparse.indices.tolist(), encoded.sparse.values.tolist(), strict=True))
    width = encoded.dense.shape[1]
    shares = np.zeros((len(counts.words), width), np.float32)
    if width:
        shares = _shares(dense, finish, counts.words, dense_counts, encoded.dense[0])
    nothing = np.zeros(width, np.float32)
    share_of = dict(zip(counts.words, shares, strict=True))
    found = []
    for word, features in _features(sparse, counts, sequences, weight).items():
        share = share_of.get(word, nothing)
        match features:
            case []:
                found.append(TermShare(word, share, -1, 0.0))
            case [(feature, own)]:
                found.append(TermShare(word, share, feature, own))
            case _:
                places, weights = zip(*features, strict=True)
                parts = np.array(weights, np.float32)
                found.append(TermShare(word, share, np.array(places, np.int32), parts))
    first = len(sparse.words)
    for feature in sorted(f for f in weight if f >= first):
        phrase = sparse.phrases.phrases[feature - first]
        found.append(TermShare(f"“{phrase}”", nothing, feature, weight[feature]))
    return found


def _features(
    sparse: SparseSide, counts: Counts, sequences: Rows, weight: Mapping[int, float]
) -> dict[str, list[tuple[int, float]]]:
    """Return (feature, weight) of each word, ascending; words share a common feature in proportion to their counts.

    A word that the query has in parts comes after the words of the query.
    """
    [column] = counts.columns
    sources = sparse.sources if len(column.indices) <= MAX_WORDS else ()
    amounts: dict[str, dict[int, float]] = {word: {} for word in counts.words}
    for i, tf in zip(column.indices.tolist(), column.values.tolist(), strict=True):
        word = counts.words[i]
        row = sparse.words.row(word)
        if row >= 0:
            amounts[word][row] = tf
        for variant, share in variants_of(word, sources):
            amounts[word][variant] = amounts[word].get(variant, 0.0) + tf * share
    for row, share in zip(*(part.tolist() for part in sequences.row(0)), strict=True):
        if row < len(sparse.words):
            amount = amounts.setdefault(sparse.words.words[row], {})
            amount[row] = amount.get(row, 0.0) + share
    total: dict[int, float] = {}
    for amount in amounts.values():
        for feature, value in amount.items():
            total[feature] = total.get(feature, 0.0) + value
    return {
        word: [(f, weight.get(f, 0.0) * amount[f] / total[f]) for f in sorted(amount)]
        for word, amount in amounts.items()
    }


def _shares(
    side: DenseSide, finish: Finish, words: Sequence[str], counts: Rows, u: Float32
) -> Float32:
    """Return the share of u of each word, one row per word; the rows add up to u."""
    x, unseen = side.features(words, [counts], [1.0])
    vectors = side.table[x.indices[x.indices < len(side.words)]]
    if unseen:
        late = x.indices[x.indices >= len(side.words)] - len(side.words)
        vectors = np.concatenate([vectors, side.rows_for(unseen)[late]])
    parts = vectors * x.values[:, None]
    if side.tower:
        parts = without_each(side, finish, parts, u)
    else:
        total = np.linalg.norm(parts.sum(0)) if len(parts) else 0.0
        parts = parts * np.float32(np.linalg.norm(u) / total if total else 0.0)
    place = {word: i for i, word in enumerate(words)}
    shares = np.zeros((len(place), len(u)), np.float32)
    for part, index in zip(parts, x.indices.tolist(), strict=True):
        known = index < len(side.words)
        word = side.words.words[index] if known else unseen[index - len(side.words)]
        shares[place[word]] = part
    return shares


def without_each(side: DenseSide, finish: Finish, parts: Float32, u: Float32) -> Float32:
    """Return the shares of u of a query under a tower, given each word's part of the table's sum.

    δ_i = u − (u without word i). The δ_i do not add up to u because u is not linear, so the rest, u − Σ δ, is
    distributed in proportion to ‖δ_i‖.
    """
    if not len(parts):
        return np.zeros((0, len(u)), np.float32)
    others = finish(side.tower.apply(parts.sum(0) - parts))
    if len(parts) == 1:
        others[:] = 0
    change = u - others
    size = np.linalg.norm(change, axis=1, keepdims=True)
    share = size / size.sum() if size.any() else np.full_like(size, 1 / len(size))
    return np.asarray(change + share * (u - change.sum(0)), np.float32)
