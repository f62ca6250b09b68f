"""DICE coefficients against a count with plain sets."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numba
import numpy as np
import pytest
import scipy.sparse as sp

from fullrank.encoding import Rows
from fullrank_trainer.features.composition import most_frequent, nearest

CONTEXTS, WORDS = 60, 25


def contexts() -> Rows:
    """Sixty contexts: the first is empty, word 0 occurs in none, word 1 in all others, word 2 in one."""
    rng = np.random.default_rng(5)
    held = rng.random((CONTEXTS, WORDS)) < rng.random(WORDS) * 0.4
    held[0], held[1:, 1], held[:, 0], held[:, 2] = False, True, False, False
    held[7, 2] = True
    counts: Any = held * rng.integers(1, 9, held.shape).astype(np.float32)
    return Rows.from_csr(sp.csr_array(counts))


def brute(rows: Rows, frequent: list[int], word: int, k: int) -> tuple[list[int], list[float]]:
    """Every coefficient as a fraction, sorted."""
    dense = rows.csr().toarray() > 0
    holding = [set(np.flatnonzero(column).tolist()) for column in dense.T]
    found = [
        (-Fraction(2 * len(both), len(holding[word]) + len(holding[j])), place)
        for place, j in enumerate(frequent)
        if (both := holding[word] & holding[j])
    ]
    found.sort()
    places = [place for _, place in found[:k]] + [-1] * (k - len(found[:k]))
    return places, [float(-dice) for dice, _ in found[:k]] + [0.0] * (k - len(found[:k]))


@pytest.mark.parametrize("k", [1, 5, 40])
def test_nearest_words_equal_brute_force(k: int) -> None:
    """Any number of threads, with words of no context and of a single one."""
    rows = contexts()
    occur = np.bincount(rows.indices, minlength=WORDS)
    frequent, wanted = most_frequent(occur, 12), np.arange(WORDS)
    assert frequent[0] == 1
    assert 0 not in frequent
    before = numba.get_num_threads()
    for threads in (1, before):
        numba.set_num_threads(threads)
        places, scores = nearest(rows, frequent, wanted, k)
        for word in range(WORDS):
            expected = brute(rows, frequent.tolist(), word, k)
            assert (places[word].tolist(), scores[word].tolist()) == expected, word
    numba.set_num_threads(before)
    assert (places[frequent, 0] == np.arange(len(frequent))).all()
    assert (places[0] == -1).all()


def test_ties_go_to_the_more_frequent_and_then_to_the_first_word() -> None:
    occur = np.array([2, 5, 2, 0, 5])
    assert most_frequent(occur, 3).tolist() == [1, 4, 0]
    assert most_frequent(occur, 9).tolist() == [1, 4, 0, 2]
    alike = Rows.from_csr(sp.csr_array(np.ones((3, 4), np.float32)))
    places, scores = nearest(alike, np.array([2, 0, 1]), np.array([3]), 3)
    assert places.tolist() == [[0, 1, 2]]
    assert (scores == 1).all()


def test_reported_progress_adds_up() -> None:
    done: Counter[str] = Counter()
    rows = contexts()
    nearest(rows, np.arange(3), np.arange(WORDS), 1, progress=lambda n: done.update(words=n))
    assert done["words"] == WORDS
