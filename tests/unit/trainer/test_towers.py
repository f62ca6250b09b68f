"""Towers: forward against a plain float64 twin, every gradient against its finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from fullrank.features import Rows
from fullrank.towers import Tower
from tests.unit.trainer.test_kernels import FEATURES, nasty_rows
from trainer.towers import Encoder, adagrad, layers, start_tower

SHAPES = {
    "linear": ((), False, 0.0),
    "cosine": ((), False, 7.0),
    "one": ((5,), False, 0.0),
    "paper": ((5, 6, 4), False, 7.0),
    "skip": ((5, 6, 5), True, 0.0),
    "skip cosine": ((5, 5), True, 7.0),
}


@pytest.fixture(params=SHAPES, ids=lambda name: name.replace(" ", "-"))
def encoder(request: pytest.FixtureRequest) -> Encoder:
    sizes, skip, gamma = SHAPES[request.param]
    rng = np.random.default_rng(2)
    made = start_tower(sizes, skip, rng)
    for array in [*made.weights, *made.biases]:
        array += rng.standard_normal(array.shape).astype(np.float32) / 3
    return Encoder(rng.standard_normal((FEATURES, 5)).astype(np.float32), made, gamma)


def twin(values: dict[str, np.ndarray], encoder: Encoder, x: Rows) -> np.ndarray:
    """u by the formulas, float64, densely."""
    phi = x.csr().toarray().astype(np.float64)
    y = a = phi @ values["table"]
    depth = len(encoder.tower.biases)
    for i in range(depth):
        p = (y @ values[f"W{i}"] if i else a) + values[f"b{i}"]
        y = p if encoder.tower.skip and i == depth - 1 else np.tanh(p)
    if encoder.tower.skip:
        y = a + y
    if encoder.gamma:
        norm = np.linalg.norm(y, axis=1, keepdims=True)
        y = encoder.gamma * y / np.where(norm == 0, 1, norm)
    return np.where(np.diff(x.indptr)[:, None] > 0, y, 0)


def float64(encoder: Encoder) -> dict[str, np.ndarray]:
    return {name: array.astype(np.float64) for name, array in encoder.arrays()}


def test_forward_is_the_formula(encoder: Encoder) -> None:
    x = nasty_rows()
    u = encoder.forward(x).u
    assert u.dtype == np.float32
    assert u.shape == (len(x), encoder.width)
    np.testing.assert_allclose(u, twin(float64(encoder), encoder, x), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(u[np.diff(x.indptr) == 0], 0)


def test_training_and_serving_agree(encoder: Encoder) -> None:
    """Matrix products and the served sums are the same function up to rounding."""
    a = np.random.default_rng(0).standard_normal((9, 5)).astype(np.float32)
    served = encoder.tower.apply(a)
    np.testing.assert_allclose(layers(encoder.tower, a)[0], served, rtol=1e-5, atol=1e-6)


def test_gradients_by_finite_differences(encoder: Encoder) -> None:
    """L = Σ g·u with a random g: its slope along random directions and single entries, array by array.

    AdaGrad from sums of 10⁶ at a rate of 10³ makes one step the gradient itself, to six figures.
    """
    x, rng = nasty_rows(), np.random.default_rng(5)
    # A norm near zero has no slope worth measuring: the row of zeros stays out.
    g = rng.standard_normal((len(x), encoder.width)).astype(np.float32)
    g[9] = 0
    before = float64(encoder)
    for _, total in encoder.sums():
        total[...] = 1e6
    encoder.step([encoder.backward(encoder.forward(x), g)], rate=1e3, layer_rate=1e3)
    for name, array in encoder.arrays():
        gradient = before[name] - array
        assert np.count_nonzero(gradient) > 2, name

        def slope(direction: np.ndarray, name: str = name) -> float:
            ends = [
                float((twin(before | {name: before[name] + sign * 1e-6 * direction}, encoder, x) * g).sum())
                for sign in (1, -1)
            ]  # fmt: skip
            return (ends[0] - ends[1]) / 2e-6

        scale = np.abs(gradient).max()
        direction = rng.standard_normal(array.shape)
        assert float((gradient * direction).sum()) == pytest.approx(
            slope(direction), rel=1e-2, abs=1e-2 * scale
        ), name
        for place in rng.permutation(np.argwhere(np.abs(gradient) > scale / 10))[:5]:
            one = np.zeros(array.shape)
            one[tuple(place)] = 1
            assert gradient[tuple(place)] == pytest.approx(slope(one), rel=1e-2, abs=1e-3 * scale)


def test_one_step_of_two_sides_adds_their_gradients_up() -> None:
    """A tied tower moves once, by the sum; order does not matter to its layers."""
    rng = np.random.default_rng(0)
    table, made = (
        rng.standard_normal((FEATURES, 5)).astype(np.float32),
        start_tower((5, 3), False, rng),
    )

    def moved(order: slice) -> Encoder:
        copy = Tower([w.copy() for w in made.weights], [b.copy() for b in made.biases])
        encoder = Encoder(table.copy(), copy)
        sides = [encoder.forward(nasty_rows(seed)) for seed in (0, 1)]
        gradients = [encoder.backward(side, np.ones_like(side.u)) for side in sides]
        for _, total in encoder.sums():
            total[...] = 1
        encoder.step(gradients[order], 0.1, 0.1)
        return encoder

    both, back = moved(slice(None)), moved(slice(None, None, -1))
    for (name, a), (_, b) in zip(both.arrays(), back.arrays(), strict=True):
        if name != "table":
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
            assert (a != dict(moved(slice(0, 1)).arrays())[name]).any()


def test_adagrad_by_hand() -> None:
    array, squares = np.ones(3, np.float32), np.array([0, 9, 0], np.float32)
    adagrad(array, squares, np.array([2, 4, 0], np.float32), 0.5)
    np.testing.assert_allclose(squares, [4, 25, 0])
    np.testing.assert_allclose(array, [0.5, 0.6, 1])


@pytest.mark.parametrize("skip", [False, True])
def test_start(skip: bool) -> None:
    """Uniform within ±√(6/(in + out)), biases 0; with skip the last layer is 0: the table alone."""
    made = start_tower((40, 60, 40), skip, np.random.default_rng(0))
    bound = np.sqrt(6 / 100)
    assert bound * 0.95 < np.abs(made.weights[0]).max() <= bound
    assert not any(bias.any() for bias in made.biases)
    assert made.weights[1].any() != skip
    assert not start_tower((), False, np.random.default_rng(0))
    again = [start_tower((3, 4), False, np.random.default_rng(4)) for _ in range(2)]
    np.testing.assert_array_equal(again[0].weights[0], again[1].weights[0])
