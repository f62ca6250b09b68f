"""Compounds of texts."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fullrank.text.compounds import count_compounds, parts_of, split_digits
from fullrank.text.features import count_corpus
from fullrank.text.words import words


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Wi-Fi, WI-FI and wi-fi", {"wi fi": 3}),
        ("a T-shirt", {"t shirt": 1}),
        ("rock'n'roll", {"rock n": 1, "n roll": 1, "rock n roll": 1}),
        ("don’t can't", {"don t": 1, "can t": 1}),
        ("read_line", {"read line": 1}),
        ("Node.js", {"node js": 1}),
        ("AT&T", {"at t": 1}),
        ("UTF-8", {"utf 8": 1}),
        ('צה"ל', {"צה ל": 1}),
        ("می‌خواهم", {"می خواهم": 1}),
        ("Wörter­buch", {"wörter buch": 1}),
        ("col·legi", {"col legi": 1}),
        ("м'ята", {"м ята": 1}),
        ("a-b-c-d-e", {"a b": 1, "b c": 1, "c d": 1, "d e": 1}),
        ("the reader's well-known book", {"well known": 1}),
        ("2026-11-22 3.11", {}),
        ("- -- a - b 'quoted' end. Next", {}),
        ("(wi-fi)-", {"wi fi": 1}),
        ("", {}),
    ],
)
def test_words_joined_by_a_character_are_compounds(text: str, wanted: dict[str, int]) -> None:
    assert count_compounds(text) == wanted


def test_the_parts_of_a_compound_are_words_of_the_text() -> None:
    text = "The wi-fi router's e-mail, rock'n'roll: don't U.S.A. Wörter­buch x-1-2"
    known = set(words(text))
    found = count_compounds(text)
    assert found
    assert all(set(parts_of(compound)) <= known for compound in found)


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("500ml", ["500", "ml"]),
        ("mp3", ["mp", "3"]),
        ("covid19", ["covid", "19"]),
        ("a1b", ["a", "1", "b"]),
        ("2кг", ["2", "кг"]),
        ("a1b2", []),
        ("500", []),
        ("ml", []),
        ("", []),
    ],
)
def test_a_word_is_split_between_digits_and_letters(word: str, parts: list[str]) -> None:
    assert split_digits(word) == parts


_JOINING = "-\u2010\u2011'\u2019._\u00b7&\"\u05f4\u00ad\u200c\u200d"
_LETTERS = "aésd9ж日 \t\n\u00a0-\u2010'’._·&\"\u00ad\u200c,;()!$"


@given(st.text(_LETTERS, max_size=40))
def test_every_pair_of_joined_parts_is_found(text: str) -> None:
    """An independent reading: two runs of letters and digits with exactly one joining character between them."""
    runs = [(run.start(), run.end()) for run in re.finditer(r"[^\W_]+", text)]
    joined = [
        (text[a:b], text[b], text[c:d])
        for (a, b), (c, d) in pairwise(runs)
        if c == b + 1 and text[b] in "-\u2010'’._·&\"\u00ad\u200c"
    ]
    found = count_compounds(text)
    for first, between, second in joined:
        is_genitive = between in "'’" and second == "s"
        if is_plain(first) and is_plain(second) and (first + second).isalpha() and not is_genitive:
            assert f"{first} {second}" in found
    if not joined:
        assert found == {}


@pytest.mark.sweep
@given(st.lists(st.text(_LETTERS + "AZ\ud800\x00", max_size=40), min_size=2, max_size=6))
@example(["", "x"])
@example(["a-\u00a0-b", "O'Reilly's O'REILLY'S", "-a-b-", "a--b-c", "wi-fi" * 9])
def test_the_compounds_of_many_texts_are_those_of_each(texts: list[str]) -> None:
    """By a kernel and token by token on one side, by one pattern over the whole text on the other."""
    found = count_corpus([texts, texts[:1] * 2], counter=count_compounds)
    assert found.words == sorted(set(found.words))
    for column, expected in zip(found.columns, (texts, texts[:1] * 2), strict=True):
        for i, text in enumerate(expected):
            indices, counts = column.row(i)
            own = {found.words[j]: int(n) for j, n in zip(indices, counts, strict=True)}
            assert own == count_compounds(text) == in_whole_text(text)


def in_whole_text(text: str) -> dict[str, int]:
    """Count the compounds of a text by the definition of a chain."""
    found = Counter[str]()
    for chain in re.findall(rf"(?<![^\W_])[^\W_]+(?:[{_JOINING}][^\W_]+)+", text):
        parts = words(re.sub("['’]s$", "", chain))
        own = [" ".join(pair) for pair in pairwise(parts)]
        own += [" ".join(parts)] if 2 < len(parts) <= 4 else []
        found.update(c for c in own if len(c) <= 40 and not c.replace(" ", "").isdigit())
    return found


def is_plain(word: str) -> bool:
    """Tell whether a word is a single lowercase word of the segmentation."""
    return words(word) == [word]
