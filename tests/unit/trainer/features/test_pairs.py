"""Pairs of some queries: their own judgements, and the judged documents of all."""

from __future__ import annotations

import numpy as np

from trainer.features.corpus import Pairs

COUNTS = {1: 2, 4: 1, 6: 2}
PAIRS = Pairs(
    np.array([1, 4, 6]),
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
    assert {row: kept.tolist() for row, kept in found.weights.items()} == {1: [1, 2], 4: [1]}
    assert found.shared[1].tolist() == [True, False]
    assert list(found.passed_over) == [4]
    assert len(found) == 3


def test_the_documents_of_other_queries_stay_judged() -> None:
    for pairs in (
        PAIRS.of_queries(np.array([4])),
        PAIRS.of_queries(np.array([1, 4])).of_queries(np.array([1])),
    ):
        assert pairs.documents.tolist() == [0, 2, 5, 7]


def test_pairs_without_weights_stay_without() -> None:
    plain = Pairs(np.array([0, 1]), {0: np.array([1]), 1: np.array([0])})
    found = plain.of_queries(np.array([1]))
    assert (found.weights, found.shared) == (None, None)
