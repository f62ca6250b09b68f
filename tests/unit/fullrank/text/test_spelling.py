"""Neighbours compared with a brute-force Damerau-Levenshtein distance; weights and odds with formulas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.models.words import Words, script_of
from fullrank.text.features import Vocabulary
from fullrank.text.spelling import EDIT_WEIGHTS, FIRST_LETTER, FREQUENCY_POWER, Edit, Spelling

COUNTS = {"list": 8, "lift": 1, "lists": 2, "last": 16, "files": 5, "command": 3, "file": 4}


def spelling_of(counts: Mapping[str, float]) -> Spelling:
    return Spelling(counts, lambda words: [counts.get(word, 0) for word in words])


def distance(a: str, b: str) -> int:
    """Return the Damerau-Levenshtein distance in which no letter is edited twice, by the usual table."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) + 1):
        for j in range(len(b) + 1):
            if not i or not j:
                table[i][j] = i + j
                continue
            table[i][j] = min(
                table[i - 1][j] + 1,
                table[i][j - 1] + 1,
                table[i - 1][j - 1] + (a[i - 1] != b[j - 1]),
            )
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                table[i][j] = min(table[i][j], table[i - 2][j - 2] + 1)
    return table[-1][-1]


short_words = st.text("abcäж", min_size=1, max_size=6)


@given(st.sets(short_words, max_size=60), short_words)
def test_neighbours_are_the_known_words_at_distance_one(words: set[str], typed: str) -> None:
    found = [near.word for near in spelling_of(dict.fromkeys(words, 1)).neighbours(typed)]
    assert sorted(found) == sorted(word for word in words if distance(word, typed) == 1)


@pytest.mark.sweep
def test_neighbours_are_complete_over_many_chunks_of_words() -> None:
    # More words than are read at a time; each neighbour is in another part of the list.
    words = [f"{i:05}x" for i in range(70_000)]
    found = {near.word for near in spelling_of(dict.fromkeys(words, 1)).neighbours("6999x")}
    expected = {word for word in words if distance(word, "6999x") == 1}
    assert found == expected
    assert "69999x" in expected


@pytest.mark.parametrize(
    ("typed", "meant", "edit"),
    [
        ("comand", "command", Edit.HALVED),
        ("commandd", "command", Edit.DOUBLED),
        ("comxmand", "command", Edit.EXTRA),
        ("ommand", "command", Edit.MISSING),
        ("vommand", "command", Edit.REPLACED),
        ("ocmmand", "command", Edit.SWAPPED),
    ],
)
def test_an_edit_has_its_name(typed: str, meant: str, edit: Edit) -> None:
    assert spelling_of(COUNTS).neighbours(typed) == [(meant, edit)]


def test_probabilities_follow_frequency_kind_of_edit_and_first_letter() -> None:
    found = {c.word: c.probability for c in spelling_of(COUNTS).corrections("llist")}
    assert found == {"list": 1.0}
    found = {c.word: c.probability for c in spelling_of(COUNTS).corrections("lisst")}
    doubled = 8**FREQUENCY_POWER * EDIT_WEIGHTS[Edit.DOUBLED]
    replaced = 2**FREQUENCY_POWER * EDIT_WEIGHTS[Edit.SWAPPED]
    assert found == pytest.approx(
        {"list": doubled / (doubled + replaced), "lists": replaced / (doubled + replaced)}
    )
    found = {c.word: c.probability for c in spelling_of({"bile": 1, "filz": 1}).corrections("file")}
    assert found == pytest.approx(
        {"filz": 1 / (1 + FIRST_LETTER), "bile": FIRST_LETTER / (1 + FIRST_LETTER)}
    )


def test_at_most_the_likeliest_words_are_returned_ties_by_word() -> None:
    counts = {"bread": 1, "dread": 1, "tread": 1, "aread": 1}
    found = spelling_of(counts).corrections("xread", 3)
    assert [correction.word for correction in found] == ["aread", "bread", "dread"]
    assert sum(correction.probability for correction in found) == pytest.approx(1)


@pytest.mark.parametrize("typed", ["list", "lis", "lis7t", "zzzzzz", "", "l"])
def test_known_short_numbered_and_far_words_are_not_corrected(typed: str) -> None:
    assert spelling_of(COUNTS).corrections(typed) == []
    assert spelling_of(COUNTS).best(typed) is None


def test_the_best_correction_is_the_likeliest() -> None:
    assert spelling_of(COUNTS).best("lasst") == "last"
    assert spelling_of(COUNTS).best("lixt") == "list"


def test_letters_of_other_alphabets_are_found() -> None:
    counts = {"привет": 1, "über": 1, "καλημέρα": 1, "naïve": 1}
    spelling = spelling_of(counts)
    assert [spelling.best(typed) for typed in ("првет", "üebr", "καλημρα", "naive")] == list(counts)


def test_a_vocabulary_with_two_word_features_corrects_to_single_words() -> None:
    vocabulary = Vocabulary(["git", "git commit", "gitcommits"])
    spelling = Spelling(vocabulary.words, lambda words: (vocabulary.rows(words) >= 0).tolist())
    assert [near.word for near in spelling.neighbours("gitcommit")] == ["gitcommits"]


ODDS_COUNTS = {"list": 90, "lint": 2, "tsil": 5, "목록표시": 3}
LATIN = len(set("listlinttsil"))
ODDS = Words([(Vocabulary([*ODDS_COUNTS]), np.array([*ODDS_COUNTS.values()], float))])


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
            found[typed] = found.get(typed, 0.0) + ODDS_COUNTS[word] / 100 * chance
    checked = 0
    for typed, chance in found.items():
        if typed in ODDS_COUNTS or len(typed) != 4:
            continue
        # A swap of one word may be an edit of another kind of the same: `neighbours` names each word once.
        checked += 1
        assert ODDS.typing_odds(typed) == pytest.approx(chance * LATIN**4)
    assert checked > 20


def test_frequent_words_have_larger_odds() -> None:
    assert ODDS.typing_odds("lsit") > ODDS.typing_odds("lnit") > 0
    assert ODDS.typing_odds("zzzz") == ODDS.typing_odds("🎉🎉🎉🎉") == 0
    assert script_of("л") == "CYRILLIC"
    assert ODDS.typing_odds("목록표") > 0


@pytest.mark.sweep
@given(st.integers(0, 1 << 31))
def test_random_letters_seldom_have_large_odds(seed: int) -> None:
    """Of random strings at most one in c has odds of c."""
    rng = np.random.default_rng(seed)
    typed = ["".join(rng.choice(sorted(set("listn")), 4)) for _ in range(400)]
    odds = np.array([0.0 if word in ODDS_COUNTS else ODDS.typing_odds(word) for word in typed])
    for c in (2, 5, 20):
        assert np.mean(odds >= c) <= 1 / c + 0.05
