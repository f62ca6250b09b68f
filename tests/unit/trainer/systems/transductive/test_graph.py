"""The graph model: dense steps, finite differences, sampled pairs, and two clusters that it must separate."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from fullrank.encoding import Rows
from fullrank.errors import TrainingError
from fullrank_trainer.systems.half_transductive import (
    Graph,
    nearest_by_cosine,
    run,
    start,
)

ITEMS, FEATURES, SIZE = 10, 8, 3


def rows_of(dense: np.ndarray) -> Rows:
    return Rows.from_csr(sp.csr_array(dense.astype(np.float32)))


def features(seed: int = 0) -> Rows:
    """Sparse rows; the first is empty, the second one entry."""
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((ITEMS, FEATURES)) * (rng.random((ITEMS, FEATURES)) < 0.6)
    dense[0] = 0
    dense[1, 1:] = 0
    return rows_of(dense)


class Model:
    """Parameters in float64, and the loss of one pair."""

    def __init__(self, seed: int = 1, scale: float = 0.2) -> None:
        rng = np.random.default_rng(seed)
        self.W = rng.standard_normal((FEATURES, SIZE)) * scale
        self.vectors = rng.standard_normal((ITEMS, SIZE)) * scale
        self.phi = features().csr().toarray().astype(np.float64)

    def apart(self, i: int, j: int) -> tuple[np.ndarray, np.ndarray]:
        return self.vectors[i] - self.vectors[j], self.phi[i] @ self.W - self.vectors[j]

    def loss(self, i: int, j: int, adjacent: bool, gamma: float) -> float:
        y, z = (float(np.abs(x).sum()) for x in self.apart(i, j))
        if adjacent:
            return gamma * y + z
        return gamma * max(0.0, 1 - y) + max(0.0, 1 - z)

    def step(self, i: int, j: int, adjacent: bool, gamma: float, rate: float) -> None:
        def g(x: np.ndarray) -> np.ndarray:
            if adjacent:
                return -np.sign(x)
            return np.sign(x) * (np.abs(x).sum() < 1)

        y, z = self.apart(i, j)
        self.vectors[i] += rate * gamma * g(y)
        self.vectors[j] -= rate * gamma * g(y) + rate * g(z)
        self.W += rate * np.outer(self.phi[i], g(z))


def pair(i: int, j: int, adjacent: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.array([i]), np.array([j]), np.array([adjacent])


@pytest.mark.parametrize("gamma", [0.0, 0.5])
@pytest.mark.parametrize("adjacent", [True, False])
def test_a_step_equals_the_dense_update(adjacent: bool, gamma: float) -> None:
    """Adjacent and other pairs, and a node without features."""
    flat = 0
    for scale in (0.1, 0.5):
        for i, j in ((0, 3), (1, 2), (4, 0), (5, 9), (8, 7)):
            model = Model(scale=scale)
            W, vectors = model.W.astype(np.float32), model.vectors.astype(np.float32)
            loss = run(pair(i, j, adjacent), features(), W, vectors, gamma, np.array([0.05]))
            assert loss[0] == pytest.approx(model.loss(i, j, adjacent, gamma), abs=1e-5)
            flat += model.loss(i, j, adjacent, 1.0) == 0
            model.step(i, j, adjacent, gamma, 0.05)
            np.testing.assert_allclose(W, model.W, atol=1e-6)
            np.testing.assert_allclose(vectors, model.vectors, atol=1e-6)
    assert (flat > 0) == (not adjacent)


@pytest.mark.parametrize("name", ["W", "vectors"])
def test_a_step_follows_the_negative_gradient(name: str) -> None:
    checked = 0
    for i, j, adjacent in ((2, 3, True), (4, 9, False), (5, 6, True), (7, 2, False)):
        model = Model()
        W, vectors = model.W.astype(np.float32), model.vectors.astype(np.float32)
        run(pair(i, j, adjacent), features(), W, vectors, 0.5, np.array([1.0]))
        before = getattr(model, name)
        step = {"W": W, "vectors": vectors}[name] - before
        for place in np.argwhere(np.abs(step) > 1e-3):
            keep, losses = before[tuple(place)], []
            for change in (1e-6, -1e-6):
                before[tuple(place)] = keep + change
                losses.append(model.loss(i, j, adjacent, 0.5))
            before[tuple(place)] = keep
            gradient = (losses[0] - losses[1]) / 2e-6
            assert step[tuple(place)] == pytest.approx(-gradient, abs=1e-4)
            checked += 1
    assert checked > 10


def test_graph_is_undirected_and_without_loops() -> None:
    directed = sp.csr_array(np.array([[5, 1, 0], [0, 0, -2], [0, 0, 0]], np.float32))
    found = Graph.of(directed).neighbours.toarray()
    np.testing.assert_array_equal(found != 0, [[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    with pytest.raises(TrainingError, match="no two documents are linked"):
        Graph.of(sp.csr_array(np.eye(3, dtype=np.float32)))


def test_sampled_pairs_alternate_between_edges_and_non_edges() -> None:
    rng = np.random.default_rng(0)
    dense = np.triu(rng.random((12, 12)) < 0.3, 1)
    graph = Graph.of(sp.csr_array(dense.astype(np.float32)))
    first, second, adjacent = graph.sample(4000, rng)
    np.testing.assert_array_equal(adjacent, (dense | dense.T)[first, second])
    assert (first != second).all()
    assert adjacent[::2].all()
    assert adjacent[1::2].mean() < 0.01
    # All edges are equally likely.
    counts = np.zeros((12, 12))
    np.add.at(counts, (first[::2], second[::2]), 1)
    edges = counts[dense | dense.T]
    assert edges.min() > 0.4 * edges.mean()
    complete = Graph.of(sp.csr_array(np.ones((3, 3), np.float32)))
    assert complete.sample(20, rng)[2].all()


def blobs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    side = np.arange(count) % 2
    return rng.standard_normal((count, 5)) * 0.3 + side[:, None] * 2 - 1, side


def test_two_clusters_separate_and_new_points_join_theirs() -> None:
    dense, side = blobs(60, 0)
    graph = Graph.of(sp.csr_array((side[:, None] == side[None, :]).astype(np.float32)))
    x, rng = rows_of(dense), np.random.default_rng(1)
    W, vectors = start(x, 4, float(np.sqrt(np.pi / 2)) / 4, rng)
    count, losses = 2 * graph.neighbours.nnz, []
    for epoch in range(3):
        rates = 0.01 * (1 - (epoch + np.arange(count) / count) / 3)
        losses.append(run(graph.sample(count, rng), x, W, vectors, 1.0, rates).mean())
    assert losses[-1] < 0.5 * losses[0]
    new, its = blobs(20, 1)
    distances = np.abs((new @ W)[:, None] - vectors[None]).sum(axis=2)
    np.testing.assert_array_equal(side[distances.argmin(axis=1)], its)


def test_vectors_start_at_a_distance_of_the_margin() -> None:
    dense, _ = blobs(60, 0)
    W, vectors = start(rows_of(dense), 50, float(np.sqrt(np.pi / 2)) / 50, np.random.default_rng(1))
    for z in (vectors, dense @ W):
        assert np.abs(z).sum(axis=1).mean() == pytest.approx(1, rel=0.15)


def test_nearest_by_cosine_equals_brute_force() -> None:
    rng = np.random.default_rng(2)
    dense = rng.random((300, 40)) * (rng.random((300, 40)) < 0.1)
    dense[5] = 0
    norm = np.linalg.norm(dense, axis=1, keepdims=True)
    x = (dense / np.where(norm == 0, 1, norm)).astype(np.float32)
    found = nearest_by_cosine(sp.csr_array(x), 4).toarray()
    cosines = (sp.csr_array(x) @ sp.csr_array(x).T).toarray()
    np.fill_diagonal(cosines, 0)
    for i in range(300):
        best = [j for j in np.argsort(-cosines[i], kind="stable")[:4] if cosines[i, j] > 0]
        np.testing.assert_array_equal(np.flatnonzero(found[i]), sorted(best))
    assert not found[5].any()
