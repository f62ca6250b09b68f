"""Test the selections of the kernels against sorting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fullrank.kernels.select import (
    about_kth_largest,
    best_rows,
    kth_largest,
    rows_at_least,
)
from tests.random_cases import cases

NUMBERS = st.floats(-8, 8, width=32)
# No subnormal numbers: a process may count them as zero.
STEPS = st.integers(-(2**19), 2**19).map(lambda number: number / 2**16)
ANY_NUMBERS = st.floats(width=32, allow_nan=False)
SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.sweep
@cases(13)
@given(arrays(np.float32, array_shapes(max_dims=1, max_side=3000), elements=STEPS), SEEDS)
def test_a_number_that_about_k_values_reach(values: np.ndarray, seed: int) -> None:
    k = int(np.random.default_rng(seed).integers(1, len(values) + 1))
    found = about_kth_largest(values, k)
    exact = np.sort(values)[-k]
    assert np.count_nonzero(values >= found) >= k
    if np.isfinite(found):
        assert exact - found <= (values.max() - values.min()) / 1024 * 1.01 + 1e-5


@pytest.mark.sweep
@given(arrays(np.float32, array_shapes(max_dims=1, max_side=60), elements=NUMBERS), SEEDS)
def test_the_kth_largest_number(values: np.ndarray, seed: int) -> None:
    k = int(np.random.default_rng(seed).integers(1, len(values) + 1))
    assert kth_largest(values, k) == np.sort(values)[-k]


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_odd_numbers_among_the_values_do_no_harm(odd: float) -> None:
    for values in ([odd, 1, 2], [1, odd, 2], [odd, odd], [odd]):
        about_kth_largest(np.array(values, np.float32), 1)


@given(
    arrays(np.float32, array_shapes(max_dims=1, max_side=700), elements=ANY_NUMBERS),
    st.integers(1, 50),
    st.floats(0, 1),
    SEEDS,
)
def test_selections(scores: np.ndarray, wanted: int, share: float, seed: int) -> None:
    deleted = np.random.default_rng(seed).random(len(scores)) < share
    for mask in (deleted, np.zeros(0, np.bool_)):
        kept = ~mask if len(mask) else np.ones(len(scores), np.bool_)
        found = best_rows(scores, mask, wanted)
        assert len(set(found.tolist())) == len(found) == min(wanted, kept.sum())
        assert kept[found].all()
        np.testing.assert_array_equal(
            np.sort(scores[found]), np.sort(scores[kept])[max(0, kept.sum() - wanted) :]
        )
        least = scores[0]
        above = rows_at_least(scores, mask, least)
        np.testing.assert_array_equal(above, np.flatnonzero((scores >= least) & kept))


@pytest.mark.parametrize("order", [1, -1])
def test_selections_among_many_blocks(order: int) -> None:
    scores = np.arange(5000, dtype=np.float32)[::order].copy()
    found = best_rows(scores, np.zeros(0, np.bool_), 3)
    assert sorted(scores[found]) == [4997, 4998, 4999]


def test_all_scores_are_equal() -> None:
    scores = np.zeros(1000, np.float32)
    assert len(best_rows(scores, np.zeros(0, np.bool_), 10)) == 10
    assert len(rows_at_least(scores, np.zeros(0, np.bool_), np.float32(0))) == 1000
