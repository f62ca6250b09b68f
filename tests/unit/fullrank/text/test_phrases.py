"""Phrases: a whole title found in a longer text."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from fullrank.text.phrases import MAX_WORDS, Phrases, phrases_of

KNOWN = [
    "cat",
    "new york",
    "york",
    "york new york",
    "東京 京都",
]  # ascending, as training leaves them


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
    assert Phrases(KNOWN).count(text) == wanted


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
        assert phrases.count(" ".join(sequence)) == found


def test_rows_hold_counts_and_own_holds_the_title() -> None:
    phrases = Phrases(KNOWN)
    texts = ["york new york", "", "cat cat"]
    wanted = [[0, 1, 2, 1, 0], [0] * 5, [2, 0, 0, 0, 0]]
    assert phrases.rows(texts).csr().toarray().tolist() == wanted
    own = phrases.own(["New York", "a new york", "", "cat"]).csr().toarray()
    assert own.tolist() == [[0, 1, 0, 0, 0], [0] * 5, [0] * 5, [1, 0, 0, 0, 0]]


@pytest.mark.sweep
def test_phrase_counts_do_not_depend_on_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fullrank.text.features._PARALLEL_CHARACTERS", 1)
    monkeypatch.setattr("fullrank.text.features._CHUNK_CHARACTERS", 500)
    phrases, texts = Phrases(KNOWN), ["york new york", "", "cat"] * 200
    alone, together = phrases.rows(texts), phrases.rows(texts, processes=2)
    np.testing.assert_array_equal(alone.csr().toarray(), together.csr().toarray())


def test_without_known_phrases_all_rows_are_empty() -> None:
    phrases = Phrases([])
    assert len(phrases) == 0
    assert phrases.count("cat") == {}
    assert phrases.rows(["cat", "", "a"]).csr().shape == (3, 0)


def test_phrases_are_pickled_without_their_index() -> None:
    """The form that is sent to a worker process."""
    phrases = Phrases(KNOWN)
    assert phrases.count("cat") == {"cat": 1}
    assert pickle.loads(pickle.dumps(phrases)).count("new york") == {"new york": 1, "york": 1}
