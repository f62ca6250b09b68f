"""Shorten the vectors of an averaged model, with the smallest change of its scores.

The mean of m fits has m N dimensions, although all fits learned nearly the same function. With u of the judged queries
and v of the documents, G_u the mean of u uᵀ and G_v the covariance of v, the vectors u', v' of k dimensions that
minimise the mean of (u·v - u'·v')² over all pairs, up to a constant per query, come from the singular value
decomposition

    G_u^½ G_v^½ = P S Qᵀ:      u' = S_k^½ P_kᵀ G_u^-½ u,      v' = S_k^½ Q_kᵀ G_v^-½ v

(Eckart and Young 1936, in the metric of the texts). Both maps are linear, so U and V take them in, and the model stays
one of its family. The mean of squares that is lost is Σ_i>k S_i².
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fullrank.encoding import Float32, Float64
from trainer.evaluation.evaluate import evenly_spread
from trainer.features.matrices import Features
from trainer.systems.linear.parameters import Parameters
from trainer.systems.linear.scan import scan_documents, scan_queries

LOST = 0.001
"""Largest share of the variance of the scores that compression may lose."""

_STEP = 64  # dimensions come in such steps
_TEXTS = 20_000  # of each side that are measured
_LEAST = 1e-6  # of the largest eigenvalue; what is below is rounding


def compress(features: Features, parameters: Parameters, most_lost: float = LOST) -> Parameters:
    """Return parameters with the fewest dimensions that keep the scores.

    Args:
        features: of the training collection.
        parameters: without layers above U and V.
        most_lost: share of the variance of a query's scores over the documents that may be lost.
    """
    judged = features.pairs.queries
    u = scan_queries(features, parameters, judged[evenly_spread(len(judged), _TEXTS)]).dense
    v = scan_documents(features, parameters).dense
    v = v[evenly_spread(len(v), _TEXTS)]
    (root_u, inverse_u), (root_v, inverse_v) = _roots(_gram(u)), _roots(_gram(v - v.mean(axis=0)))
    P, S, Qt = np.linalg.svd(root_u @ root_v)
    kept = _fewest(S, most_lost)
    if kept >= len(S):
        return parameters
    scale = np.sqrt(S[:kept])
    left, right = inverse_u @ P[:, :kept] * scale, inverse_v @ Qt[:kept].T * scale
    U = _product(parameters.U, left)
    return replace(parameters, U=U, V=_product(parameters.V, right))


def _fewest(singular: Float64, most_lost: float) -> int:
    """Return the fewest dimensions, a multiple of 64, whose loss is small enough."""
    energy = singular**2
    left = energy.sum() - np.cumsum(energy)
    enough = 1 + int(np.count_nonzero(left > most_lost * energy.sum()))
    return -(-enough // _STEP) * _STEP


def _gram(vectors: Float32) -> Float64:
    """Return the mean of x xᵀ, float64 (N, N)."""
    found = np.asarray(vectors, np.float64)
    return np.asarray(found.T @ found / max(1, len(found)))


def _roots(gram: Float64) -> tuple[Float64, Float64]:
    """Return G^½ and G^-½ of a symmetric matrix."""
    values, vectors = np.linalg.eigh(gram)
    root = np.sqrt(np.maximum(values, _LEAST * max(values[-1], _LEAST)))
    return vectors * root @ vectors.T, vectors / root @ vectors.T


def _product(table: Float32, by: Float64) -> Float32:
    return np.ascontiguousarray(table @ by.astype(np.float32))
