"""Kernels of word pairs against numpy: W as a dense matrix, and as a hash table with collisions."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from fullrank.encoding import Rows
from fullrank.models.pairs import PRIME, window_starts
from fullrank_trainer.systems import pairs as kernels

pytestmark = pytest.mark.usefixtures("one_thread")

WIDTH = 7
# Empty, one word, a whole row, explicit zeros, and ordinary ones.
TEXTS: list[tuple[list[int], list[float]]] = [
    ([], []),
    ([3], [1.0]),
    (list(range(WIDTH)), [0.1, -0.5, 0.25, 0.0, 0.75, -0.125, 0.3]),
    ([1, 4], [0.0, 0.0]),
    ([0, 2, 6], [0.5, 0.25, 0.75]),
    ([2, 3, 5], [0.6, -0.2, 0.4]),
]
TEXT_ROWS = Rows.from_lists(TEXTS, WIDTH)
TRIPLES = np.array([(q, d, n) for q in range(6) for d in range(6) for n in range(6)], np.int64)
STORES = {
    "whole": (WIDTH, WIDTH * WIDTH),
    "hashed": (PRIME, 23),
    "smaller than a row": (PRIME, 5),
    "one": (PRIME, 1),
}


class Twin:
    """The twin in float64, pair by pair."""

    def __init__(self, prime: int, table: np.ndarray, alpha: float, *, off_diagonal: bool) -> None:
        self.table, self.alpha, self.off_diagonal = table.astype(np.float64), alpha, off_diagonal
        i, j = np.indices((WIDTH, WIDTH))
        self.slot = (i * prime + j) % len(table)
        self.x = TEXT_ROWS.csr().toarray().astype(np.float64)

    def W(self) -> np.ndarray:
        """The dense matrix of the table."""
        W = self.table[self.slot]
        if self.off_diagonal:
            np.fill_diagonal(W, 0)
        return W + self.alpha * np.eye(WIDTH)

    def hinge(self, triple: np.ndarray) -> float:
        """max(0, 1 − f(q,d⁺) + f(q,d⁻))."""
        q, d, n = self.x[triple]
        return max(0.0, 1 - float(q @ self.W() @ (d - n)))

    def gradient(self, triple: np.ndarray) -> tuple[np.ndarray, float]:
        """−∂L/∂w and −∂L/∂α of a violated triple."""
        q, d, n = self.x[triple]
        pairs = np.outer(q, d - n)
        if self.off_diagonal:
            np.fill_diagonal(pairs, 0)
        step = np.zeros_like(self.table)
        np.add.at(step, self.slot, pairs)
        return step, float(q @ (d - n))


def run(
    prime: int, table: np.ndarray, alpha: np.ndarray, triples: np.ndarray, rate: float, *,
    apart: bool = False, off_diagonal: bool = False, closed: bool = False, update: bool = True,
    always: bool = False,
) -> np.ndarray:  # fmt: skip
    """The kernel on some triples, in place."""
    losses = np.zeros(len(triples), np.float32)
    text = (TEXT_ROWS.indptr, TEXT_ROWS.indices, TEXT_ROWS.values)
    kernels.pair_sgd(
        triples, 1, text, text, window_starts(WIDTH, prime, len(table)), table, alpha,
        apart, off_diagonal, closed, rate, update, always, losses,
    )  # fmt: skip
    return losses


def random_table(slots: int) -> np.ndarray:
    return np.random.default_rng(slots).standard_normal(slots).astype(np.float32)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(("apart", "off_diagonal"), [(False, False), (True, False), (False, True)])
def test_a_step_equals_the_papers_update(store: str, apart: bool, off_diagonal: bool) -> None:
    """W += λ q(d⁺ − d⁻)ᵀ on every nasty triple; steps of pairs that share a weight add up."""
    prime, slots = STORES[store]
    changed = 0
    for triple in TRIPLES:
        table, alpha = random_table(slots), np.array([0.7 if apart else 0.0])
        twin = Twin(prime, table, alpha[0], off_diagonal=off_diagonal)
        wanted = twin.hinge(triple)
        found = run(prime, table, alpha, triple[None], 0.1, apart=apart, off_diagonal=off_diagonal)[
            0
        ]
        assert found == pytest.approx(wanted, abs=2e-6)
        step, step_alpha = twin.gradient(triple)
        rate = 0.1 * (wanted > 0)
        changed += bool(rate and step.any())
        np.testing.assert_allclose(table, twin.table + rate * step, atol=2e-6)
        assert alpha[0] == pytest.approx(twin.alpha + (rate * step_alpha if apart else 0), abs=1e-6)
    assert changed > 20


@pytest.mark.parametrize("store", STORES)
def test_a_step_follows_the_negative_gradient_of_the_hinge(store: str) -> None:
    """Finite differences of the hinge in every weight and in α."""
    prime, slots = STORES[store]
    checked = 0
    for triple in TRIPLES[::5]:
        table, alpha = random_table(slots), np.array([0.7])
        twin = Twin(prime, table, 0.7, off_diagonal=False)
        if twin.hinge(triple) < 1e-3:
            continue
        before = table.astype(np.float64)
        run(prime, table, alpha, triple[None], 1.0, apart=True)
        for slot in range(slots):
            sides = []
            for nudge in (1e-6, -1e-6):
                twin.table = before.copy()
                twin.table[slot] += nudge
                sides.append(twin.hinge(triple))
            gradient = (sides[0] - sides[1]) / 2e-6
            assert table[slot] - before[slot] == pytest.approx(-gradient, rel=1e-3, abs=1e-5)
        twin.table, sides = before, []
        for nudge in (1e-6, -1e-6):
            twin.alpha = 0.7 + nudge
            sides.append(twin.hinge(triple))
        assert alpha[0] - 0.7 == pytest.approx((sides[1] - sides[0]) / 2e-6, rel=1e-3, abs=1e-5)
        checked += 1
    assert checked > 10


def test_a_table_without_collisions_equals_the_dense_matrix() -> None:
    """Without collisions hashing changes nothing: hinges and W are equal after the same triples."""
    slots = 1_000_003
    i, j = np.indices((WIDTH, WIDTH))
    slot = (i * PRIME + j) % slots
    assert len(np.unique(slot)) == WIDTH * WIDTH
    rng = np.random.default_rng(5)
    triples = TRIPLES[rng.integers(0, len(TRIPLES), 500)]
    whole, hashed = np.zeros(WIDTH * WIDTH, np.float32), np.zeros(slots, np.float32)
    none = np.zeros(1)
    a = run(WIDTH, whole, none, triples, 0.3)
    b = run(PRIME, hashed, none, triples, 0.3)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(whole.reshape(WIDTH, WIDTH), hashed[slot])
    assert (a > 0).any()
    assert (a == 0).any()


def test_closed_weights_stay_zero() -> None:
    table = random_table(WIDTH * WIDTH)
    table[::3] = 0
    before = table.copy()
    run(WIDTH, table, np.zeros(1), TRIPLES, 0.1, closed=True)
    assert (table[::3] == 0).all()
    assert (table != before).sum() > 10


def test_measuring_changes_nothing_and_always_steps() -> None:
    table, alpha = random_table(23), np.array([0.5])
    before = table.copy()
    measured = run(PRIME, table, alpha, TRIPLES, 0.1, apart=True, update=False)
    np.testing.assert_array_equal(table, before)
    assert alpha[0] == 0.5
    assert (measured == 0).any()
    satisfied = TRIPLES[measured == 0][-1:]
    run(PRIME, table, alpha, satisfied, 0.1, apart=True, always=True)
    step, step_alpha = Twin(PRIME, before, 0.5, off_diagonal=False).gradient(satisfied[0])
    np.testing.assert_allclose(table, before + 0.1 * step, atol=1e-6)
    assert alpha[0] == pytest.approx(0.5 + 0.1 * step_alpha)


def test_replaying_the_violating_triples_restores_the_table() -> None:
    """The table is equal bit for bit."""
    first, second, alpha = random_table(23), random_table(23), np.array([0.5])
    losses = run(PRIME, first, alpha, TRIPLES, 0.1, apart=True)
    again = np.array([0.5])
    run(PRIME, second, again, TRIPLES[losses > 0], 0.1, apart=True, always=True)
    np.testing.assert_array_equal(first, second)
    assert alpha[0] == again[0]


def _largest(row: np.ndarray, keep: int) -> np.ndarray:
    """All but the ``keep`` largest |w| zeroed, ties to the first."""
    order = np.argsort(-np.abs(row), kind="stable")
    out = row.copy()
    out[order[keep:]] = 0
    return out


@pytest.mark.parametrize("keep", [1, 2, 4, 7, 50])
def test_the_smallest_of_each_row_are_removed(keep: int) -> None:
    rng = np.random.default_rng(0)
    W = rng.integers(-3, 4, (9, 7)).astype(np.float32)  # full of ties and zeros
    W[0], W[1] = 0, 2
    wanted = np.array([_largest(row, keep) for row in W])
    counts = np.zeros(len(W), np.int64)
    kernels.count_kept(W, keep, counts)
    np.testing.assert_array_equal(counts, (wanted != 0).sum(axis=1))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    indices, values = np.zeros(indptr[-1], np.int32), np.zeros(indptr[-1], np.float32)
    kernels.fill_kept(W, keep, indptr, indices, values)
    for i, row in enumerate(wanted):
        here = slice(indptr[i], indptr[i + 1])
        np.testing.assert_array_equal(indices[here], np.flatnonzero(row))
        np.testing.assert_array_equal(values[here], row[row != 0])
    kernels.remove_smallest(W, keep)
    np.testing.assert_array_equal(W, wanted)


def test_a_limit_of_zero_keeps_all_weights() -> None:
    W = np.arange(6, dtype=np.float32).reshape(2, 3)
    counts = np.zeros(2, np.int64)
    kernels.count_kept(W, 0, counts)
    assert counts.tolist() == [2, 3]
    indices, values = np.zeros(5, np.int32), np.zeros(5, np.float32)
    kernels.fill_kept(W, 0, np.array([0, 2, 5]), indices, values)
    assert indices.tolist() == [1, 2, 0, 1, 2]
    assert values.tolist() == [1, 2, 3, 4, 5]


def test_shards_cover_every_triple() -> None:
    """On several threads each triple is used once."""
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    table, alpha, losses = random_table(23), np.zeros(1), np.zeros(len(TRIPLES), np.float32)
    text = (TEXT_ROWS.indptr, TEXT_ROWS.indices, TEXT_ROWS.values)
    kernels.pair_sgd(
        TRIPLES, numba.get_num_threads(), text, text, window_starts(WIDTH, PRIME, 23), table, alpha,
        False, False, False, 0.0, False, False, losses,
    )  # fmt: skip
    numba.set_num_threads(1)
    np.testing.assert_array_equal(losses, run(PRIME, table, alpha, TRIPLES, 0.0, update=False))
