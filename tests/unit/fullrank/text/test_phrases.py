"""Phrases: a whole title found in a longer text."""

from __future__ import annotations

import pickle
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.storage.strings import StringTable
from fullrank.text.forms import spaced
from fullrank.text.phrases import MAX_WORDS, Phrases, phrases_of

KNOWN = [
    "cat",
    "new york",
    "york",
    "york new york",
    "東京 京都",
]  # ascending, as training leaves them


def count(phrases: Phrases, text: str) -> dict[str, int]:
    """Count the known phrases of a text."""
    rows, counts = phrases.rows([text]).row(0)
    return {phrases.phrases[row]: int(n) for row, n in zip(rows, counts, strict=True)}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ""),
        ("  ?! ", ""),
        ("New-York", "new york"),
        ("a " * MAX_WORDS, " ".join("a" * MAX_WORDS)),
        ("a " * (MAX_WORDS + 1), ""),
    ],
)
def test_the_phrase_of_a_text_is_its_words_if_few(text: str, wanted: str) -> None:
    assert phrases_of(["b c", text, "a"]) == ["b c", wanted, "a"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("nothing known", {}),
        ("cat", {"cat": 1}),
        ("cats", {}),
        ("new", {}),
        ("York, NEW york!", {"new york": 1, "york": 2, "york new york": 1}),
        ("new new york york", {"new york": 1, "york": 2}),
        ("cat " * 5, {"cat": 5}),
    ],
)
def test_phrases_in_a_text_are_counted(text: str, wanted: dict[str, int]) -> None:
    assert count(Phrases(KNOWN), text) == wanted


def test_counts_equal_a_search_at_every_place() -> None:
    """Count by the plain twin: every window of every length."""
    rng = np.random.default_rng(0)
    phrases = Phrases(sorted({" ".join(rng.choice(list("abc"), n)) for n in (1, 2, 2, 3, 4, 5)}))
    for _ in range(30):
        sequence = rng.choice(list("abcd"), rng.integers(0, 15)).tolist()
        found: dict[str, int] = {}
        for phrase in phrases.phrases:
            parts = phrase.split()
            times = sum(
                sequence[i : i + len(parts)] == parts for i in range(len(sequence) - len(parts) + 1)
            )
            if times:
                found[phrase] = times
        assert count(phrases, " ".join(sequence)) == found


def test_rows_hold_counts_and_own_holds_the_title() -> None:
    phrases = Phrases(KNOWN)
    texts = ["york new york", "", "cat cat"]
    wanted = [[0, 1, 2, 1, 0], [0] * 5, [2, 0, 0, 0, 0]]
    assert phrases.rows(texts).csr().toarray().tolist() == wanted
    own = phrases.own(["New York", "a new york", "", "cat"]).csr().toarray()
    assert own.tolist() == [[0, 1, 0, 0, 0], [0] * 5, [0] * 5, [1, 0, 0, 0, 0]]


def test_without_known_phrases_all_rows_are_empty() -> None:
    phrases = Phrases([])
    assert len(phrases) == 0
    assert count(phrases, "cat") == {}
    assert phrases.rows(["cat", "", "a"]).csr().shape == (3, 0)


def test_phrases_are_pickled_without_their_index() -> None:
    """The form that is sent to a worker process."""
    phrases = Phrases(KNOWN)
    assert count(phrases, "cat") == {"cat": 1}
    assert count(pickle.loads(pickle.dumps(phrases)), "new york") == {"new york": 1, "york": 1}


spoken = st.text("abé日", min_size=1, max_size=2)


@given(
    st.lists(st.lists(spoken, min_size=1, max_size=4), max_size=20), st.lists(spoken, max_size=30)
)
def test_rows_equal_a_search_at_every_place(known: list[list[str]], sequence: list[str]) -> None:
    """Search by the plain twin: beginnings that are no phrases, words that begin others, other scripts."""
    names = sorted({" ".join(parts) for parts in known})
    phrases = Phrases(names)
    windows = [
        " ".join(sequence[first:last])
        for first in range(len(sequence))
        for last in range(first + 1, len(sequence) + 1)
    ]
    wanted = {row: windows.count(name) for row, name in enumerate(names) if name in windows}
    found = phrases.rows_of(spaced(sequence), 3)
    assert found.width == 3 + len(names)
    assert found.indices.tolist() == [3 + row for row in wanted]
    assert found.values.tolist() == [*wanted.values()]
    asked = [*names, *windows[:20], "", "a "]
    index = {name: row for row, name in enumerate(names)}
    assert phrases.rows_of_whole(asked).tolist() == [index.get(name, -1) for name in asked]


def test_the_slots_of_phrases_are_stored_and_checked() -> None:
    again = Phrases(StringTable.of(KNOWN), Phrases(KNOWN).beginnings)
    assert count(again, "York, NEW york!") == {"new york": 1, "york": 2, "york new york": 1}
    with pytest.raises(ValueError, match="no hash table"):
        Phrases(KNOWN, np.zeros(3, np.uint64))
    with pytest.raises(IndexError, match="damaged index"):
        count(Phrases(["cat"], np.full(2, crc32(b"cat") << 32 | 5, np.uint64)), "cat")
