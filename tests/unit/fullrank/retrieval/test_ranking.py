"""Test which documents a mask leaves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.retrieval.ranking import remaining


@given(
    st.integers(0, 2**32 - 1),
    st.one_of(st.integers(0, 70), st.integers(900, 3000)),
    st.sampled_from([0.0, 0.001, 0.01, 0.04, 0.3, 1.0]),
    st.integers(0, 9),
)
def test_the_rows_that_are_left(seed: int, count: int, share: float, offset: int) -> None:
    """A mask may begin anywhere in memory, as a row of the masks of several queries does."""
    deleted = np.random.default_rng(seed).random(offset + count)[offset:] >= share
    memory = np.zeros(offset + count, np.bool_)
    memory[offset:] = deleted
    for mask in (deleted, memory[offset:]):
        found = remaining(count, mask)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, np.flatnonzero(~deleted))


@pytest.mark.parametrize("count", [0, 5])
def test_no_mask_leaves_all(count: int) -> None:
    np.testing.assert_array_equal(remaining(count, None), np.arange(count))
