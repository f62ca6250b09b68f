"""Hits unlike those before them: maximal marginal relevance (Carbonell and Goldstein 1998).

    next = argmax_d (1 − λ) r(d) − λ max_{s chosen} sim(d, s)

r is the score, from 0 for the least to 1 for the best of the first hits; sim is the cosine of [v | t].
Ties go to the better score.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from fullrank.encoding import Encoded, Float64, Int64

DEPTH = 100
"""How many of the first hits are put into another order."""


def similarities(documents: Encoded) -> Float64:
    """Return the cosines of the encodings [v | t] of B documents, float64 (B, B)."""
    dense = documents.dense.astype(np.float64)
    sparse = sp.csr_array(documents.sparse.csr().astype(np.float64))
    products = dense @ dense.T + (sparse @ sparse.T).toarray()
    lengths = np.sqrt(np.diag(products))
    scale = np.divide(1.0, lengths, out=np.zeros(len(lengths)), where=lengths > 0)
    cosines: Float64 = products * scale[:, None] * scale
    return cosines


def diverse_order(scores: Float64, similar: Float64, diversity: float) -> Int64:
    """Return the order of hits by maximal marginal relevance.

    Args:
        scores: float64 (B,), best first.
        similar: float64 (B, B).
        diversity: λ from 0, the order as it is, to 1, which looks at the first hit's score alone.

    Returns:
        int64 (B,), places in the given order.
    """
    count = len(scores)
    least, best = scores.min(initial=np.inf), scores.max(initial=-np.inf)
    relevance = (scores - least) / (best - least) if best > least else np.zeros(count)
    nearest = np.zeros(count)
    left = np.ones(count, np.bool_)
    order = np.empty(count, np.int64)
    for place in range(count):
        if place == 0:
            chosen = 0
        else:
            value = (1 - diversity) * relevance - diversity * nearest
            chosen = int(np.argmax(np.where(left, value, -np.inf)))
        order[place] = chosen
        left[chosen] = False
        nearest = similar[chosen] if place == 0 else np.maximum(nearest, similar[chosen])
    return order
