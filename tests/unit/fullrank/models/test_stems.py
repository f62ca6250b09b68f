"""The rows of words in a vocabulary of stems, against the stemmer word by word."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.models.language import Stems
from fullrank.text.features import Vocabulary
from fullrank.text.folding import stemmer

STEMS = ["list", "file", "upgrad", "日本"]
WORDS = ["listing", "lists", "files", "upgrade", "unknown"]
asked = st.lists(st.sampled_from([*STEMS, *WORDS, "listed", "upgrading", "café", ""]))


@given(asked, st.integers(0, len(WORDS)), st.booleans())
def test_rows_are_those_of_the_stems(words: list[str], written: int, is_stored: bool) -> None:
    index = {stem: row for row, stem in enumerate(STEMS)}
    stem = stemmer("english")
    rows = [index.get(stem(word), -1) for word in WORDS[:written]]
    stored = np.array(rows, np.int32) if is_stored else None
    found = Stems("english", Vocabulary(STEMS), Vocabulary(WORDS[:written]), stored)
    assert found.rows(words).tolist() == [index.get(stem(word), -1) for word in words]
    assert found.of_written.tolist() == rows


@pytest.mark.parametrize("rows", [[0], [0, 4], [-2, 0]])
def test_rows_that_do_not_fit_are_refused(rows: list[int]) -> None:
    with pytest.raises(ValueError, match="rows of stems"):
        Stems("english", Vocabulary(STEMS), Vocabulary(WORDS[:2]), np.array(rows, np.int32))
