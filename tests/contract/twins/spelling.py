"""A second, plain implementation of spelling: look at every known word."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from fullrank.text.spelling import (
    EDIT_WEIGHTS,
    FIRST_LETTER,
    FREQUENCY_POWER,
    MAX_LETTERS,
    MIN_LETTERS,
    MOST,
    Edit,
)


def one_removed(word: str) -> dict[str, bool]:
    """Return the word without each of its letters, and whether that letter stood next to its like."""
    found = {}
    for i, letter in enumerate(word):
        is_double = letter in (word[i - 1 : i], word[i + 1 : i + 2])
        found[word[:i] + word[i + 1 :]] = is_double
    return found


def edit_between(meant: str, typed: str) -> Edit | None:
    """Return the edit that made `typed` of `meant`; None if there is no single one."""
    if typed in (removed := one_removed(meant)):
        return Edit.HALVED if removed[typed] else Edit.MISSING
    if meant in (removed := one_removed(typed)):
        return Edit.DOUBLED if removed[meant] else Edit.EXTRA
    if len(meant) != len(typed):
        return None
    differ = [i for i, (a, b) in enumerate(zip(meant, typed, strict=True)) if a != b]
    if len(differ) == 1:
        return Edit.REPLACED
    if len(differ) == 2 and differ[1] == differ[0] + 1:
        i, j = differ
        return Edit.SWAPPED if (meant[i], meant[j]) == (typed[j], typed[i]) else None
    return None


def corrections(typed: str, frequencies: Mapping[str, float]) -> dict[str, float]:
    """Return the likeliest known words and their probabilities."""
    if typed in frequencies or any(letter.isdigit() for letter in typed):
        return {}
    if not MIN_LETTERS <= len(typed) <= MAX_LETTERS:
        return {}
    weights = {}
    for word, frequency in frequencies.items():
        edit = edit_between(word, typed)
        if edit is not None and " " not in word:
            first = 1.0 if word[0] == typed[0] else FIRST_LETTER
            weights[word] = frequency**FREQUENCY_POWER * EDIT_WEIGHTS[edit] * first
    best = sorted(weights, key=lambda word: (-weights[word], word))[:MOST]
    return {word: weights[word] / sum(weights[w] for w in best) for word in best}


def corrected(
    counts: Mapping[str, float], frequencies: Mapping[str, float], discount: float, kept: float
) -> dict[str, float]:
    """Return counts of a query with known words added; an unknown word that has some keeps a share of its count."""
    found: dict[str, float] = defaultdict(float)
    for word, count in counts.items():
        known = corrections(word, frequencies)
        found[word] += count * (kept if known else 1.0)
        for near, probability in known.items():
            found[near] += discount * probability * count
    return dict(found)
