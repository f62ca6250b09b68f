"""Which 2-grams occur often enough, against a plain count."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from fullrank.text.words import words
from fullrank_trainer.features import composition as bigrams
from fullrank_trainer.features.composition import frequent_bigrams


def texts() -> list[str]:
    rng = np.random.default_rng(3)
    letters = np.array(list("abcdefg"))
    lines = [" ".join(rng.choice(letters, rng.integers(0, 9))) for _ in range(80)]
    return ["", "a", "a b\nb a", *("\n".join(lines[i : i + 2]) for i in range(0, 80, 2))]


def brute(least: int, without: str = "") -> list[str]:
    found: Counter[str] = Counter()
    for text in texts():
        lines = [words(line) for line in text.split("\n")]
        found.update({f"{a} {b}" for line in lines for a, b in pairwise(line)})
    return sorted(p for p, n in found.items() if n >= least and not set(p.split()) & set(without))


@pytest.mark.parametrize("least", [1, 3, 7, 100])
def test_frequent_bigrams_are_those_of_a_plain_count(
    least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result does not depend on how often the buffer is merged."""
    numbers = {letter: i for i, letter in enumerate("gfedcba")}
    done: list[int] = []
    assert frequent_bigrams(texts(), numbers, least, progress=done.append) == brute(least)
    assert sum(done) == len(texts())
    monkeypatch.setattr(bigrams, "_BUFFER", 1)
    assert frequent_bigrams(texts(), numbers, least) == brute(least)


def test_unknown_words_make_no_bigrams() -> None:
    """No 2-gram spans an unknown word."""
    numbers = {letter: i for i, letter in enumerate("acdefg")}
    assert frequent_bigrams(texts(), numbers, 1) == brute(1, without="b")
    assert frequent_bigrams(["a b c"], numbers, 1) == []
    assert frequent_bigrams([], numbers, 1) == []


def test_the_rarest_bigrams_are_dropped_to_bound_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """2-grams that are frequent early are kept."""
    monkeypatch.setattr(bigrams, "_MAX_BIGRAMS", 5)
    monkeypatch.setattr(bigrams, "_BUFFER", 4)
    numbers = {f"w{i}": i for i in range(60)}
    many = [f"w1 w2 w3 w{i} w{i + 1}" for i in range(4, 50)]
    found = frequent_bigrams(many, numbers, 40)
    assert found == ["w1 w2", "w2 w3"]
