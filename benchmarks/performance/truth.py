"""Brute force: the full score of every document in float64, from the arrays of the bundle.

No retrieval code is used. Documents are scored in tiles; those near the k-th score are summed again exactly (math.fsum
over products that float64 represents without rounding), so that equal documents tie, and ties are ordered by row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.measures import Float64, Int64
from fullrank.retrieval import Ranking
from fullrank.storage.encoding import Encoded

TOLERANCE = 1e-9  # of a score below 1 in absolute value; relative above
_TILE = 1 << 15  # documents
_BATCH = 64  # queries
_DRAWS = 10_000  # of the bootstrap
_ROUNDING = 1e-9  # error of the float64 sums of a tile, relative to their size


@dataclass(frozen=True, eq=False)
class Truth:
    """The top k of one query: rows and float64 scores; tied: further rows with the k-th score."""

    rows: Int64
    scores: Float64
    tied: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))


def brute_force(
    documents: Encoded,
    queries: Encoded,
    k: int,
    *,
    matching: npt.NDArray[np.bool_] | None = None,
    advance: Callable[[int], object] = lambda done: None,
) -> list[Truth]:
    """Return the top k of each query over the documents (where ``matching``, bool (n,), is true)."""
    found: list[Truth] = []
    for start in range(0, len(queries), _BATCH):
        part = queries.slice(start, min(start + _BATCH, len(queries)))
        found += _batch(documents, part, k, matching)
        advance(len(part))
    return found


def _batch(
    documents: Encoded, queries: Encoded, k: int, matching: npt.NDArray[np.bool_] | None
) -> list[Truth]:
    words = queries.sparse.csr().toarray().T.astype(np.float64)
    dense = queries.dense.T.astype(np.float64)
    best: list[tuple[Int64, Float64]] = [(np.zeros(0, np.int64), np.zeros(0))] * len(queries)
    for start in range(0, len(documents), _TILE):
        tile = documents.slice(start, min(start + _TILE, len(documents)))
        rows = np.arange(start, start + len(tile))
        scores = np.asarray(tile.sparse.csr().astype(np.float64) @ words)
        if dense.size:
            scores += tile.dense.astype(np.float64) @ dense
        scores += tile.bias.astype(np.float64)[:, None]
        if matching is not None:
            kept = matching[start : start + len(tile)]
            rows, scores = rows[kept], scores[kept]
        for i, line in enumerate(np.ascontiguousarray(scores.T)):
            best[i] = _merged(best[i], rows, line, k)
    return [
        _ranked(documents, queries.slice(i, i + 1), rows, k) for i, (rows, _) in enumerate(best)
    ]


def _merged(
    best: tuple[Int64, Float64], rows: Int64, scores: Float64, k: int
) -> tuple[Int64, Float64]:
    """Return all rows that may still be among the first k."""
    if len(best[0]) >= k:
        likely = scores >= best[1].min()
        rows, scores = rows[likely], scores[likely]
    rows, scores = np.concatenate([best[0], rows]), np.concatenate([best[1], scores])
    if len(rows) <= k:
        return rows, scores
    kth = float(np.partition(scores, len(scores) - k)[len(scores) - k])
    kept = scores >= kth - _ROUNDING * max(1.0, abs(kth))
    return rows[kept], scores[kept]


def _ranked(documents: Encoded, query: Encoded, rows: Int64, k: int) -> Truth:
    u, indices, weights, _ = query.row(0)
    words = dict(zip(indices.tolist(), weights.astype(np.float64).tolist(), strict=True))
    scores = np.zeros(len(rows))
    for place, row in enumerate(rows.tolist()):
        v, there, t, bias = documents.row(row)
        products = (u.astype(np.float64) * v).tolist()
        known = [
            (words[w], x) for w, x in zip(there.tolist(), t.tolist(), strict=True) if w in words
        ]
        scores[place] = math.fsum([*products, *(s * x for s, x in known), float(bias)])
    order = np.lexsort((rows, -scores))
    best, rest = order[:k], order[k:]
    tied = rest[scores[rest] == scores[best[-1]]] if len(rest) else rest
    return Truth(rows[best], scores[best], rows[tied])


def recall(rows: Sequence[int] | Int64, truth: Truth, k: int) -> float:
    """Return the share of the true first k (or of all, if fewer) among the first k found.

    A document that ties with the k-th, which the order of rows left out, is as good as it.
    """
    if not len(truth.rows):
        return 1.0
    good = {*truth.rows.tolist(), *truth.tied.tolist()}
    found = len(good & {int(row) for row in rows[:k]})
    return min(found, len(truth.rows)) / len(truth.rows)


def mean_recall(answers: Sequence[Int64], truths: Sequence[Truth], k: int) -> float:
    """Return the mean over the queries, to five digits."""
    found = [recall(a, t, k) for a, t in zip(answers, truths, strict=True)]
    return round(float(np.mean(found)), 5)


def recall_bounds(answers: Sequence[Int64], truths: Sequence[Truth], k: int) -> tuple[float, float]:
    """Return the ends of the 95 % interval of the mean, by the bootstrap: queries drawn again 10,000 times."""
    found = np.array([recall(a, t, k) for a, t in zip(answers, truths, strict=True)])
    rng, count = np.random.default_rng(1), len(found)
    means = [found[rng.integers(0, count, count)].mean() for _ in range(_DRAWS)]
    low, high = np.quantile(means, (0.025, 0.975))
    return round(float(low), 5), round(float(high), 5)


def equal(ranking: Ranking, truth: Truth) -> bool:
    """Whether rows and order are equal, and scores agree within TOLERANCE."""
    k = len(ranking.rows)
    if not np.array_equal(ranking.rows, truth.rows[:k]):
        return False
    scores: Any = truth.scores[:k]
    return bool(
        np.all(np.abs(ranking.scores - scores) <= TOLERANCE * np.maximum(1, np.abs(scores)))
    )
