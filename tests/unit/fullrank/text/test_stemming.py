"""Stems of words."""

from __future__ import annotations

import pytest

from fullrank.text.stemming import LANGUAGES, stemmer


def test_forms_of_a_word_share_a_stem() -> None:
    stem = stemmer("english")
    assert {stem(word) for word in ("listing", "listed", "lists", "list")} == {"list"}
    assert stem("목록") == "목록"
    assert stemmer("german")("häusern") == stemmer("german")("haus")
    assert {"english", "german", "spanish"} <= set(LANGUAGES)


def test_an_unknown_language_is_named() -> None:
    with pytest.raises(ValueError, match=r"no stemmer .latin.; there are: .*english"):
        stemmer("latin")
