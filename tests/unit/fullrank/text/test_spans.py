"""Words with their places: the words of the one segmentation, each where it stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.highlight import word_spans
from fullrank.text.words import words

# Letters that normalise to others, marks, scripts without spaces, Hangul, white space beyond ASCII, a lone surrogate.
NASTY = "aB3 _-\u00a0\u0085\u3000\u2028\u00bd\ufb01\u0130\u0301\ufe0fé東京カメ파일을กา\ud800🎉"


@given(st.text(st.sampled_from(NASTY), max_size=30) | st.text(max_size=30))
def test_the_words_are_those_of_the_segmentation(text: str) -> None:
    found = word_spans(text)
    assert found.words == words(text)
    assert len(found.starts) == len(found.stops) == len(found.words)
    for start, stop, word in zip(found.starts, found.stops, found.words, strict=True):
        assert 0 <= start < stop <= len(text)
        assert word in words(text[start:stop])


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("", []),
        ("Copy-files", [("Copy", "copy"), ("files", "files")]),
        ("(Café) au", [("Café", "café"), ("au", "au")]),
        ("a東京都b", [("a", "a"), ("東京", "東京"), ("京都", "京都"), ("b", "b")]),
        ("파일을", [("파일을", "파일")]),
        ("½", [("½", "1"), ("½", "2")]),
    ],
)
def test_each_word_has_the_place_that_it_stands_in(
    text: str, places: list[tuple[str, str]]
) -> None:
    starts, stops, found = word_spans(text)
    cut = [text[a:b] for a, b in zip(starts, stops, strict=True)]
    assert list(zip(cut, found, strict=True)) == places
