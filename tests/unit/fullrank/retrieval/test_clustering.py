"""Test the centres of cells against planted clusters."""

from __future__ import annotations

import faiss
import numpy as np
import pytest

from fullrank.retrieval.index.cells import train_cells


def distances(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return the squared distance of each point to its nearest centre."""
    several = [np.square(points - centre).sum(axis=1) for centre in centres.astype(float)]
    return np.min(several, axis=0)


def test_every_planted_cluster_gets_a_centre() -> None:
    rng = np.random.default_rng(1)
    planted = rng.normal(size=(40, 12)) * 10
    points = np.repeat(planted, 50, axis=0) + rng.normal(size=(2000, 12)) * 0.01
    centres = train_cells(points.astype(np.float32), 120)[0]
    assert centres.shape == (120, 12)
    assert distances(points, centres).max() < 0.1


def test_centres_are_about_as_near_as_those_of_plain_k_means() -> None:
    rng = np.random.default_rng(2)
    points = (rng.normal(size=(4000, 8)) * rng.gamma(1, 1, (4000, 1))).astype(np.float32)
    plain = faiss.Kmeans(8, 64, niter=10, seed=1234)
    plain.train(points)
    assert plain.centroids is not None
    ours = distances(points, train_cells(points, 64)[0]).mean()
    assert ours < 1.2 * distances(points, plain.centroids).mean()


@pytest.mark.parametrize("cells", [1, 2, 3, 10])
def test_few_cells(cells: int) -> None:
    points = np.random.default_rng(3).normal(size=(8 * cells, 4)).astype(np.float32)
    centres = train_cells(points, cells)[0]
    assert centres.shape == (cells, 4)
    assert np.isfinite(centres).all()


def test_equal_points() -> None:
    centres = train_cells(np.ones((800, 3), np.float32), 50)[0]
    assert centres.shape == (50, 3)
    np.testing.assert_allclose(centres, 1, atol=0.01)


def test_the_bits_do_not_depend_on_the_threads_before() -> None:
    points = np.random.default_rng(4).normal(size=(3000, 16)).astype(np.float32)
    before = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(2)
        first = train_cells(points, 90)[0]
        assert faiss.omp_get_max_threads() == 2
    finally:
        faiss.omp_set_num_threads(before)
    assert first.tobytes() == train_cells(points, 90)[0].tobytes()


def test_most_points_find_their_nearest_centre() -> None:
    points = np.random.default_rng(5).normal(size=(6_000, 8)).astype(np.float32)
    centres, index = train_cells(points, 150)
    found = index.search(points, 1)[1][:, 0]
    assert np.array_equal(index.search(centres, 1)[1][:, 0], np.arange(150))
    away = np.square(points - centres[found]).sum(axis=1)
    assert away.mean() < 1.02 * distances(points, centres).mean()
