"""Eigenmaps against scikit-learn and a dense eigenproblem; the extension reproduces the nodes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.manifold import SpectralEmbedding

from fullrank.errors import TrainingError
from fullrank_trainer.systems.projections import cosine_projection


def texts(count: int = 40, words: int = 25, seed: int = 1) -> sp.csr_array:
    """Unit rows of nonnegative weights; the third is empty."""
    rng = np.random.default_rng(seed)
    dense = rng.random((count, words)) * (rng.random((count, words)) < 0.3)
    dense[2] = 0
    norm = np.linalg.norm(dense, axis=1, keepdims=True)
    return sp.csr_array((dense / np.where(norm == 0, 1, norm)).astype(np.float32))


def same_up_to_sign(a: np.ndarray, b: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(a * np.sign(np.sum(a * b, axis=0)), b, atol=tolerance)


def coordinates(K: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """z and μ by the dense eigenproblem of S = D^−½ K D^−½, without the trivial vector."""
    d = K.sum(axis=1)
    values, vectors = np.linalg.eigh(K / np.sqrt(np.outer(d, d)))
    order = np.argsort(-values)[1 : size + 1]
    return vectors[:, order] / np.sqrt(d)[:, None], values[order]


def test_the_dense_eigenproblem_is_scikit_learns() -> None:
    """scikit-learn ignores the diagonal."""
    dense = np.delete(texts().toarray().astype(np.float64), 2, axis=0)
    K = dense @ dense.T + 0.01
    np.fill_diagonal(K, 0)
    theirs = SpectralEmbedding(4, affinity="precomputed", random_state=0, eigen_solver="arpack")
    same_up_to_sign(coordinates(K, 4)[0], theirs.fit_transform(K), 1e-6)


def test_the_projection_equals_the_extension_under_the_cosine() -> None:
    """P φ(x) is z(x) times √d(x), one number for each text, which does not change cosines."""
    x = texts()
    full = np.delete(x.toarray().astype(np.float64), 2, axis=0)
    K = full @ full.T
    z, mu = coordinates(K, 5)
    P = cosine_projection(x, 5)
    assert P.dtype == np.float32
    same_up_to_sign(full @ P / K.sum(axis=1)[:, None], z, 1e-5)
    new = np.random.default_rng(5).random((3, x.shape[1]))
    kernel = new @ full.T
    extended = kernel @ z / kernel.sum(axis=1)[:, None] / mu
    same_up_to_sign(new @ P / kernel.sum(axis=1)[:, None], extended, 1e-5)
    np.testing.assert_array_equal(P, cosine_projection(x, 5))


def test_signs_do_not_depend_on_the_seed() -> None:
    a, b = cosine_projection(texts(), 4, seed=1), cosine_projection(texts(), 4, seed=2)
    np.testing.assert_allclose(a, b, atol=1e-5)


def test_too_few_words_are_refused() -> None:
    with pytest.raises(TrainingError, match=r"model\.dimension: 25 must be below 24"):
        cosine_projection(texts(), 25)
