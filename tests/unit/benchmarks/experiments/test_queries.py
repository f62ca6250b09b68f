"""Queries that the experiments make from real ones: nonsense, and words that are still being typed."""

from __future__ import annotations

import pytest

from benchmarks.experiments.nonsense import KINDS, keys_of, nonsense
from benchmarks.experiments.prefixes import cut


def test_nonsense_has_one_to_three_words_of_letters_of_the_texts() -> None:
    texts = ["List files, 2 by 2!", "파일 목록"]
    made_up = nonsense("letters", texts, [], 200)
    assert made_up == nonsense("letters", texts, [], 200)
    assert len(set(made_up)) > 190
    letters = {letter for text in texts for letter in text if letter.isalpha()}
    assert {letter for query in made_up for letter in query} - {" "} == letters
    counts = {len(query.split()) for query in made_up}
    lengths = {len(word) for query in made_up for word in query.split()}
    assert counts == {1, 2, 3}
    assert lengths == set(range(4, 12))


@pytest.mark.parametrize("kind", KINDS)
def test_nonsense_has_no_word_of_the_collection(kind: str) -> None:
    texts = ["list open files", "파일 목록 표시"]
    free = nonsense(kind, texts, [], 60)
    known = [query.upper() for query in free[::2]]
    found = nonsense(kind, texts, known, 60)
    assert len(found) == 60
    assert {key for query in found for key in keys_of(query)}.isdisjoint(
        {key for text in known for key in keys_of(text)}
    )


def test_words_are_compared_folded_and_in_the_singular() -> None:
    assert keys_of("Café-Menus, 서버로 x86k를!") == {"cafe", "menu", "서버", "x86k 를"}


@pytest.mark.parametrize(
    ("text", "missing", "expected"),
    [
        ("list files ", 0, "list files"),
        ("list files ", 2, "list fil"),
        ("list of", 1, "list o"),
        ("list of", 2, None),
        ("ls", 3, None),
    ],
)
def test_the_last_word_loses_letters_but_never_all(
    text: str, missing: int, expected: str | None
) -> None:
    assert cut(text, missing) == expected
