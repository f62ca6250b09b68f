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
from tests.random_cases import cases
from trainer.systems.linear.batches import by_column, take
from trainer.systems.linear.postings import postings_of


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
    wanted = np.random.default_rng(seed).random(matrix.width) < 0.6
    for columns in (np.zeros(0, np.bool_), wanted):
        starts, places, weights = by_column(matrix, rows, columns)
        twin = matrix.take(rows).csr().tocsc()
        if len(columns):
            twin = sp.csc_array(twin @ sp.diags_array(columns.astype(np.float32)))
            twin.eliminate_zeros()
        twin.sort_indices()
        np.testing.assert_array_equal(starts, twin.indptr)
        np.testing.assert_array_equal(places, twin.indices)
        np.testing.assert_array_equal(weights, twin.data)


@cases(30)
@given(batches(), st.sampled_from([0.0, 0.3, 1.0]))
def test_common_words_have_a_row_with_every_candidate(
    example: tuple[Rows, Int64], common: float
) -> None:
    matrix, rows = example
    starts, _, _, row, table = postings_of(matrix, rows, np.ones(matrix.width, np.bool_), common)
    dense = matrix.take(rows).csr().toarray()
    often = np.flatnonzero((dense != 0).sum(axis=0) > common * len(rows))
    np.testing.assert_array_equal(np.flatnonzero(row >= 0), often)
    np.testing.assert_array_equal(table, dense[:, often].T)
    assert starts[-1] == np.count_nonzero(dense)
