"""Row pointers that a forged file may have, against Python's integers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import BundleError
from fullrank.storage.checks import ascends, check_ascending

EDGES = st.sampled_from([0, 1, 2, 3, -1, 2**63 - 1, -(2**63)])


@given(st.lists(EDGES, min_size=1, max_size=6), st.integers(0, 3))
def test_pointers_ascend_from_zero_to_the_number_of_entries(
    numbers: list[int], entries: int
) -> None:
    expected = numbers[0] == 0 and numbers[-1] == entries
    expected &= all(one <= other for one, other in pairwise(numbers))
    assert ascends(np.array(numbers, np.int64), entries) == expected


def test_pointers_whose_differences_overflow_are_refused() -> None:
    forged = np.array([0, 2**63 - 1, -(2**63), -1, 4], np.int64)
    assert (np.diff(forged) > 0).all()
    with pytest.raises(BundleError, match=r"x\.npy: does not ascend"):
        check_ascending("x.npy", forged, 4)
