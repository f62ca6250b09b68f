"""Laplacian eigenmaps with their out-of-sample extension: Belkin and Niyogi 2003; Bengio et al. 2003.

    minimise Σ_ij K_ij ‖z_i − z_j‖²        K ≥ 0 symmetric, the similarity of nodes; d_i = Σ_j K_ij

The coordinates are eigenvectors e of S = D^−½ K D^−½ (normalised Laplacian: I − S) with the largest eigenvalues μ
below the trivial one, whose eigenvector is √d, and z_i = e_i / √d_i. For a new x the Nyström formula
e(x) = (1/μ) Σ_i S(x, y_i) e_i gives, with d(x) = Σ_i K(x, y_i),

    z(x) = (1/μ) Σ_i K(x, y_i) z_i / d(x)        the mean of its neighbours' coordinates, each over its μ

For nodes of the graph the formula is exact: z(y_i) = z_i.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.linalg import svds

from fullrank.encoding import Float32
from fullrank.errors import TrainingError
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.systems.linear import lsi
from fullrank_trainer.systems.linear.parameters import encode_corpus, encode_judged, start
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.loop import TrainingRun

Float64 = npt.NDArray[np.float64]


def _signed(columns: Float64) -> Float64:
    """Make the largest entry of each column positive, because an eigenvector's sign is arbitrary."""
    largest = columns[np.abs(columns).argmax(axis=0), np.arange(columns.shape[1])]
    return columns * np.where(largest < 0, -1.0, 1.0)


def cosine_projection(x: sp.csr_array[np.float32], dimension: int, *, seed: int = 1) -> Float32:
    """Compute eigenmaps of texts under K(x, y) = φ(x)·φ(y), as the (words, N) matrix P of their extension.

    The cosine of two texts is their similarity, so K(x, y_i) is linear in φ(x):

    S = A Aᵀ, A = D^−½ Φ = E Σ Rᵀ, μ = σ²        d_i = φ(y_i) · Σ_j φ(y_j)
    e(x) = (1/μ) Σ_i S(x, y_i) e_i = φ(x)ᵀ R Σ⁻¹ / √d(x)            so P = R Σ⁻¹

    The factor 1/√d(x) does not change a cosine. No (m, m) matrix is formed.

    Args:
        x: φ, (m, words), entries ≥ 0; empty texts are left out.
        dimension: N.
        seed: of the solver's first vector.

    Raises:
        TrainingError: there are too few texts or words.
    """
    full = x[np.flatnonzero(np.diff(x.indptr))].astype(np.float64)
    if dimension + 1 >= min(full.shape):
        raise TrainingError(
            f"model.dimension: {dimension} must be below {min(full.shape) - 1}, "
            "one less than the smaller side of the documents' matrix"
        )
    degree = np.asarray(full @ np.asarray(full.sum(axis=0)).ravel()).ravel()
    A = sp.csr_array(sp.diags_array(degree**-0.5) @ full)
    first = np.random.default_rng(seed).standard_normal(min(A.shape))
    _, values, vt = svds(A, k=dimension + 1, v0=first, solver="arpack")
    order = np.argsort(-values)[1:]
    return np.ascontiguousarray(_signed(vt[order].T) / values[order], np.float32)


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Fit a recipe: both sides are projected by P; ``alpha`` mixes the result with tf-idf."""
    features = context.features(recipe.model)
    table = context.cached(
        ("eigenmaps", replace(recipe.model, alpha=1.0)),
        lambda: cosine_projection(
            features.xd.composed().csr(), recipe.model.dimension, seed=context.seed
        ),
    )  # fmt: skip
    model = lsi.compile_model(features, table)
    parameters = start(features, recipe.train, np.random.default_rng(context.seed))
    documents = encode_corpus(features, model, parameters)
    return FittedModel(model, documents, partial(encode_judged, features, model))
