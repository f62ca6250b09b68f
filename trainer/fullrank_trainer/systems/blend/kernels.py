"""Numba kernels of the choice of weights; each has a numpy twin in the tests."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import prange

from fullrank.encoding import Float32, Int64
from fullrank.measures import Float64
from fullrank_trainer.compiled import compiled


@compiled()
def _at_least(scores: Float32, least: np.float32) -> int:
    """Return how many scores are at least ``least``."""
    count = 0
    for score in scores:
        count += score >= least
    return count


@compiled(parallel=True)
def average_precision(
    parts: Float32,
    used: Int64,
    weights: Float32,
    lifted: Float32,
    added: np.float32,
    unjudged: npt.NDArray[np.bool_],
    indptr: Int64,
    relevant: Int64,
    out: Float64,
) -> None:
    """Compute the average precision of each query under blended scores; equal scores rank a document last.

    Args:
        parts: the scores, (parts, queries, documents).
        used, weights: the parts with a weight, and their weights.
        lifted: their weights in the scores of ``unjudged`` documents.
        added: to these scores.
        unjudged: (documents,).
        indptr, relevant: the relevant documents of each query.
        out: (queries,), written.
    """
    for query in prange(len(out)):
        total = np.zeros(parts.shape[2], np.float32)
        for m in range(len(used)):
            scores = parts[used[m], query]
            for d in range(len(total)):
                total[d] += (lifted[m] if unjudged[d] else weights[m]) * scores[d]
        if added != 0:
            for d in range(len(total)):
                if unjudged[d]:
                    total[d] += added
        rows = relevant[indptr[query] : indptr[query + 1]]
        ranks = np.empty(len(rows))
        for k in range(len(rows)):
            ranks[k] = _at_least(total, total[rows[k]])
        ranks.sort()
        precision = 0.0
        for k in range(len(ranks)):
            precision += (k + 1) / ranks[k]
        out[query] = precision / len(ranks)
