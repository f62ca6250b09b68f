"""Eigenmaps against scikit-learn and a dense eigenproblem; the extension reproduces the nodes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.manifold import SpectralEmbedding

from fullrank.errors import TrainingError
from fullrank_trainer.systems.transductive.eigenmaps import (
    cosine_projection,
    fit_eigenmaps,
    nearest,
    symmetric,
)


def points(count: int, seed: int = 0) -> np.ndarray:
    """Along a bent line: one connected graph whose order the first coordinate must find."""
    rng = np.random.default_rng(seed)
    along = np.linspace(0, 3, count)
    line = np.stack([along, np.sin(along), np.zeros(count)], axis=1)
    return np.asarray(line + rng.standard_normal((count, 3)) * 0.02)


def graph(count: int = 60, k: int = 6) -> sp.csr_array:
    x = points(count)
    return symmetric(nearest(x, x, k, itself=True))


def texts(count: int = 40, words: int = 25, seed: int = 1) -> sp.csr_array:
    """Unit rows of nonnegative weights; the third is empty."""
    rng = np.random.default_rng(seed)
    dense = rng.random((count, words)) * (rng.random((count, words)) < 0.3)
    dense[2] = 0
    norm = np.linalg.norm(dense, axis=1, keepdims=True)
    return sp.csr_array((dense / np.where(norm == 0, 1, norm)).astype(np.float32))


def same_up_to_sign(a: np.ndarray, b: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(a * np.sign(np.sum(a * b, axis=0)), b, atol=tolerance)


def test_coordinates_solve_the_dense_eigenproblem() -> None:
    """Generalised eigenvectors of the Laplacian: (D − K) z = (1 − μ) D z, least first, without the constant one."""
    K = graph().toarray()
    d = K.sum(axis=1)
    found = fit_eigenmaps(graph(), 4)
    for k in range(4):
        z, mu = found.coordinates[:, k], found.values[k]
        np.testing.assert_allclose((np.diag(d) - K) @ z, (1 - mu) * d * z, atol=1e-8)
    S = K / np.sqrt(np.outer(d, d))
    np.testing.assert_allclose(found.values, np.linalg.eigvalsh(S)[::-1][1:5], atol=1e-8)
    np.testing.assert_allclose(np.linalg.norm(found.coordinates * np.sqrt(d)[:, None], axis=0), 1)
    along = np.argsort(found.coordinates[:, 0])
    assert np.corrcoef(along, np.arange(60))[0, 1] ** 2 > 0.99


def test_coordinates_equal_scikit_learns() -> None:
    """scikit-learn ignores the diagonal."""
    K = graph().toarray() - np.eye(60)
    theirs = SpectralEmbedding(4, affinity="precomputed", random_state=0, eigen_solver="arpack")
    same_up_to_sign(fit_eigenmaps(sp.csr_array(K), 4).coordinates, theirs.fit_transform(K), 1e-6)


def test_same_seed_same_bits_and_signs_are_fixed() -> None:
    a, b = fit_eigenmaps(graph(), 4, seed=1), fit_eigenmaps(graph(), 4, seed=2)
    np.testing.assert_array_equal(a.coordinates, fit_eigenmaps(graph(), 4, seed=1).coordinates)
    np.testing.assert_allclose(a.coordinates, b.coordinates, atol=1e-7)


def test_extension_reproduces_nodes_and_places_new_ones_between_neighbours() -> None:
    found = fit_eigenmaps(graph(), 4)
    np.testing.assert_allclose(found.extend(graph()), found.coordinates, atol=1e-8)
    x = points(60)
    middle = (x[10] + x[11]) / 2
    z = found.extend(nearest(middle[None], x, 6))[0, 0]
    low, high = sorted([found.coordinates[6, 0], found.coordinates[15, 0]])
    assert low < z < high
    isolated = sp.csr_array((1, 60), dtype=np.float64)
    np.testing.assert_array_equal(found.extend(isolated), 0)


def test_nearest_equals_brute_force() -> None:
    x, y = points(20, 1), points(30, 2)
    found = nearest(x, y, 3)
    for i, row in enumerate(found.toarray()):
        distances = np.linalg.norm(y - x[i], axis=1)
        np.testing.assert_array_equal(np.flatnonzero(row), np.sort(np.argsort(distances)[:3]))
    assert nearest(y, y, 3, itself=True).diagonal().sum() == 0
    K = symmetric(nearest(y, y, 3, itself=True)).toarray()
    np.testing.assert_array_equal(K, K.T)
    assert set(np.unique(K)) == {0, 1}
    assert (np.diag(K) == 1).all()


def test_the_projection_equals_the_extension_under_the_cosine() -> None:
    """P φ(x) is z(x) times √d(x), one number for each text, which does not change cosines."""
    x = texts()
    full = np.delete(x.toarray().astype(np.float64), 2, axis=0)
    K = full @ full.T
    wanted = fit_eigenmaps(sp.csr_array(K), 5)
    P = cosine_projection(x, 5)
    assert P.dtype == np.float32
    same_up_to_sign(full @ P / K.sum(axis=1)[:, None], wanted.coordinates, 1e-5)
    new = np.random.default_rng(5).random((3, x.shape[1]))
    kernel = new @ full.T
    same_up_to_sign(new @ P / kernel.sum(axis=1)[:, None], wanted.extend(kernel), 1e-5)
    np.testing.assert_array_equal(P, cosine_projection(x, 5))


def test_graphs_that_cannot_be_embedded_are_refused() -> None:
    with pytest.raises(TrainingError, match="need at least"):
        fit_eigenmaps(graph(), 59)
    lonely = graph().tolil()
    lonely[7, :] = lonely[:, 7] = 0
    with pytest.raises(TrainingError, match="node 7 has no neighbour"):
        fit_eigenmaps(sp.csr_array(lonely), 2)
    with pytest.raises(TrainingError, match=r"model\.dimension: 25 must be below 24"):
        cosine_projection(texts(), 25)


def test_a_graph_needs_two_nodes_more_than_coordinates() -> None:
    with pytest.raises(TrainingError, match="2 coordinates need at least 4 nodes, not 3"):
        fit_eigenmaps(sp.csr_array(np.ones((3, 3))), 2)
    path = sp.csr_array(np.eye(4) + np.eye(4, k=1) + np.eye(4, k=-1))
    assert fit_eigenmaps(path, 2).coordinates.shape == (4, 2)
