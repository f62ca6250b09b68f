"""Pairs of some queries: their own judgements, and the judged documents of all."""

from __future__ import annotations

import numpy as np
import pytest

from fullrank_trainer.features.pairs import Pairs

COUNTS = {1: 2, 4: 1, 6: 2}
PAIRS = Pairs.of(
    {1: np.array([0, 2]), 4: np.array([5]), 6: np.array([2, 7])},
    weights={row: np.arange(1, 1 + count, dtype=np.float32) for row, count in COUNTS.items()},
    shared={1: np.array([True, False]), 4: np.array([True]), 6: np.array([False, True])},
    passed_over={4: np.array([0, 7])},
)


def test_some_queries_keep_their_own_judgements() -> None:
    found = PAIRS.of_queries(np.array([1, 4]))
    assert found.queries.tolist() == [1, 4]
    assert {row: kept.tolist() for row, kept in found.relevant.items()} == {1: [0, 2], 4: [5]}
    assert found.weights is not None
    assert found.shared is not None
    assert found.weights.tolist() == [1, 2, 1]
    assert found.shared[found.relevant.slice_of(1)].tolist() == [True, False]
    assert list(found.passed_over) == [4]
    assert len(found) == 3


def test_the_documents_of_other_queries_stay_judged() -> None:
    for pairs in (
        PAIRS.of_queries(np.array([4])),
        PAIRS.of_queries(np.array([1, 4])).of_queries(np.array([1])),
    ):
        assert pairs.documents.tolist() == [0, 2, 5, 7]


def test_pairs_without_weights_stay_without() -> None:
    plain = Pairs.of({0: np.array([1]), 1: np.array([0])})
    found = plain.of_queries(np.array([1]))
    assert (found.weights, found.shared) == (None, None)


def test_queries_of_another_split_join_with_no_larger_weights_than_there_are() -> None:
    other = Pairs.of(
        {2: np.array([3, 9]), 4: np.array([8])},
        weights={2: np.array([0.7, 6], np.float32), 4: np.array([1], np.float32)},
        shared={2: np.array([False, True]), 4: np.array([True])},
        passed_over={2: np.array([1]), 4: np.array([2])},
    )
    found = PAIRS.with_queries_of(other)
    assert found.queries.tolist() == [1, 2, 4, 6]
    # Query 4 keeps its own judgement.
    assert {row: kept.tolist() for row, kept in found.relevant.items()} == {
        1: [0, 2], 2: [3, 9], 4: [5], 6: [2, 7]
    }  # fmt: skip
    assert found.weights is not None
    assert found.shared is not None
    assert found.weights[found.relevant.slice_of(2)].tolist() == pytest.approx([0.7, 2])
    assert found.weights[found.relevant.slice_of(6)].tolist() == [1, 2]
    assert found.shared[found.relevant.slice_of(2)].tolist() == [False, True]
    assert {row: above.tolist() for row, above in found.passed_over.items()} == {2: [1], 4: [0, 7]}
    assert found.documents.tolist() == [0, 2, 3, 5, 7, 9]


def test_queries_without_weights_join_with_a_weight_of_one() -> None:
    other = Pairs.of({2: np.array([3, 9])})
    found = PAIRS.with_queries_of(other)
    assert found.weights is not None
    assert found.shared is not None
    assert (
        found.weights[found.relevant.slice_of(2)].tolist(),
        found.shared[found.relevant.slice_of(2)].tolist(),
    ) == ([1, 1], [True, True])
    plain = Pairs.of({0: np.array([1])}).with_queries_of(other)
    assert (plain.weights, plain.shared) == (None, None)
