"""Laplacian eigenmaps with their out-of-sample extension: Belkin and Niyogi 2003; Bengio et al. 2003.

    minimise Σ_ij K_ij ‖z_i − z_j‖²        K ≥ 0 symmetric, the similarity of nodes; d_i = Σ_j K_ij

The coordinates are eigenvectors e of S = D^−½ K D^−½ (normalised Laplacian: I − S) with the largest eigenvalues μ
below the trivial one, whose eigenvector is √d, and z_i = e_i / √d_i. For a new x the Nyström formula
e(x) = (1/μ) Σ_i S(x, y_i) e_i gives, with d(x) = Σ_i K(x, y_i),

    z(x) = (1/μ) Σ_i K(x, y_i) z_i / d(x)        the mean of its neighbours' coordinates, each over its μ

For nodes of the graph the formula is exact: z(y_i) = z_i.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.linalg import eigsh, svds

from fullrank.encoding import Float32
from fullrank.errors import TrainingError
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.systems.linear import lsi
from fullrank_trainer.systems.linear.parameters import encode_corpus, encode_judged, start
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.loop import TrainingRun

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Eigenmap:
    """The coordinates of a graph's nodes, and their extension to new nodes.

    Attributes:
        coordinates: float64 (m, N), z_i, largest μ first; each column of D^½ z has length one.
        values: float64 (N,), μ of each coordinate, at most 1.
    """

    coordinates: Float64
    values: Float64

    def extend(self, kernel: sp.csr_array[np.float64] | Float64) -> Float64:
        """Return z(x) of new nodes from kernel (B, m), K(x, y_i) ≥ 0; a row without neighbours stays zero."""
        degree = np.asarray(kernel.sum(axis=1)).ravel()
        degree[degree == 0] = 1
        return np.asarray((kernel @ self.coordinates) / degree[:, None] / self.values)


def fit_eigenmaps(kernel: sp.csr_array[np.float64], dimension: int, *, seed: int = 1) -> Eigenmap:
    """Embed the nodes of a graph.

    Args:
        kernel: (m, m) symmetric, K_ij ≥ 0, of a connected graph. Each further component adds a coordinate with μ = 1
            that only says which component a node is in.
        dimension: N.
        seed: of the eigensolver's first vector.

    Raises:
        TrainingError: there are too few nodes, or a node has no neighbour, not even itself.
    """
    m = kernel.shape[0]
    if dimension + 1 >= m:
        raise TrainingError(f"{dimension} coordinates need at least {dimension + 2} nodes, not {m}")
    degree = np.asarray(kernel.sum(axis=1), np.float64).ravel()
    if (degree <= 0).any():
        raise TrainingError(f"node {int(np.argmin(degree))} has no neighbour")
    scale = sp.diags_array(degree**-0.5)
    first = np.random.default_rng(seed).standard_normal(m)
    values, vectors = eigsh(
        sp.csr_array(scale @ kernel @ scale), k=dimension + 1, which="LA", v0=first
    )
    order = np.argsort(-values)[1:]  # the first is trivial
    return Eigenmap(_signed(vectors[:, order]) / np.sqrt(degree)[:, None], values[order])


def _signed(columns: Float64) -> Float64:
    """Make the largest entry of each column positive, because an eigenvector's sign is arbitrary."""
    largest = columns[np.abs(columns).argmax(axis=0), np.arange(columns.shape[1])]
    return columns * np.where(largest < 0, -1.0, 1.0)


def nearest(
    queries: Float64, nodes: Float64, k: int, *, itself: bool = False
) -> sp.csr_array[np.float64]:
    """Return (B, m) with ones at the k nearest nodes of each query (Euclidean, ties by row).

    With ``itself`` the queries are the nodes, and a node is not its own neighbour.
    """
    squares = np.einsum("ij,ij->i", nodes, nodes)
    distance = squares[None, :] - 2 * (queries @ nodes.T)
    if itself:
        np.fill_diagonal(distance, np.inf)
    found = np.argsort(distance, axis=1, kind="stable")[:, :k]
    indptr = np.arange(len(queries) + 1) * found.shape[1]
    return sp.csr_array(
        (np.ones(found.size), found.ravel(), indptr), shape=(len(queries), len(nodes))
    )


def symmetric(neighbours: sp.csr_array[np.float64]) -> sp.csr_array[np.float64]:
    """Return ones where either node is a neighbour of the other, and on the diagonal."""
    both = sp.csr_array(neighbours + neighbours.T + sp.eye_array(neighbours.shape[0]))
    both.data[:] = 1
    return both


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
