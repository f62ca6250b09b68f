"""Phrases: a whole title found in a running text."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from fullrank.text.phrases import LONGEST, Phrases, no_phrases, phrase_of

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
        ("a " * LONGEST, " ".join("a" * LONGEST)),
        ("a " * (LONGEST + 1), ""),
    ],
)
def test_phrase_of(text: str, wanted: str) -> None:
    assert phrase_of(text) == wanted


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
def test_count(text: str, wanted: dict[str, int]) -> None:
    assert Phrases(KNOWN).count(text) == wanted


def test_count_equals_looking_everywhere() -> None:
    """The plain twin: every window of every length."""
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


def test_rows_are_counts_and_own_is_the_title() -> None:
    phrases = Phrases(KNOWN)
    texts = ["york new york", "", "cat cat"]
    wanted = [[0, 1, 2, 1, 0], [0] * 5, [2, 0, 0, 0, 0]]
    assert phrases.rows(texts).csr().toarray().tolist() == wanted
    own = phrases.own(["New York", "a new york", "", "cat"]).csr().toarray()
    assert own.tolist() == [[0, 1, 0, 0, 0], [0] * 5, [0] * 5, [1, 0, 0, 0, 0]]


def test_processes_count_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fullrank.features._PARALLEL_CHARACTERS", 1)
    monkeypatch.setattr("fullrank.features._CHUNK_CHARACTERS", 500)
    phrases, texts = Phrases(KNOWN), ["york new york", "", "cat"] * 200
    alone, together = phrases.rows(texts), phrases.rows(texts, processes=2)
    np.testing.assert_array_equal(alone.csr().toarray(), together.csr().toarray())


def test_none_known() -> None:
    phrases = Phrases([])
    assert len(phrases) == 0
    assert phrases.count("cat") == {}
    assert no_phrases(3).csr().shape == (3, 0)


def test_pickled_alone() -> None:
    """What a worker process is sent."""
    phrases = Phrases(KNOWN)
    assert phrases.count("cat") == {"cat": 1}
    assert pickle.loads(pickle.dumps(phrases)).count("new york") == {"new york": 1, "york": 1}
