"""Each kernel against its numpy twin, on rows that are empty, of one word, all zero, or in no text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
import pytest
import scipy.sparse as sp

from fullrank.encoding import Rows
from fullrank_trainer.systems.linear import kernels
from fullrank_trainer.systems.linear.batches import Scratch, by_column, number, renumber
from fullrank_trainer.systems.linear.softmax import Postings, postings_of
from fullrank_trainer.systems.linear.towers import transpose

FEATURES, WIDTH = 30, 8


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


def nasty_rows(seed: int = 0) -> Rows:
    """Rows that are empty (first, middle, last), of one word, all zero, or negative; columns from 25 on are unused."""
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((40, FEATURES)) < 0.3, rng.random((40, FEATURES)) + 0.1, 0)
    dense[[0, 7, 39]] = 0
    dense[3] = 0
    dense[3, 5] = 2
    dense[11, 2] = -1.5
    dense[:, 25:] = 0
    rows = Rows.from_csr(sp.csr_array(dense.astype(np.float32)))
    zero = slice(rows.indptr[9], rows.indptr[10])
    rows.values[zero] = 0
    assert rows.indptr[10] > rows.indptr[9]
    return rows


def with_threads(count: int, kernel: Callable[..., None], *args: Any) -> list[np.ndarray]:
    """Run the kernel on some threads; return copies of its arrays."""
    numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    kernel(*copies)
    return [a for a in copies if isinstance(a, np.ndarray)]


def postings(z: Rows, s: Rows, common: float) -> tuple[np.ndarray, Rows, Postings]:
    """The words of s, s over these words, and the postings of all rows of z for them."""
    asked, places = number(s.indices, s.width, Scratch())
    found = postings_of(z, np.arange(len(z)), len(asked), places, common)
    return asked, renumber(s, asked, places), found


def check_threads(kernel: Callable[..., None], *args: Any) -> list[np.ndarray]:
    """Check that one thread and all threads give the same bits; return the arrays."""
    alone, many = with_threads(1, kernel, *args), with_threads(64, kernel, *args)
    for a, b in zip(alone, many, strict=True):
        np.testing.assert_array_equal(a, b)
    return alone


def table(seed: int = 1) -> np.ndarray:
    """(FEATURES, WIDTH), float32."""
    return np.random.default_rng(seed).standard_normal((FEATURES, WIDTH), np.float32)


def test_embed_equals_its_numpy_twin() -> None:
    x, U = nasty_rows(), table()
    out = np.full((len(x), WIDTH), np.nan, np.float32)
    found = check_threads(kernels.embed, x.indptr, x.indices, x.values, U, out)[-1]
    np.testing.assert_allclose(found, x.csr().toarray() @ U, rtol=1e-5, atol=1e-6)
    assert (found[[0, 7, 9, 39]] == 0).all()
    np.testing.assert_array_equal(found[3], 2 * U[5])


def test_embed_handles_no_texts() -> None:
    nothing = Rows.from_csr(sp.csr_array(np.zeros((0, FEATURES), np.float32)))
    out = np.empty((0, WIDTH), np.float32)
    kernels.embed(nothing.indptr, nothing.indices, nothing.values, table(), out)
    assert out.shape == (0, WIDTH)


def test_transpose_equals_the_dense_transpose() -> None:
    x = nasty_rows()
    touched, indptr, rows, values = transpose(x, Scratch())
    dense = np.zeros((len(x), FEATURES), np.float32)
    for t, f in enumerate(touched.tolist()):
        dense[rows[indptr[t] : indptr[t + 1]], f] = values[indptr[t] : indptr[t + 1]]
    np.testing.assert_array_equal(dense, x.csr().toarray())
    assert touched.max() < 25
    assert (np.diff(indptr) > 0).all()


def test_adagrad_table_equals_its_numpy_twin() -> None:
    x, U = nasty_rows(), table()
    rng = np.random.default_rng(2)
    gradient = rng.standard_normal((len(x), WIDTH)).astype(np.float32)
    squares = np.where(rng.random(FEATURES) < 0.5, rng.random(FEATURES), 0).astype(np.float32)
    *_, changed, sums = check_threads(
        kernels.adagrad_table, *transpose(x, Scratch()), gradient, U, squares, 0.1
    )
    g = x.csr().toarray().astype(np.float64).T @ gradient
    wanted_sums = squares + np.square(g).mean(axis=1)
    step = 0.1 * g / np.sqrt(np.where(wanted_sums == 0, 1, wanted_sums))[:, None]
    np.testing.assert_allclose(sums, wanted_sums, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(changed, U - step, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(changed[25:], U[25:])


def test_adagrad_changes_nothing_without_a_gradient() -> None:
    x, U = nasty_rows(), table()
    squares, nothing = np.zeros(FEATURES, np.float32), np.zeros((len(x), WIDTH), np.float32)
    *_, changed, sums = check_threads(
        kernels.adagrad_table, *transpose(x, Scratch()), nothing, U, squares, 0.1
    )
    np.testing.assert_array_equal(changed, U)
    np.testing.assert_array_equal(sums, 0)


@pytest.mark.parametrize("common", [0.0, 0.3, 1.0])
def test_match_equals_its_numpy_twin(common: float) -> None:
    s, z = nasty_rows(), nasty_rows(5)
    D = np.random.default_rng(3).random(FEATURES, np.float32)
    before = np.random.default_rng(4).random((len(s), len(z)), np.float32)
    asked, local, by_word = postings(z, s, common)
    found = check_threads(
        kernels.match, local.indptr, local.indices, local.values, *by_word, D[asked], before
    )[-1]
    wanted = before + s.csr().toarray() @ np.diag(D) @ z.csr().toarray().T
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[0], before[0])


@pytest.mark.parametrize("common", [0.0, 0.3, 1.0])
def test_match_gradient_equals_its_numpy_twin(common: float) -> None:
    s, z = nasty_rows(), nasty_rows(5)
    G = np.random.default_rng(3).standard_normal((len(s), len(z))).astype(np.float32)
    asked, local, by_word = postings(z, s, common)
    by_query_word = by_column(local, np.arange(len(s)), len(asked))
    out = np.full(len(asked), np.nan, np.float32)
    found = check_threads(kernels.match_gradient, *by_query_word, *by_word, G, out)[-1]
    full = np.einsum("ic,iw,cw->w", G, s.csr().toarray(), z.csr().toarray())
    np.testing.assert_allclose(found, full[asked], rtol=1e-4, atol=1e-5)


def ragged(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """indptr and values, int64."""
    indptr = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    return indptr, np.array([x for row in lists for x in row], np.int64)


def softmax_loss(row: np.ndarray, positives: list[int], masked: list[int]) -> float:
    """Σ_p |P|^−½ · −log(e^{f(p)} / (e^{f(p)} + Σ_{n not masked} e^{f(n)})), float64."""
    negatives = [c for c in range(len(row)) if c not in masked]
    total = 0.0
    for p in positives:
        scores = np.append(row[negatives], row[p]).astype(np.float64)
        top = scores.max()
        total += top + np.log(np.exp(scores - top).sum()) - row[p]
    return float(total / np.sqrt(len(positives)))


UNWEIGHTED = UNBIASED = np.zeros(0, np.float32)


POSITIVES = [[2], [0, 3, 5], [1], [0, 1, 2, 3, 4, 5], [4]]
MASKED = [[2], [0, 3, 5, -1, 1], [1, -1], [0, 1, 2, 3, 4, 5], [4, 0]]


def test_exponentials_are_those_of_numpy() -> None:
    x = np.append(np.linspace(-87, 0, 100_001), -(2.0 ** -np.arange(30))).astype(np.float32)
    found = np.array([kernels.exponential(value) for value in x])
    np.testing.assert_allclose(found, np.exp(x.astype(np.float64)), rtol=2 * 2.0**-23)
    assert kernels.exponential(np.float32(0)) == 1
    for value in (-87.1, -104.0, -1e30, -np.inf):
        assert kernels.exponential(np.float32(value)) == 0
    assert np.isnan(kernels.exponential(np.float32(np.nan)))


def test_a_row_with_a_score_that_is_no_number_has_no_finite_loss() -> None:
    S, losses = np.array([[0, np.nan, 3]], np.float32), np.empty(1, np.float32)
    kernels.softmax_gradient(S, UNBIASED, *ragged([[2]]), *ragged([[2]]), UNWEIGHTED, losses)
    assert np.isnan(losses[0])


def test_softmax_gradient_by_finite_differences() -> None:
    """∂L/∂f of every score; masked scores (known positives and the query itself) are no negatives."""
    rng = np.random.default_rng(6)
    S = (rng.standard_normal((5, 6)) * 3).astype(np.float32)
    bias = rng.standard_normal(6, np.float32)
    losses = np.empty(5, np.float32)
    G, *_, found = check_threads(
        kernels.softmax_gradient,
        S,
        bias,
        *ragged(POSITIVES),
        *ragged(MASKED),
        UNWEIGHTED,
        losses,
    )
    step = 1e-5
    for i, (positives, masked) in enumerate(zip(POSITIVES, MASKED, strict=True)):
        row = (S[i] + bias).astype(np.float64)
        wanted = np.zeros(6)
        for c in range(6):
            up, down = row.copy(), row.copy()
            up[c] += step
            down[c] -= step
            wanted[c] = (
                softmax_loss(up, positives, masked) - softmax_loss(down, positives, masked)
            ) / (2 * step)
        np.testing.assert_allclose(5 * G[i], wanted, rtol=1e-4, atol=1e-6)
        mean = softmax_loss(row, positives, masked) / np.sqrt(len(positives))
        assert found[i] == pytest.approx(mean, rel=1e-4, abs=1e-5)
    assert G[4, 0] == 0
    assert (G[3] == 0).all()  # every document is relevant, so the gradient is zero


def test_weighted_softmax_gradient_by_finite_differences() -> None:
    """L = Σ_p w_p −log P(p); the reported loss is the weighted mean."""
    rng = np.random.default_rng(7)
    S = (rng.standard_normal((5, 6)) * 3).astype(np.float32)
    starts, positives = ragged(POSITIVES)
    weights = rng.uniform(0.05, 3, len(positives)).astype(np.float32)
    losses = np.empty(5, np.float32)
    G, *_, found = check_threads(
        kernels.softmax_gradient,
        S,
        UNBIASED,
        starts,
        positives,
        *ragged(MASKED),
        weights,
        losses,
    )
    step = 1e-5
    for i, masked in enumerate(MASKED):
        row = S[i].astype(np.float64)
        terms = [
            (w, [p])
            for p, w in zip(POSITIVES[i], weights[starts[i] : starts[i + 1]].tolist(), strict=True)
        ]
        hidden = [*masked, *POSITIVES[i]]

        def loss(scores: np.ndarray, terms: Any = terms, hidden: Any = hidden) -> float:
            return sum(w * softmax_loss(scores, positive, hidden) for w, positive in terms)

        wanted = [(loss(row + e) - loss(row - e)) / (2 * step) for e in np.eye(6) * step]
        np.testing.assert_allclose(5 * G[i], wanted, rtol=1e-4, atol=1e-6)
        mean = loss(row) / sum(w for w, _ in terms)
        assert found[i] == pytest.approx(mean, rel=1e-4, abs=1e-5)


def test_weights_of_one_over_the_root_are_no_weights() -> None:
    S = np.random.default_rng(8).standard_normal((5, 6), np.float32)
    positives = ragged(POSITIVES)
    weights = np.concatenate([np.full(len(p), len(p) ** -0.5, np.float32) for p in POSITIVES])
    plain, weighted = S.copy(), S.copy()
    for G, w in ((plain, UNWEIGHTED), (weighted, weights)):
        losses = np.empty(5, np.float32)
        kernels.softmax_gradient(G, UNBIASED, *positives, *ragged(MASKED), w, losses)
    np.testing.assert_allclose(weighted, plain, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (7, 1), (64, 501)])
def test_column_sums_are_those_of_numpy(shape: tuple[int, int]) -> None:
    G = np.random.default_rng(9).standard_normal(shape, np.float32)
    found = check_threads(kernels.column_sums, G, np.full(shape[1], np.nan, np.float32))[-1]
    np.testing.assert_allclose(found, G.sum(axis=0, dtype=np.float64), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4])
def test_softmax_gradient_of_extreme_scores_is_finite(shift: float) -> None:
    S = np.array([[0, 80, -80, 3, 0, 0]], np.float32) + np.float32(shift)
    losses = np.empty(1, np.float32)
    kernels.softmax_gradient(S, UNBIASED, *ragged([[2]]), *ragged([[2]]), UNWEIGHTED, losses)
    assert np.isfinite(S).all()
    assert np.isfinite(losses).all()
    assert S[0, 2] == pytest.approx(-1)
    assert S.sum() == pytest.approx(0, abs=1e-6)
