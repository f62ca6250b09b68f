"""Snippets against brute force: every window, every pair of spans."""

from __future__ import annotations

from html import unescape
from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.highlight import Field, Kind, Marked, Tags, apart, snippet, word_spans

WEIGHTS: dict[str, tuple[Kind, float]] = {
    "red": ("word", 0.75),
    "apple": ("word", 0.5),
    "fruit": ("meaning", 0.1),
    "zero": ("word", 0.0),
}
TEXT = st.lists(st.sampled_from([*WEIGHTS, "a", "of", "&amp", "<b>"]), max_size=40).map(", ".join)


NUMBERS = {word: i for i, word in enumerate(WEIGHTS)}
MARKED: Marked = dict(enumerate(WEIGHTS.values()))


def field_of(text: str) -> Field:
    """A text between others."""
    whole = f"red apple\n{text}\nred apple"
    starts, stops, words = word_spans(whole)
    numbers = [NUMBERS.get(word, -1) for word in words]
    here = slice(2, len(words) - 2)
    return Field(
        whole, 10, 10 + len(text), starts.tolist()[here], stops.tolist()[here], numbers[here]
    )


def value(words: list[str]) -> float:
    """What a window is worth: each of its marked words once."""
    return fsum(WEIGHTS[word][1] for word in set(words) & WEIGHTS.keys())


@given(TEXT, st.integers(1, 12))
def test_no_window_weighs_more(text: str, size: int) -> None:
    words = word_spans(text).words
    found = word_spans(snippet(field_of(text), MARKED, size).text).words
    windows = [words[i : i + size] for i in range(max(1, len(words) - size + 1))]
    assert value(found) == max(map(value, windows))
    assert found in windows


@given(TEXT, st.integers(1, 12))
def test_the_spans_are_the_marked_words_of_the_snippet(text: str, size: int) -> None:
    found = snippet(field_of(text), MARKED, size)
    assert found.text in text
    assert [(found.text[a:b], kind) for a, b, kind in found.spans] == [
        (word, WEIGHTS[word][0]) for word in word_spans(found.text).words if word in WEIGHTS
    ]


@given(TEXT, st.integers(1, 12))
def test_tags_enclose_the_spans_and_all_else_is_escaped(text: str, size: int) -> None:
    plain = snippet(field_of(text), MARKED, size)
    found = snippet(field_of(text), MARKED, size, Tags("[", "]"))
    assert [(unescape(found.text[a:b]), kind) for a, b, kind in found.spans] == [
        (plain.text[a:b], kind) for a, b, kind in plain.spans
    ]
    for start, stop, _ in found.spans:
        assert (found.text[start - 1], found.text[stop]) == ("[", "]")
    assert unescape(found.text.replace("[", "").replace("]", "")) == plain.text
    assert "<" not in found.text


def test_a_window_has_as_many_words_before_its_marked_ones_as_after() -> None:
    text = " ".join(["x"] * 50 + ["red", "y", "apple"] + ["x"] * 50)
    found = snippet(field_of(text), MARKED, 7)
    assert found.text == "x x red y apple x x"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("(one) two three.", "(one) two"), ("(one) two.", "(one) two."), ("...", "..."), ("", "")],
)
def test_a_text_without_marked_words_begins_at_its_beginning(text: str, expected: str) -> None:
    assert snippet(field_of(text), MARKED, 2) == (expected, [])


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 2, "word"), (1, 3, "word")], [(0, 3, "word")]),
        ([(0, 2, "word"), (2, 3, "word")], [(0, 2, "word"), (2, 3, "word")]),
        ([(0, 2, "meaning"), (1, 3, "word")], [(1, 3, "word")]),
        ([(0, 1, "meaning"), (1, 3, "word"), (3, 5, "meaning")], None),
    ],
)
def test_spans_do_not_overlap(
    spans: list[tuple[int, int, Kind]], expected: list[tuple[int, int, Kind]] | None
) -> None:
    assert apart(spans) == (spans if expected is None else expected)
