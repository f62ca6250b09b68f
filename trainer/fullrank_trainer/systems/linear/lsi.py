"""Latent semantic indexing: a truncated singular value decomposition of the documents.

X ≈ A Σ Bᵀ for the (documents, words) matrix X of unit tf-idf vectors; a text x maps to Bᵀx, divided by its norm, so
u·v is the cosine of the projections. Mixed with tf-idf: f = α cos(Bᵀq, Bᵀd) + (1 − α) q·d.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse.linalg import svds

from fullrank.encoding import Float32
from fullrank.errors import TrainingError
from fullrank.models.linear import DenseSide, LinearModel
from fullrank_trainer.features.matrices import Features


def project(features: Features, seed: int) -> Float32:
    """Compute B, the ``dimension`` right singular vectors of the largest singular values.

    Returns:
        float32 (words, dimension).

    Raises:
        TrainingError: the collection has too few documents or words.
    """
    matrix = features.xd.composed().csr()
    dimension = features.settings.dimension
    if dimension >= min(matrix.shape):
        raise TrainingError(
            f"model.dimension: {dimension} must be below {min(matrix.shape)}, "
            "the smaller side of the documents' matrix"
        )
    first = np.random.default_rng(seed).standard_normal(min(matrix.shape)).astype(np.float32)
    *_, vt = svds(matrix, k=dimension, v0=first, solver="arpack")
    return np.ascontiguousarray(vt[::-1].T, np.float32)


def compile_model(features: Features, V: Float32, U: Float32 | None = None) -> LinearModel:
    """Make the model of a projection; ``alpha`` weighs it against the lexical part, if there is one.

    Args:
        features: of the model.
        V: float32 (words of documents, N).
        U: float32 (words of queries, N). By default a query word has its row of V, or zeros if V has none.
    """
    settings, model = features.settings, features.model
    mixed = settings.match != "none"
    share = settings.alpha if mixed else 1.0
    if U is None:
        place = model.document.words.rows(model.query.words.words)
        U = np.where(place[:, None] >= 0, V[place], np.float32(0))
    return replace(
        model,
        settings={**model.settings, "dense_scale": share},
        query=_with_table(model.query, U),
        document=_with_table(model.document, V),
        sparse=replace(model.sparse, D=model.sparse.D * np.float32(1 - share)),
    )


def _with_table(side: DenseSide, table: Float32) -> DenseSide:
    letters = np.zeros((len(side.trigrams), table.shape[1]), np.float32)
    return replace(side, table=np.ascontiguousarray(table), trigram_table=letters)
