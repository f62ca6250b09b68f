"""Completions are those that a comparison of all texts finds, in their order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.complete import (
    MIN_LETTERS,
    Candidate,
    Completions,
    Kind,
    SortedTexts,
    folded_prefix,
    is_completing_word,
    sorted_in_steps,
)

LETTERS = "abé "
texts = st.text(LETTERS, min_size=1, max_size=7).map(lambda text: " ".join(text.split()))
keys = texts.map(folded_prefix).filter(bool)


def edited(prefix: str) -> set[str]:
    """Return all texts one edit away from a prefix, over a few letters; the last letter stays."""
    letters = {*"abe ", *prefix}
    cuts = [(prefix[:i], prefix[i:]) for i in range(len(prefix))]
    found = {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1 and b[0] != b[1]}
    found |= {a + c + b for a, b in cuts for c in letters}
    found |= {a + c + b[1:] for a, b in cuts[:-1] for c in letters if c != b[0]}
    return found | {a + b[1:] for a, b in cuts[:-1]}


@given(st.lists(keys, unique=True, max_size=12), keys, st.integers(1, 5))
def test_texts_are_found_by_prefix_and_by_one_an_edit_away(
    several: list[str], prefix: str, limit: int
) -> None:
    found = SortedTexts(several)
    exact = [i for i, key in enumerate(several) if key.startswith(prefix)]
    assert found.beginning(prefix, limit) == exact[:limit]
    near = [i for i, key in enumerate(several) if any(map(key.startswith, edited(prefix)))]
    less = [i for i, key in enumerate(several) if key.startswith(prefix[:-1])]
    is_long = len(prefix) >= MIN_LETTERS
    assert found.one_edit_away(prefix, limit) == (near[:limit] if is_long else [])
    assert found.without_last(prefix, limit) == (less[:limit] if is_long else [])
    assert all((key in found) == (key in several) for key in (*several, prefix))


def candidate(text: str, kind: Kind, frequency: float = 0.0) -> Candidate:
    return Candidate(folded_prefix(text), text, kind, frequency)


TEXTS = Completions(
    [
        candidate("coffee beans", Kind.QUERY, 4),
        candidate("coffee maker", Kind.QUERY, 9),
        candidate("Coffee Maker", Kind.TITLE),
        candidate("Coffee: a history", Kind.TITLE, 2),
        candidate("Coffee cup", Kind.TITLE),
        candidate("Crème brûlée", Kind.TITLE),
        candidate("東京の天気", Kind.TITLE),
        candidate("coffee", Kind.WORD, 50),
        candidate("maker", Kind.WORD, 5),
        candidate("makes", Kind.WORD, 7),
        candidate("history", Kind.WORD, 7),
    ]
)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("COF", ["coffee maker", "coffee beans", "Coffee: a history", "Coffee cup", "coffee"]),
        ("coffee ", ["coffee maker", "coffee beans", "Coffee: a history", "Coffee cup"]),
        ("coffee m", ["coffee maker", "coffee makes"]),
        ("my coffee m", []),  # "my" is unknown
        ("Maker hist", ["Maker history"]),
        ("cofe", ["coffee maker", "coffee beans", "Coffee: a history", "Coffee cup", "coffee"]),
        ("cfe", []),
        ("creme b", ["Crème brûlée"]),
        ("東京", ["東京の天気"]),
        ("mkae", ["makes", "maker"]),
        ("", []),
        ("?!", []),
        (" ", []),
    ],
)
def test_what_is_typed_is_completed(typed: str, found: Sequence[str]) -> None:
    assert [one.text for one in TEXTS.complete(typed, 10)] == found
    assert [one.text for one in TEXTS.complete(typed, 2)] == found[:2]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("tower 10", ["tower 100"]),
        ("10", []),  # a number alone completes nothing
        ("garden 10", []),
        ("tower case 10", ["tower case 100"]),
        ("tower ca", ["tower case", "tower cable"]),
        ("garden ca", ["garden cable", "garden case"]),
        ("tower 100 ca", ["tower 100 case", "tower 100 cable"]),
    ],
)
def test_words_that_stand_together_come_first(typed: str, found: Sequence[str]) -> None:
    several = Completions(
        [
            *(candidate(title, Kind.TITLE) for title in ("Case for Tower 100", "Long garden cable", "Radio 1000")),
            *(candidate(word, Kind.WORD, 9 if word == "cable" else 1) for word in ("tower", "case", "cable", "garden")),
        ]
    )  # fmt: skip
    assert [one.text for one in several.complete(typed, 10)] == found
    assert [one.text for one in several.complete(typed, 1)] == found[:1]


def test_what_begins_with_the_typed_text_comes_before_an_edit_of_it() -> None:
    several = Completions(
        [
            candidate("plane", Kind.WORD, 1),
            candidate("planet", Kind.QUERY, 9),
            candidate("pane", Kind.QUERY, 50),
            candidate("plants", Kind.QUERY, 99),
        ]
    )
    # "plants" is an edit of the last letter away.
    assert [one.text for one in several.complete("plane", 5)] == ["planet", "plane", "pane"]
    assert [one.text for one in several.complete("planr", 5)] == ["plants", "planet", "plane"]
    assert [one.kind for one in several.complete("plane", 2)] == [Kind.QUERY, Kind.WORD]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("file", True),
        ("mp3", True),
        ("über", True),
        ("학교", False),
        ("학교들", True),
        ("of", False),
        ("2024", False),
        ("東京", False),
        ("カメラ", False),
        ("copy files", False),
    ],
)
def test_words_that_help(word: str, expected: bool) -> None:
    assert is_completing_word(word) is expected


def test_sorting_in_steps_is_sorting() -> None:
    items = np.random.default_rng(1).integers(0, 500, 5_000).tolist()
    pauses: list[None] = []
    found = sorted_in_steps(
        list(enumerate(items)), lambda item: -item[1], lambda: pauses.append(None)
    )
    assert found == sorted(enumerate(items), key=lambda item: -item[1])
    assert len(pauses) > 5_000 / 200
    assert sorted_in_steps([], str, lambda: None) == []
