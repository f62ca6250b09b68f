"""Rows by id, also among ids of one hash."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.storage import strings as module
from fullrank.storage.strings import IdIndex, hashes_of

some_ids = st.lists(st.text(max_size=3), unique=True, max_size=30)


@pytest.mark.parametrize("distinct", [2, 1 << 60])
@given(known=some_ids, wanted=some_ids)
def test_rows_are_those_of_a_dictionary(distinct: int, known: list[str], wanted: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # With two different hashes, most ids share theirs with others.
        patch.setattr(module, "hash", lambda id: len(id) % distinct, raising=False)
        index = IdIndex(known)
        expected = [known.index(id) for id in wanted if id in known]
        for _ in range(2):
            assert sorted(index.rows(wanted, hashes_of(wanted))) == sorted(expected)
    assert hashes_of([]).dtype == np.int64
