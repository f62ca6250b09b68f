"""Layers above a table: the formula by hand, bits that depend on their row alone, and shapes that do not fit."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from fullrank.models.linear import DenseSide
from fullrank.models.linear.sides import Tower
from fullrank.text.features import Vocabulary, count_corpus


def tower(sizes: tuple[int, ...], *, skip: bool = False, seed: int = 0) -> Tower:
    rng = np.random.default_rng(seed)
    pairs = pairwise(sizes)
    weights = [(rng.standard_normal(pair) / 2).astype(np.float32) for pair in pairs]
    return Tower(weights, [rng.standard_normal(n).astype(np.float32) for n in sizes], skip)


def by_hand(t: Tower, a: np.ndarray) -> np.ndarray:
    """Return the formula in float64, all rows at once."""
    h = np.tanh(a.astype(np.float64) + t.biases[0])
    for i, (weight, bias) in enumerate(zip(t.weights, t.biases[1:], strict=True)):
        p = h @ weight.astype(np.float64) + bias
        h = p if t.skip and i == len(t.weights) - 1 else np.tanh(p)
    return a + h if t.skip else h


@pytest.mark.parametrize(
    ("sizes", "skip"), [((5,), False), ((5, 7), False), ((5, 7, 3), False), ((5, 9, 5), True)]
)
def test_a_tower_equals_its_formula_row_by_row(sizes: tuple[int, ...], skip: bool) -> None:
    t, rng = tower(sizes, skip=skip), np.random.default_rng(1)
    a = rng.standard_normal((40, 5)).astype(np.float32)
    a[3] = 0
    a[4] = 1e30
    out = t.apply(a)
    assert out.dtype == np.float32
    assert out.shape == (40, t.width(5))
    rest = np.arange(40) != 4
    np.testing.assert_allclose(out[rest], by_hand(t, a)[rest], rtol=1e-5, atol=1e-5)
    assert np.isfinite(out).all()
    for i in range(len(a)):
        apart = np.concatenate([np.zeros(1, np.float32), a[i]])[1:]  # elsewhere in memory
        np.testing.assert_array_equal(t.apply(apart[None])[0], out[i])


def test_a_tower_without_layers_is_the_identity() -> None:
    a = np.ones((2, 3), np.float32)
    assert not Tower()
    assert Tower().apply(a) is a
    assert Tower().width(3) == 3


@pytest.mark.parametrize(
    ("weights", "biases", "skip"),
    [
        ([(3, 4)], [], False),
        ([], [], True),
        ([], [3], True),
        ([(3, 4)], [3], False),
        ([(3, 4)], [3, 5], False),
        ([(3, 4)], [4, 4], False),
        ([(3, 4)], [3, 4], True),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    weights: list[tuple[int, int]], biases: list[int], skip: bool
) -> None:
    zeros = [np.zeros(shape, np.float32) for shape in weights]
    with pytest.raises(ValueError, match=r"tower|layer|weights"):
        Tower(zeros, [np.zeros(n, np.float32) for n in biases], skip)
    with pytest.raises(ValueError, match="where the table has 4 columns"):
        tower((3,)).width(4)


def test_a_text_without_features_stays_zero_under_a_tower() -> None:
    """A text without features has no bias either; unknown words get trigram vectors under layers too."""
    side = DenseSide(
        Vocabulary(["ab"]), np.ones(2, np.float32), np.ones((1, 4), np.float32),
        Vocabulary(["#ab", "bc#"]), np.ones((2, 4), np.float32), tower=tower((4, 6)),
    )  # fmt: skip
    counts = count_corpus([["", "ab", "abc", "zz"]])
    dense = side.embed(counts.words, counts.columns, [1.0])
    assert dense.shape == (4, 6)
    np.testing.assert_array_equal(dense[0], 0)
    assert (dense[1:] != 0).all()  # "zz" is a word, if one of which nothing is known
    alone = replace(side, trigrams=Vocabulary([]), trigram_table=np.zeros((0, 4), np.float32))
    dense = alone.embed(counts.words, counts.columns, [1.0])
    np.testing.assert_array_equal(dense[[0, 2, 3]], 0)


def test_counted_words_weigh_by_the_root_of_their_trigrams() -> None:
    """φ counts letter trigrams: a word's row is the mean of theirs times the root of their number, twice."""
    trigrams = ["#ab", "ab#", "abb", "bb#"]
    T = np.eye(4, dtype=np.float32)
    rows = np.array([[1, 1, 0, 0], [1, 0, 1, 1]], np.float32) / np.sqrt([[2], [3]])
    side = DenseSide(
        Vocabulary(["ab", "abb"]), np.full(3, 7, np.float32), rows.astype(np.float32),
        Vocabulary(trigrams), T, counted=True,
    )  # fmt: skip
    counts = count_corpus([["ab ab abb", "abbb", ""]])
    dense = side.embed(counts.words, counts.columns, [1.0])
    # abbb is unseen: #ab, abb, bbb, bb#, of which three are known.
    np.testing.assert_allclose(dense, [[3, 2, 1, 1], [1, 0, 1, 1], [0, 0, 0, 0]], rtol=1e-6)
