"""Stems of words."""

from __future__ import annotations

import random

import pytest
import snowballstemmer

from fullrank.text.folding import LANGUAGES, stemmer


def test_forms_of_a_word_share_a_stem() -> None:
    stem = stemmer("english")
    assert {stem(word) for word in ("listing", "listed", "lists", "list")} == {"list"}
    assert stem("목록") == "목록"
    assert stemmer("german")("häusern") == stemmer("german")("haus")
    assert {"english", "german", "spanish"} <= set(LANGUAGES)


def test_an_unknown_language_is_named() -> None:
    with pytest.raises(ValueError, match=r"no stemmer .latin.; there are: .*english"):
        stemmer("latin")


def test_words_that_are_told_by_their_ending_have_the_stem_of_the_stemmer() -> None:
    expected, stem, rng = snowballstemmer.stemmer("english"), stemmer("english"), random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz0é"
    for begin in ("", "y", "past", "commun", "hyphen", "bass", "roll"):
        for _ in range(1500):
            word = begin + "".join(rng.choices(letters, k=rng.randrange(1, 7)))
            assert stem(word) == expected.stemWord(word), word
