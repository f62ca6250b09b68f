"""A query taken apart: what each of its words brings to u and to s."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fullrank.encoding import Encoded, Float32
from fullrank.features import Counts
from fullrank.model import TermShare
from fullrank.models.linear.dense import DenseSide
from fullrank.models.linear.sparse import SparseSide

Finish = Callable[[Float32], Float32]


def terms(
    dense: DenseSide, sparse: SparseSide, finish: Finish, counts: Counts, encoded: Encoded
) -> list[TermShare]:
    """Each word's share of u and its sparse weight; then the phrases.

    finish   what a model makes of the rows of its dense side
    counts   of one text
    encoded  that text
    """
    weight = dict(zip(encoded.indices.tolist(), encoded.weights.tolist(), strict=True))
    width = encoded.dense.shape[1]
    shares = np.zeros((len(counts.words), width), np.float32)
    if width:
        shares = _shares(dense, finish, counts, encoded.dense[0])
    rows = sparse.words.rows(counts.words)
    times = np.zeros(len(rows))
    times[counts.columns[0].indices] = counts.columns[0].values
    # Words of one bucket are one feature: each has the part of its weight that it occurs.
    together = np.bincount(rows[rows >= 0], times[rows >= 0], len(sparse.words))
    found = []
    for word, share, row, tf in zip(
        counts.words, shares, rows.tolist(), times.tolist(), strict=True
    ):
        part = tf / together[row] if row >= 0 else 0.0
        found.append(TermShare(word, share, row, weight.get(row, 0.0) * part))
    first = len(sparse.words)
    nothing = np.zeros(width, np.float32)
    for feature in sorted(f for f in weight if f >= first):
        phrase = sparse.phrases.phrases[feature - first]
        found.append(TermShare(f"“{phrase}”", nothing, feature, weight[feature]))
    return found


def _shares(side: DenseSide, finish: Finish, counts: Counts, u: Float32) -> Float32:
    """Row i: the part of u that word i brought; the rows add up to u."""
    x, unseen = side.features(counts.words, counts.columns, [1.0])
    vectors = side.table[x.indices[x.indices < len(side.words)]]
    if unseen:
        late = x.indices[x.indices >= len(side.words)] - len(side.words)
        vectors = np.concatenate([vectors, side.rows_for(unseen)[late]])
    parts = vectors * x.values[:, None]
    if side.tower:
        parts = _without_each(side, finish, parts, u)
    else:
        total = np.linalg.norm(parts.sum(0)) if len(parts) else 0.0
        parts = parts * np.float32(np.linalg.norm(u) / total if total else 0.0)
    place = {word: i for i, word in enumerate(counts.words)}
    shares = np.zeros((len(place), len(u)), np.float32)
    for part, index in zip(parts, x.indices.tolist(), strict=True):
        known = index < len(side.words)
        word = side.words.words[index] if known else unseen[index - len(side.words)]
        shares[place[word]] = part
    return shares


def _without_each(side: DenseSide, finish: Finish, parts: Float32, u: Float32) -> Float32:
    """Shares of u of a query under a tower, given each word's part of the table's sum.

    δ_i = u − u without word i. They do not add up to u, as u is not linear: what is left over, u − Σ δ, is
    shared out in proportion to ‖δ_i‖.
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
