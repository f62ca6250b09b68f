"""What words are made of: x C while training and C U in the served table say the same, for every kind of C."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from fullrank.encoding import Rows
from fullrank.models.linear import DenseSide
from fullrank.text.features import Vocabulary
from fullrank_trainer.features.composition import Composition, Neighbours, hashed, mixed, own_rows

WORDS = ["ant", "bee", "cat", "dog", "eel"]
UNSEEN = ["ants", "zzz"]
# cat and ant are frequent; dog has one neighbour only, eel was never counted.
NEAR = Neighbours(
    ["cat", "ant", "fox"],
    {"ant": 0, "bee": 1, "cat": 2, "dog": 3},
    np.array([[1, 0], [0, 2], [0, 1], [1, -1]], np.int32),
)
COMPOSITIONS = {
    "own": own_rows(WORDS),
    "hashed": hashed(WORDS, NEAR),
    "mixed": mixed(WORDS, NEAR),
}


def side(trigrams: list[str]) -> DenseSide:
    return DenseSide(
        Vocabulary(WORDS),
        np.ones(len(WORDS) + 1, np.float32),
        np.zeros((len(WORDS), 0), np.float32),
        Vocabulary(trigrams),
        np.zeros((len(trigrams), 0), np.float32),
    )


def texts(columns: int) -> Rows:
    rng = np.random.default_rng(2)
    dense = np.where(rng.random((20, columns)) < 0.4, rng.random((20, columns)), 0)
    dense[[0, 9]] = 0
    return Rows.from_csr(sp.csr_array(dense.astype(np.float32)))


@pytest.mark.parametrize("trigrams", [[], ["#an", "ant", "nt#", "ts#"]], ids=["words", "trigrams"])
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_training_and_serving_make_the_same_vectors(name: str, trigrams: list[str]) -> None:
    made, plain = COMPOSITIONS[name], side(trigrams)
    unseen = UNSEEN if trigrams else []
    x = texts(len(WORDS) + len(unseen))
    trained = made.composer(plain, unseen)(x)
    assert trained.width == len(made.labels) + len(trigrams)
    table = np.random.default_rng(1).standard_normal((trained.width, 4)).astype(np.float32)
    folded = made.fold(plain, table)
    served = x.csr()[:, : len(WORDS)] @ folded.table
    if unseen:
        served = served + x.csr()[:, len(WORDS) :] @ folded.rows_for(unseen)
    np.testing.assert_allclose(trained.csr() @ table, served, rtol=1e-5, atol=1e-6)
    assert folded.table.dtype == np.float32
    assert folded.table.flags.c_contiguous


def test_hashed_words_are_composed_of_their_bins() -> None:
    """The outer product of sums: (1/k)(Σ_p a_p)(Σ_p b_p)ᵀ, so each side has 1/√k of each of its k rows."""
    matrix = COMPOSITIONS["hashed"].words
    assert matrix is not None
    wanted = np.array([[1, 1, 0], [1, 0, 1], [1, 1, 0], [0, 1, 0], [0, 0, 0]]) / np.sqrt(2)
    np.testing.assert_allclose(matrix.toarray(), wanted, rtol=1e-6)
    assert COMPOSITIONS["hashed"].labels == NEAR.bins


def test_frequent_words_keep_their_own_row_in_a_mix() -> None:
    made = COMPOSITIONS["mixed"]
    assert made.words is not None
    own, like = made.words.toarray()[:, :3], made.words.toarray()[:, 3:]
    np.testing.assert_array_equal(own, [[0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]])
    wanted = np.array([[0, 0, 0], [1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0]]) / np.sqrt(2)
    np.testing.assert_allclose(like, wanted, rtol=1e-6)
    assert len(set(made.labels)) == 6
    assert made.second_table == slice(3, 6)


def test_own_rows_do_not_change_texts() -> None:
    x = texts(len(WORDS))
    made: Composition = own_rows(WORDS)
    assert made.composer(side([]), [])(x) is x
