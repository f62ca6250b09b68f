"""Blocks of rows are all rows, in order and none of them too large."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fullrank.encoding import Rows
from fullrank_trainer.features.corpus import blocks_of, stack_in_memory

SIZES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=20)


def rows_of(sizes: list[int]) -> Rows:
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    count = int(indptr[-1])
    return Rows(indptr, np.arange(count, dtype=np.int32), np.ones(count, np.float32), count)


@given(SIZES, st.integers(1, 15))
def test_blocks_are_all_rows_and_small(sizes: list[tuple[int, int]], most: int) -> None:
    columns = [rows_of([size[c] for size in sizes]) for c in range(2)]
    blocks = [*blocks_of(columns, most)]
    for c, column in enumerate(columns):
        found = stack_in_memory([block[c] for block in blocks])
        for mine, other in zip(found.arrays, column.arrays, strict=True):
            np.testing.assert_array_equal(mine, other)
    for first, second in blocks:
        assert len(first) == len(second)
        entries = len(first.indices) + len(second.indices)
        assert entries <= most or len(first) == 1
