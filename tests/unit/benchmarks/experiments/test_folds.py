"""Two-fold cross validation on grids where the right choice is known, and the t-test by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from benchmarks.experiments.folds import cross_validate, halves, paired_t_test


def test_halves_contain_every_query_once_and_are_stable() -> None:
    first, second = halves(7)
    assert (len(first), len(second)) == (3, 4)
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(7))
    assert (np.diff(first) > 0).all()
    assert (np.diff(second) > 0).all()
    for again, half in zip(halves(7), (first, second), strict=True):
        np.testing.assert_array_equal(again, half)
    with pytest.raises(ValueError, match="1 queries"):
        halves(1)


def test_each_half_is_measured_with_the_setting_of_the_other() -> None:
    """Setting "a" is the best of the first half alone, "b" of the second: each half gets the wrong one."""
    first, second = halves(10)
    a, b = np.zeros(10), np.zeros(10)
    a[first], b[second] = 1.0, 0.5
    grid = {
        name: {"ndcg@10": values, "ndcg@1": values + 1} for name, values in (("a", a), ("b", b))
    }
    crossed = cross_validate(grid)
    assert crossed.chosen == ("b", "a")
    np.testing.assert_array_equal(crossed.per_query["ndcg@10"], np.zeros(10))
    np.testing.assert_array_equal(crossed.per_query["ndcg@1"], np.ones(10))
    assert crossed.measures["ndcg@1"].mean == 1


def test_queries_keep_their_order_and_the_first_of_equals_wins() -> None:
    values = np.arange(9.0)
    grid = {(0.1, 0.2): {"map": values}, (0.3, 0.4): {"map": values.copy()}}
    crossed = cross_validate(grid, by="map")
    assert crossed.chosen == ((0.1, 0.2), (0.1, 0.2))
    np.testing.assert_array_equal(crossed.per_query["map"], values)


def test_grids_of_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="no setting"):
        cross_validate({})
    for other in ({"map": np.ones(3)}, {"mrr": np.ones(4)}):
        with pytest.raises(ValueError, match="not measured alike"):
            cross_validate({1: {"map": np.ones(4)}, 2: other}, by="map")


def test_paired_t_test_equals_a_hand_computation() -> None:
    a, b = np.array([0.5, 0.25, 1.0, 0.75]), np.array([0.25, 0.25, 0.5, 0.5])
    found = paired_t_test(a, b)
    d = np.array([0.25, 0.0, 0.5, 0.25])
    error = np.sqrt(((d - 0.25) ** 2).sum() / 3) / 2
    assert found.difference == 0.25
    assert found.standard_error == pytest.approx(error)
    assert found.t == pytest.approx(0.25 / error)
    assert found.p == pytest.approx(2 * stats.t.sf(0.25 / error, 3))
    assert found.significant == (found.p < 0.05)
    assert paired_t_test(b, a).t == -found.t


def test_t_test_of_constant_differences() -> None:
    ones = np.ones(5)
    assert vars(paired_t_test(ones, ones)) == {
        "difference": 0.0, "standard_error": 0.0, "t": 0.0, "p": 1.0
    }  # fmt: skip
    assert paired_t_test(ones, 2 * ones).p == 0
    assert paired_t_test(ones, 2 * ones).t == -np.inf
    assert paired_t_test(ones, 2 * ones).as_dict()["t"] is None
    with pytest.raises(ValueError, match="no pairs"):
        paired_t_test(ones, np.ones(4))
