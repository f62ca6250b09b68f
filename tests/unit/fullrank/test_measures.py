"""Measures against hand-computed values and slow definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.measures import (
    Estimate,
    average_precision,
    estimate,
    ndcg,
    precision,
    rank_loss,
    ranking_measures,
    recall,
    reciprocal_rank,
)

# Ranks 1, 3 and 6 are relevant (grades 2, 1, 1); one more relevant document was not ranked.
GRADES = np.array([2, 0, 1, 0, 0, 1, 0])
IDEAL = np.array([1, 2, 1, 3])


def test_average_precision_by_hand() -> None:
    assert average_precision(GRADES, 4) == pytest.approx((1 / 1 + 2 / 3 + 3 / 6) / 4, abs=1e-15)


def test_precision_divides_by_k_even_where_fewer_were_ranked() -> None:
    assert precision(GRADES, 10) == 0.3
    assert precision(GRADES, 2) == 0.5


def test_recall_by_hand() -> None:
    assert recall(GRADES, 4, 3) == 0.5
    assert recall(GRADES, 4, 100) == 0.75


def test_reciprocal_rank_by_hand() -> None:
    assert reciprocal_rank(GRADES) == 1.0
    assert reciprocal_rank(np.array([0, 0, 1])) == 1 / 3
    assert reciprocal_rank(np.array([0, 0])) == 0.0
    assert reciprocal_rank(np.array([], np.int64)) == 0.0


def test_ndcg_by_hand() -> None:
    got = 2 / math.log2(2) + 1 / math.log2(4)
    best = 3 / math.log2(2) + 2 / math.log2(3) + 1 / math.log2(4)
    assert ndcg(GRADES, IDEAL, 3) == pytest.approx(got / best, abs=1e-15)
    assert ndcg(GRADES, IDEAL, 1) == pytest.approx(2 / 3, abs=1e-15)


def test_a_perfect_ranking_scores_one_everywhere_but_p_at_10() -> None:
    values = ranking_measures(np.array([3, 2, 1, 1, 0, 0]), IDEAL)
    assert values.pop("p@10") == 0.4
    assert set(values.values()) == {1.0}


def test_nothing_found_scores_zero() -> None:
    assert set(ranking_measures(np.zeros(5, np.int64), IDEAL).values()) == {0.0}


def test_rank_loss_counts_ties_half() -> None:
    scores = np.array([0.5, 0.9, 0.5, 0.1], np.float32)
    # Row 0 against 1 (wrong), 2 (tie) and 3 (right).
    assert rank_loss(scores, np.array([0]), None) == 0.5
    masked = np.array([True, False, True, True])
    assert rank_loss(scores, np.array([0]), masked) == 0.25


def test_rank_loss_without_a_pair_is_zero() -> None:
    assert rank_loss(np.array([1.0, 2.0]), np.array([0, 1]), None) == 0.0


@given(
    st.lists(st.integers(-3, 3), min_size=2, max_size=12).flatmap(
        lambda scores: st.tuples(
            st.just(scores),
            st.sets(st.integers(0, len(scores) - 1), min_size=1),
            st.sets(st.integers(0, len(scores) - 1)),
        )
    )
)
def test_rank_loss_equals_the_sum_over_pairs(case: tuple[list[int], set[int], set[int]]) -> None:
    scores, relevant, removed = case
    removed -= relevant
    candidates = np.array([row not in removed for row in range(len(scores))])
    pairs = [
        1.0 if scores[r] < scores[n] else 0.5 if scores[r] == scores[n] else 0.0
        for r in relevant
        for n in range(len(scores))
        if n not in relevant and n not in removed
    ]
    expected = sum(pairs) / len(pairs) if pairs else 0.0
    got = rank_loss(np.array(scores, np.float32), np.array(sorted(relevant)), candidates)
    assert got == pytest.approx(expected, abs=1e-12)


def test_estimate_by_hand() -> None:
    got = estimate(np.array([1.0, 2.0, 3.0, 6.0]))
    assert got.mean == 3.0
    assert got.standard_error == pytest.approx(math.sqrt(14 / 3) / 2, abs=1e-15)


def test_one_value_has_no_standard_error() -> None:
    got = estimate(np.array([0.25]))
    assert math.isnan(got.standard_error)
    assert got.as_dict() == {"mean": 0.25, "standard_error": None}
    with pytest.raises(ValueError, match="no values"):
        estimate(np.array([]))


def test_an_unknown_standard_error_is_a_dash() -> None:
    assert [Estimate(1.0, error).error_text(2) for error in (math.nan, 0.125)] == ["–", "0.12"]
