"""Split an encoded query by word: the share of each word in u and s."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fullrank.encoding import Encoded, Float32, Rows
from fullrank.models.linear.dense import DenseSide
from fullrank.models.linear.sparse import SparseSide
from fullrank.scoring import TermShare
from fullrank.text.features import Counts
from fullrank.text.variants import MAX_WORDS, variants_of

Finish = Callable[[Float32], Float32]


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
        dense: The query's dense side.
        sparse: The lexical part.
        finish: Scales rows of the dense side as the model does.
        counts: Of one text.
        dense_counts: Of the same words, for the dense side.
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
    """Return (feature, weight) of each word: its own feature and those of its variants, ascending.

    Words that have a feature in common, a bucket or a variant, share its weight in proportion to their counts there. A
    word that the query has in parts comes after the words of the query.
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
