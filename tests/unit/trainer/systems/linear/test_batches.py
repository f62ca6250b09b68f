"""Batches of sparse rows against scipy, on empty rows, repeated rows, empty columns and any number of threads."""

from __future__ import annotations

from collections.abc import Iterator

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fullrank.encoding import Int64, Rows
from fullrank_trainer.systems.linear.batches import Scratch, by_column, number, renumber, take
from fullrank_trainer.systems.linear.softmax import postings_of
from tests.random_cases import cases


@pytest.fixture(autouse=True, scope="module")
def _threads() -> Iterator[None]:
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Rows, Int64]:
    """Random sparse rows, and rows of a batch in any order, repeats included."""
    count, width = draw(st.integers(1, 12)), draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dense = rng.standard_normal((count, width)) * (rng.random((count, width)) < 0.4)
    rows = Rows.from_csr(sp.csr_array(dense.astype(np.float32)))
    batch = draw(st.lists(st.integers(0, count - 1), max_size=15))
    numba.set_num_threads(draw(st.sampled_from([1, numba.config.NUMBA_NUM_THREADS])))  # type: ignore[attr-defined]
    return rows, np.array(batch, np.int64)


@cases(30)
@given(batches())
def test_taken_rows_are_those_of_rows_take(example: tuple[Rows, Int64]) -> None:
    matrix, rows = example
    found, wanted = take(matrix, rows), matrix.take(rows)
    for name in ("indptr", "indices", "values"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
        assert getattr(found, name).dtype == getattr(wanted, name).dtype


@cases(30)
@given(batches(), st.integers(0, 2**32))
def test_columns_of_a_batch_are_those_of_scipy(example: tuple[Rows, Int64], seed: int) -> None:
    matrix, rows = example
    wanted = np.flatnonzero(np.random.default_rng(seed).random(matrix.width) < 0.6)
    places = np.full(matrix.width, -1, np.int32)
    places[wanted] = np.arange(len(wanted))
    twin = matrix.take(rows).csr().tocsc()
    some = by_column(matrix, rows, len(wanted), places)
    for found, csc in ((by_column(matrix, rows, matrix.width), twin), (some, twin[:, wanted])):
        csc.sort_indices()
        for array, of_twin in zip(found, (csc.indptr, csc.indices, csc.data), strict=True):
            np.testing.assert_array_equal(array, of_twin)


@cases(30)
@given(batches())
def test_columns_that_occur_are_numbered(example: tuple[Rows, Int64]) -> None:
    matrix, rows = example
    batch, scratch = matrix.take(rows), Scratch()
    number(matrix.indices, matrix.width, scratch)  # another batch leaves no numbers behind
    columns, places = number(batch.indices, batch.width, scratch)
    np.testing.assert_array_equal(columns, np.unique(batch.indices))
    np.testing.assert_array_equal(np.flatnonzero(places >= 0), columns)
    local = renumber(batch, columns, places)
    np.testing.assert_array_equal(local.csr().toarray(), batch.csr().toarray()[:, columns])


@cases(30)
@given(batches(), st.sampled_from([0.0, 0.3, 1.0]))
def test_common_words_have_a_row_with_every_candidate(
    example: tuple[Rows, Int64], common: float
) -> None:
    matrix, rows = example
    every = np.arange(matrix.width, dtype=np.int32)
    starts, texts, weights, row, table = postings_of(matrix, rows, matrix.width, every, common)
    dense = matrix.take(rows).csr().toarray()
    often = np.flatnonzero((dense != 0).sum(axis=0) > common * len(rows))
    np.testing.assert_array_equal(np.flatnonzero(row >= 0), often)
    np.testing.assert_array_equal(table, dense[:, often].T)
    # Lists have the words that are left, and nothing of the common ones.
    rare = dense.copy()
    rare[:, often] = 0
    listed = sp.csc_array((weights, texts, starts), shape=dense.shape)
    np.testing.assert_array_equal(listed.toarray(), rare)
    assert len(texts) == starts[-1] == np.count_nonzero(rare)
