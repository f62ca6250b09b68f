"""Reconstruction: dense steps, finite differences, and an error as small as that of the best linear one."""

from __future__ import annotations

import numpy as np
import pytest

from fullrank.encoding import Rows
from fullrank_trainer.systems.reconstruction import FactoredMatrix, run, sample

DOCUMENTS, WORDS, SIZE = 12, 20, 4


def texts(seed: int = 0) -> Rows:
    """Unit rows; the first is empty, the second is one word."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(DOCUMENTS):
        count = min(i, 5)
        values = rng.random(count) + 0.1
        rows.append((rng.choice(WORDS, count, replace=False), values / np.linalg.norm(values)))
    return Rows.from_lists([(i.tolist(), v.tolist()) for i, v in rows], WORDS)


class Model:
    """Parameters in float64, and the objective of one document and one other."""

    def __init__(self, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.V = rng.standard_normal((WORDS, SIZE)) * 0.3
        self.W = rng.standard_normal((WORDS, SIZE)) * 0.3
        self.vectors = rng.standard_normal((DOCUMENTS, SIZE)) * 0.5
        self.phi = texts().csr().toarray().astype(np.float64)

    def loss(self, k: int, other: int, gamma: float) -> float:
        v = self.vectors[k]
        residual = self.V @ v - self.phi[k]
        return gamma * float(residual @ residual) + max(0.0, self.margin(k, other))

    def margin(self, k: int, other: int) -> float:
        return 1 - float((self.phi[k] - self.phi[other]) @ self.W @ self.vectors[k])

    def step(self, k: int, other: int, gamma: float, rate: float) -> None:
        v, residual = self.vectors[k].copy(), self.V @ self.vectors[k] - self.phi[k]
        difference, violated = self.phi[k] - self.phi[other], self.margin(k, other) > 0
        towards = -2 * rate * gamma * (self.V.T @ residual)
        if violated:
            towards = towards + rate * (difference @ self.W)
            self.W += rate * np.outer(difference, v)
        self.V -= 2 * rate * gamma * np.outer(residual, v)
        self.vectors[k] += towards


def kernels_of(model: Model) -> tuple[np.ndarray, np.ndarray, FactoredMatrix]:
    W, vectors, V = (a.astype(np.float32) for a in (model.W, model.vectors, model.V))
    return W, vectors, FactoredMatrix.of(V)


@pytest.mark.parametrize("gamma", [0.0, 0.6])
def test_steps_equal_the_dense_updates(gamma: float) -> None:
    """Take some hundred steps over all documents, with folds in between."""
    model = Model()
    W, vectors, V = kernels_of(model)
    drawn = sample(DOCUMENTS, 400, np.random.default_rng(2))
    wanted = []
    for k, other in zip(*drawn, strict=True):
        wanted.append(model.loss(k, other, gamma))
        model.step(k, other, gamma, 0.1)
    losses = run(texts(), W, vectors, V, drawn, gamma, 0.1)
    np.testing.assert_allclose(losses, wanted, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(W, model.W, atol=1e-4)
    np.testing.assert_allclose(vectors, model.vectors, atol=1e-4)
    np.testing.assert_allclose(V.value(), model.V, atol=1e-4)


def test_a_step_of_a_singular_factor_moves_code_and_decoder_alike() -> None:
    """At c‖v‖² = 1 the step is moved by a thousandth: V and v_k must both take that one step down the gradient."""
    model, k, other, gamma = Model(), 6, 3, 0.6
    model.vectors[k] = [2, 0, 0, 0]
    model.W *= 0  # Its gradient is zero here, and W(φ_k − φ_l) too.
    W, vectors, V = kernels_of(model)
    c = 1 / 4
    run(texts(), W, vectors, V, (np.array([k]), np.array([other])), gamma, c / (2 * gamma))
    residual = model.V @ model.vectors[k] - model.phi[k]
    moved = (model.V - V.value())[:, 0] / (2 * residual)  # ΔV = −c (V v − φ) vᵀ
    taken = (model.vectors[k] - vectors[k]) / (model.V.T @ residual)  # Δv = −c Vᵀ(V v − φ)
    unread = model.phi[k] == 0  # Rounding in V = T M is least there.
    np.testing.assert_allclose(moved[unread], 0.999 * c, rtol=1e-5)
    np.testing.assert_allclose(taken, 0.999 * c, rtol=1e-5)


@pytest.mark.parametrize("name", ["V", "W", "vectors"])
def test_a_step_follows_the_negative_gradient(name: str) -> None:
    checked = 0
    for k in range(DOCUMENTS):
        other, gamma = (k + 5) % DOCUMENTS, 0.6
        model = Model()
        if abs(model.margin(k, other)) < 1e-3:
            continue
        W, vectors, V = kernels_of(model)
        run(texts(), W, vectors, V, (np.array([k]), np.array([other])), gamma, 1e-3)
        after = {"V": V.value(), "W": W, "vectors": vectors}[name]
        before = getattr(model, name)
        step = (after - before.astype(np.float32)) / 1e-3
        for place in np.argwhere(np.abs(step) > 0.05)[::3]:
            keep = before[tuple(place)]
            losses = []
            for change in (1e-6, -1e-6):
                before[tuple(place)] = keep + change
                losses.append(model.loss(k, other, gamma))
            before[tuple(place)] = keep
            gradient = (losses[0] - losses[1]) / 2e-6
            assert step[tuple(place)] == pytest.approx(-gradient, rel=5e-3, abs=1e-3)
            checked += 1
    assert checked > 10


def test_codes_reconstruct_as_well_as_singular_vectors() -> None:
    """If the first term dominates, the steps find a code as good as the best linear code of the same width."""
    model = Model()
    W, vectors, V = kernels_of(model)
    rng = np.random.default_rng(3)
    for _ in range(60):
        run(texts(), W, vectors, V, sample(DOCUMENTS, 40 * DOCUMENTS, rng), 100.0, 5e-4)
    found = np.square(vectors @ V.value().T - model.phi).sum()
    best = np.square(np.linalg.svd(model.phi)[1][SIZE:]).sum()
    assert best - 1e-4 < found < 1.05 * best


def test_measuring_changes_no_parameter() -> None:
    model = Model()
    W, vectors, V = kernels_of(model)
    before = W.copy(), vectors.copy(), V.value()
    drawn = sample(DOCUMENTS, 30, np.random.default_rng(2))
    losses = run(texts(), W, vectors, V, drawn, 0.6, 0.1, update=False)
    wanted = [model.loss(k, other, 0.6) for k, other in zip(*drawn, strict=True)]
    np.testing.assert_allclose(losses, wanted, rtol=1e-4, atol=1e-5)
    for a, b in zip(before, (W, vectors, V.value()), strict=True):
        np.testing.assert_array_equal(a, b)


def test_every_document_is_drawn_as_often_as_any_other_and_never_against_itself() -> None:
    first, second = sample(7, 21, np.random.default_rng(0))
    np.testing.assert_array_equal(np.bincount(first), 3)
    assert (first != second).all()
    assert set(second) <= set(range(7))
    assert len(sample(7, 10, np.random.default_rng(0))[0]) == 10
