"""2-grams counted along with words."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest

from fullrank.text.bigrams import Bigrams, is_bigram
from fullrank.text.words import count_words

KNOWN = ["star trek", "trek star", "a a", "東京 都庁"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("star", {}),
        ("Star-Trek!", {"star trek": 1}),
        ("star trek star trek", {"star trek": 2, "trek star": 1}),
        ("star\ntrek", {}),
        ("a a a", {"a a": 2}),
        ("star and trek", {}),
    ],
)
def test_known_bigrams_are_counted_along_with_all_words(text: str, wanted: dict[str, int]) -> None:
    """Overlapping 2-grams all count; no 2-gram crosses a line end."""
    counted = Bigrams(KNOWN).count(text)
    assert {word: n for word, n in counted.items() if is_bigram(word)} == wanted
    assert {word: n for word, n in counted.items() if not is_bigram(word)} == count_words(text)


@pytest.mark.parametrize(
    "text", ["東京都\n庁 star", "a\x0bb\u2028c d", "x\ty\r\nz", "é e\u0301\nq"]
)
def test_word_counts_equal_those_of_the_plain_counter(text: str) -> None:
    assert Bigrams([]).count(text) == count_words(text)


def test_a_counter_can_be_pickled_for_workers() -> None:
    counter = pickle.loads(pickle.dumps(Bigrams(KNOWN).count))
    assert counter("star trek") == Counter(["star", "trek", "star trek"])
    assert len(Bigrams(KNOWN)) == 4
