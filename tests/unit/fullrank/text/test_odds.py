"""Odds of typing errors equal those by all edits of all known words, and random strings seldom have large ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.models.known import TypingOdds, script_of
from fullrank.text.spelling import EDIT_WEIGHTS, Edit, Spelling

COUNTS = {"list": 90, "lint": 2, "tsil": 5, "목록표시": 3}
LATIN = len(set("listlinttsil"))
ODDS = TypingOdds(
    COUNTS,
    lambda words: [COUNTS.get(word, 0) for word in words],
    100.0,
    Spelling(COUNTS, lambda words: [COUNTS.get(word, 0) for word in words]),
)


def edits(word: str) -> Iterator[tuple[str, float]]:
    """Yield each string that one edit makes of a word of Latin letters, and its chance."""
    letters = sorted(set("listn"))
    total = sum(EDIT_WEIGHTS.values())
    for i in range(len(word)):
        for other in letters:
            if other != word[i]:
                ways = len(word) * LATIN
                yield word[:i] + other + word[i + 1 :], EDIT_WEIGHTS[Edit.REPLACED] / total / ways
    for i in range(len(word) - 1):
        swapped = word[:i] + word[i + 1] + word[i] + word[i + 2 :]
        if swapped != word:
            yield swapped, EDIT_WEIGHTS[Edit.SWAPPED] / total / (len(word) - 1)


def test_odds_are_those_of_all_edits() -> None:
    found: dict[str, float] = {}
    for word in ("list", "lint", "tsil"):
        for typed, chance in edits(word):
            found[typed] = found.get(typed, 0.0) + COUNTS[word] / 100 * chance
    checked = 0
    for typed, chance in found.items():
        if typed in COUNTS or len(typed) != 4:
            continue
        # A swap of one word may be an edit of another kind of the same: `neighbours` names each word once.
        checked += 1
        assert ODDS.of(typed) == pytest.approx(chance * LATIN**4)
    assert checked > 20


def test_frequent_words_have_larger_odds() -> None:
    assert ODDS.of("lsit") > ODDS.of("lnit") > 0
    assert ODDS.of("zzzz") == ODDS.of("🎉🎉🎉🎉") == 0
    assert script_of("л") == "CYRILLIC"
    assert ODDS.of("목록표") > 0


@given(st.integers(0, 1 << 31))
def test_random_letters_seldom_have_large_odds(seed: int) -> None:
    """Of random strings at most one in c has odds of c."""
    rng = np.random.default_rng(seed)
    typed = ["".join(rng.choice(sorted(set("listn")), 4)) for _ in range(400)]
    odds = np.array([0.0 if word in COUNTS else ODDS.of(word) for word in typed])
    for c in (2, 5, 20):
        assert np.mean(odds >= c) <= 1 / c + 0.05
