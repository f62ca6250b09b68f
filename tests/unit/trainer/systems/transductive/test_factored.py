"""V = T M equals V after the same steps, whenever M is folded."""

from __future__ import annotations

import numpy as np
import pytest

from fullrank_trainer.systems.reconstruction import FactoredMatrix

WORDS, SIZE = 30, 5


def start(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((WORDS, SIZE)).astype(np.float32)


def sparse(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    indices = np.sort(rng.choice(WORDS, count, replace=False)).astype(np.int32)
    return indices, rng.random(count).astype(np.float32)


@pytest.mark.parametrize("c", [0.001, 0.05, 0.3])
def test_steps_equal_those_of_the_dense_matrix(c: float) -> None:
    """Take hundreds of steps V ← V − c (V v − φ) vᵀ, with φ of no word and of one word."""
    rng, V = np.random.default_rng(1), start().astype(np.float64)
    factored = FactoredMatrix.of(start())
    folds = 0
    for t in range(600):
        indices, values = sparse(rng, (0, 1, 7)[t % 3])
        v = (rng.standard_normal(SIZE) * 0.5).astype(np.float32)
        phi = np.zeros(WORDS)
        phi[indices] = values
        residual = V @ v - phi
        error = factored.step(indices, values, v, c)
        assert error == pytest.approx(residual @ residual, rel=1e-3, abs=1e-5)
        V -= c * np.outer(residual, v.astype(np.float64))
        folds += np.array_equal(factored.M, np.eye(SIZE))
    np.testing.assert_allclose(factored.value(), V, atol=2e-5)
    np.testing.assert_allclose(factored.G, V.T @ V, atol=1e-4)
    np.testing.assert_allclose(factored.M @ factored.inverse, np.eye(SIZE), atol=1e-6)
    assert (folds > 0) == (c > 0.04)


def test_folding_changes_the_factors_but_not_the_matrix() -> None:
    rng, factored = np.random.default_rng(2), FactoredMatrix.of(start())
    for _ in range(20):
        factored.step(*sparse(rng, 4), rng.standard_normal(SIZE).astype(np.float32) * 0.5, 0.1)
    before, T = factored.value(), factored.T
    other = FactoredMatrix(*(array.copy() for array in vars(factored).values()))
    factored.fold()
    assert factored.T is T
    np.testing.assert_allclose(factored.value(), before, atol=1e-6)
    np.testing.assert_array_equal(factored.M, np.eye(SIZE))
    assert not np.array_equal(other.M, factored.M)


def test_a_step_that_makes_the_factor_singular_stays_finite() -> None:
    """c‖v‖² = 1 removes the direction v from V, so M would have no inverse."""
    factored, V = FactoredMatrix.of(start()), start().astype(np.float64)
    indices, values = sparse(np.random.default_rng(3), 4)
    v = np.array([1, 0, 0, 0, 0], np.float32)
    for _ in range(3):
        factored.step(indices, values, v, 1.0)
    phi = np.zeros(WORDS)
    phi[indices] = values
    V[:, 0] = phi
    np.testing.assert_allclose(factored.value(), V, atol=3e-3)
