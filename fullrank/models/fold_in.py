"""The topics of a text that training did not see."""

from __future__ import annotations

import numpy as np

from fullrank.encoding import Float32, Rows


def fold_in(counts: Rows, table: Float32, *, iterations: int, prior: float) -> Float32:
    """Estimate θ of each text by EM from the uniform distribution, with fixed word distributions.

    Args:
        counts: B texts over the words of `table`; a word whose row is all zero is unknown to the topics.
        table: float32 (W, Z), P(w|φ^d_z).
        iterations: Steps of EM.
        prior: α − 1 in θ_z ← Σ_w n_w p(z|w) + α − 1, divided by the sum over z.

    Returns:
        float32 (B, Z), uniform for a text without known words.
    """
    topics = table.shape[1]
    theta = np.full((len(counts), topics), 1 / max(1, topics), np.float32)
    if not topics:
        return theta
    known = np.asarray(table.any(axis=1))
    for i in range(len(counts)):
        words, values = counts.row(i)
        inside = known[words]
        if not inside.any():
            continue
        n = values[inside].astype(np.float64)
        phi = table[words[inside]].astype(np.float64)
        found = np.full(topics, 1 / topics)
        for _ in range(iterations):
            # No BLAS product: its bits may depend on its threads.
            shares = n / np.einsum("wz,z->w", phi, found)
            found = found * np.einsum("w,wz->z", shares, phi) + prior
            found /= found.sum()
        theta[i] = found
    return theta
