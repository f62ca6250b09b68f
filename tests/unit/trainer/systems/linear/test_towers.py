"""Towers: forward values against a float64 twin, every gradient against finite differences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

from fullrank.encoding import Rows
from fullrank.models.linear.sides import Tower
from fullrank_trainer.features.composition import Phi
from fullrank_trainer.systems.linear.batches import Scratch
from fullrank_trainer.systems.linear.towers import (
    Encoder,
    Tape,
    adagrad,
    layers,
    start_table,
    start_tower,
)
from tests.unit.trainer.systems.linear.test_kernels import FEATURES, nasty_rows

SHAPES = {
    "linear": ((), False, 0.0),
    "cosine": ((), False, 7.0),
    "one": ((5,), False, 0.0),
    "paper": ((5, 6, 4), False, 7.0),
    "skip": ((5, 6, 5), True, 0.0),
    "skip cosine": ((5, 5), True, 7.0),
}


@dataclass(frozen=True, eq=False)
class Case:
    """A side and its γ."""

    encoder: Encoder
    gamma: float

    def forward(self, x: Rows) -> Tape:
        """See Encoder."""
        return self.encoder.forward(Phi(x), self.gamma, Scratch())

    def arrays(self) -> dict[str, np.ndarray]:
        """All learned arrays, live."""
        return {"table": self.encoder.table, **dict(self.encoder.tower.arrays())}

    def float64(self) -> dict[str, np.ndarray]:
        """A copy."""
        return {name: array.astype(np.float64) for name, array in self.arrays().items()}

    def twin(self, values: dict[str, np.ndarray], x: Rows) -> np.ndarray:
        """u by the formulas, float64, densely."""
        phi = x.csr().toarray().astype(np.float64)
        y = a = phi @ values["table"]
        depth, skip = len(self.encoder.tower.biases), self.encoder.tower.skip
        for i in range(depth):
            p = (y @ values[f"W{i}"] if i else a) + values[f"b{i}"]
            y = p if skip and i == depth - 1 else np.tanh(p)
        y = a + y if skip else y
        if self.gamma:
            norm = np.linalg.norm(y, axis=1, keepdims=True)
            y = self.gamma * y / np.where(norm == 0, 1, norm)
        return np.where(np.diff(x.indptr)[:, None] > 0, y, 0)


@pytest.fixture(params=SHAPES, ids=lambda name: name.replace(" ", "-"))
def case(request: pytest.FixtureRequest) -> Case:
    sizes, skip, gamma = SHAPES[request.param]
    rng = np.random.default_rng(2)
    made = start_tower(sizes, skip, rng)
    for _, array in made.arrays():
        array += rng.standard_normal(array.shape).astype(np.float32) / 3
    table = rng.standard_normal((FEATURES, 5)).astype(np.float32)
    return Case(Encoder(table, made), gamma)


def test_forward_equals_its_numpy_twin(case: Case) -> None:
    x = nasty_rows()
    u = case.forward(x).u
    assert u.dtype == np.float32
    np.testing.assert_allclose(u, case.twin(case.float64(), x), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(u[np.diff(x.indptr) == 0], 0)


def test_training_and_serving_score_the_same(case: Case) -> None:
    """Matrix products and the served sums are the same function up to rounding."""
    a = np.random.default_rng(0).standard_normal((9, 5)).astype(np.float32)
    tower = case.encoder.tower
    served = tower.apply(a)
    np.testing.assert_allclose(layers(tower, a)[0], served, rtol=1e-5, atol=1e-6)


def test_gradients_by_finite_differences(case: Case) -> None:
    """L = Σ g·u with a random g: its slope along random directions and single entries, array by array.

    AdaGrad from sums of 10⁶ at a rate of 10³ makes one step the gradient itself, to six figures.
    """
    x, rng = nasty_rows(), np.random.default_rng(5)
    tape = case.forward(x)
    g = rng.standard_normal(tape.u.shape).astype(np.float32)
    g[9] = 0  # a zero row: its norm has no derivative
    before = case.float64()
    for _, total in case.encoder.state():
        total[...] = 1e6
    case.encoder.step([case.encoder.backward(tape, g)], rate=1e3, layer_rate=1e3)

    def loss(values: dict[str, np.ndarray]) -> float:
        return float((case.twin(values, x) * g).sum())

    for name, array in case.arrays().items():
        gradient = before[name] - array
        scale = np.abs(gradient).max()
        places = rng.permutation(np.argwhere(np.abs(gradient) > scale / 10))[:5]
        directions = [rng.standard_normal(array.shape), *np.zeros((len(places), *array.shape))]
        for direction, place in zip(directions[1:], places, strict=True):
            direction[tuple(place)] = 1
        for direction in directions:
            ends = [loss(before | {name: before[name] + s * direction}) for s in (1e-6, -1e-6)]
            slope = (ends[0] - ends[1]) / 2e-6
            found = float((gradient * direction).sum())
            assert found == pytest.approx(slope, rel=1e-2, abs=1e-2 * scale), name


def test_words_are_composed_before_texts_read_them(case: Case) -> None:
    """Values and steps are those of φ multiplied out."""
    rng = np.random.default_rng(4)
    words = np.where(rng.random((12, 30)) < 0.3, rng.random((12, 30)), 0)
    words[[2, 7]] = 0
    parts = np.where(rng.random((30, FEATURES)) < 0.3, rng.random((30, FEATURES)), 0)
    x, C = (Rows.from_csr(sp.csr_array(m.astype(np.float32))) for m in (words, parts))
    phi = Phi(x, C)
    np.testing.assert_allclose(phi.composed().csr().toarray(), words @ parts, rtol=1e-5)
    assert (len(phi), phi.width) == (12, FEATURES)
    tables, values = [], []
    start = case.encoder.table.copy()
    g = rng.standard_normal((12, case.forward(phi.composed()).u.shape[1])).astype(np.float32)
    for given in (phi, Phi(phi.composed()), phi.slice(0, 12)):
        encoder = Encoder(start.copy(), case.encoder.tower.copy())
        encoder.squares[:] = 1
        tape = encoder.forward(given, case.gamma, Scratch())
        encoder.step([encoder.backward(tape, g)], rate=0.1, layer_rate=0.0)
        values.append(tape.u)
        tables.append(encoder.table)
    for found, wanted in ((values, values[1]), (tables, tables[1])):
        for mine in found:
            np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-5)
    assert not np.allclose(tables[0], start)


def test_a_tied_step_adds_the_gradients_of_both_sides() -> None:
    """A tied tower takes one step on the sum; the order of the sides does not change its layers."""
    rng = np.random.default_rng(0)
    table, made = (
        rng.standard_normal((FEATURES, 5)).astype(np.float32),
        start_tower((5, 3), False, rng),
    )

    def stepped(order: slice) -> Encoder:
        copy = Tower([w.copy() for w in made.weights], [b.copy() for b in made.biases])
        encoder = Encoder(table.copy(), copy)
        sides = [encoder.forward(Phi(nasty_rows(seed)), 0.0, Scratch()) for seed in (0, 1)]
        gradients = [encoder.backward(side, np.ones_like(side.u)) for side in sides]
        for _, total in encoder.state():
            total[...] = 1
        encoder.step(gradients[order], 0.1, 0.1)
        return encoder

    both, back = stepped(slice(None)), stepped(slice(None, None, -1))
    once = dict(stepped(slice(0, 1)).tower.arrays())
    for (name, a), (_, b) in zip(both.tower.arrays(), back.tower.arrays(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        assert (a != once[name]).any()


def test_adagrad_equals_hand_computed_steps() -> None:
    array, squares = np.ones(3, np.float32), np.array([0, 9, 0], np.float32)
    adagrad(array, squares, np.array([2, 4, 0], np.float32), 0.5)
    np.testing.assert_allclose(squares, [4, 25, 0])
    np.testing.assert_allclose(array, [0.5, 0.6, 1])


@pytest.mark.parametrize("skip", [False, True])
def test_layers_and_tables_start_within_their_bounds(skip: bool) -> None:
    """Uniform within ±√(6/(in + out)), biases 0; with skip the last layer is 0: the table alone."""
    made = start_tower((40, 60, 40), skip, np.random.default_rng(0))
    bound = np.sqrt(6 / 100)
    assert bound * 0.95 < np.abs(made.weights[0]).max() <= bound
    assert not any(bias.any() for bias in made.biases)
    assert made.weights[1].any() != skip
    assert not start_tower((), False, np.random.default_rng(0))
    table = start_table(40, 60, 0.0, np.random.default_rng(0))
    assert table.shape == (40, 60)
    assert bound * 0.95 < np.abs(table).max() <= bound
    assert start_table(400, 60, 0.3, np.random.default_rng(0)).std() == pytest.approx(0.3, rel=0.05)
    again = [start_tower((3, 4), False, np.random.default_rng(4)) for _ in range(2)]
    np.testing.assert_array_equal(again[0].weights[0], again[1].weights[0])
