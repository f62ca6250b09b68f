"""Test scores, ranks and orders of rows against their numpy twins."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fullrank.kernels.evidence import NOTHING_NEEDED
from fullrank.kernels.scoring import rank_rows, score_rows
from fullrank.kernels.select import in_order
from tests.unit.fullrank.kernels.data import SEEDS, random_rows


@given(SEEDS, st.integers(1, 20), st.integers(0, 100), st.integers(1, 30))
def test_score_rows(seed: int, count: int, width: int, features: int) -> None:
    rng = np.random.default_rng(seed)
    u = rng.normal(size=width).astype(np.float32)
    v, t = rng.normal(size=(count, width)).astype(np.float32), random_rows(rng, count, features)
    words = rng.permutation(features)[: rng.integers(0, features + 1)].astype(np.int32)
    weights = rng.normal(size=len(words)).astype(np.float32)
    rows = rng.integers(0, count, size=rng.integers(0, 40))
    dense, lexical, scratch = np.empty(len(rows)), np.empty(len(rows)), np.zeros(features)
    score_rows(u, words, weights, v, t.indptr, t.indices, t.values, rows, scratch, dense, lexical)
    assert not scratch.any()
    np.testing.assert_allclose(
        dense, v[rows].astype(np.float64) @ u.astype(np.float64), rtol=1e-12, atol=1e-12
    )
    scratch[words] = weights
    whole = t.csr().toarray().astype(np.float64)
    np.testing.assert_allclose(lexical, whole[rows] @ scratch, rtol=1e-12, atol=1e-12)


def test_score_rows_depends_on_the_row_alone() -> None:
    rng = np.random.default_rng(3)
    v = rng.normal(size=(2, 77)).astype(np.float32).repeat(20, axis=0)
    t, u = random_rows(rng, 40, 5), rng.normal(size=77).astype(np.float32)
    found, nothing = np.empty(40), np.empty(40)
    score_rows(u, np.zeros(0, np.int32), u[:0], v, t.indptr, t.indices, t.values,
               np.arange(40), np.zeros(5), found, nothing)  # fmt: skip
    assert len(np.unique(found)) == 2


@given(SEEDS, st.integers(0, 60), st.integers(0, 70), st.integers(1, 70))
def test_documents_in_the_order_of_their_scores(
    seed: int, count: int, offset: int, limit: int
) -> None:
    rng = np.random.default_rng(seed)
    rows, parts = rng.permutation(count), rng.integers(-2, 3, (3, count)).astype(np.float64)
    dense, lexical, bias = parts
    found = in_order(rows, dense, lexical, bias, offset, limit)
    places = np.lexsort((rows, -parts.sum(axis=0)))[offset : offset + limit]
    for one, expected in zip(found, (rows, parts.sum(axis=0), *parts), strict=True):
        np.testing.assert_array_equal(one, expected[places])


@given(SEEDS, st.integers(1, 20), st.integers(0, 40), st.integers(0, 12), st.integers(1, 12))
def test_rows_are_scored_and_ranked(
    seed: int, count: int, width: int, offset: int, limit: int
) -> None:
    rng = np.random.default_rng(seed)
    v, t = rng.normal(size=(count, width)).astype(np.float32), random_rows(rng, count, 9)
    u, bias = rng.normal(size=width).astype(np.float32), rng.normal(size=count).astype(np.float32)
    words = rng.permutation(9)[:4].astype(np.int32)
    weights = rng.normal(size=4).astype(np.float32)
    places, scratch, parts = rng.permutation(count), np.zeros(9), np.empty((2, count))
    rows = rng.permutation(3 * count)[:count]
    documents = v, t.indptr, t.indices, t.values
    score_rows(u, words, weights, *documents, places, scratch, *parts)
    found, count_found = rank_rows(
        u, words, weights, v, t.indptr, t.indices, t.values, bias, places, rows, scratch,
        *NOTHING_NEEDED, offset, limit,
    )  # fmt: skip
    assert not scratch.any()
    assert count_found == count
    own = bias[places]
    columns = rows, parts.sum(axis=0) + own.astype(np.float64), *parts, own
    order = np.lexsort((rows, -columns[1]))[offset : offset + limit]
    for one, expected in zip(found, columns, strict=True):
        np.testing.assert_array_equal(one, expected[order])
