"""Completions and prefixes are those that a comparison of all texts finds, in their order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.models.widening import widen
from fullrank.models.words import Words
from fullrank.search.complete import (
    KNOWN,
    MIN_LETTERS,
    MOST,
    UNKNOWN,
    Candidate,
    Completions,
    Kind,
    Prefixes,
    SortedTexts,
    folded_prefix,
    is_completing_word,
    last_word,
    places_beginning,
    sorted_in_steps,
)
from fullrank.storage.documents import Document
from fullrank.storage.strings import StringTable
from fullrank.text.features import Vocabulary
from tests.bundles import linear_model

LETTERS = "abé "
texts = st.text(LETTERS, min_size=1, max_size=7).map(lambda text: " ".join(text.split()))
keys = texts.map(folded_prefix).filter(bool)


def edited(prefix: str) -> set[str]:
    """Return all texts one edit away from a prefix, over a few letters; the last letter stays."""
    letters = {*"abe ", *prefix}
    cuts = [(prefix[:i], prefix[i:]) for i in range(len(prefix))]
    found = {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1 and b[0] != b[1]}
    found |= {a + c + b for a, b in cuts for c in letters}
    found |= {a + c + b[1:] for a, b in cuts[:-1] for c in letters if c != b[0]}
    return found | {a + b[1:] for a, b in cuts[:-1]}


@given(st.lists(keys, unique=True, max_size=12), keys, st.integers(1, 5))
def test_texts_are_found_by_prefix_and_by_one_an_edit_away(
    several: list[str], prefix: str, limit: int
) -> None:
    found = SortedTexts(several)
    exact = [i for i, key in enumerate(several) if key.startswith(prefix)]
    assert found.beginning(prefix, limit) == exact[:limit]
    near = [i for i, key in enumerate(several) if any(map(key.startswith, edited(prefix)))]
    less = [i for i, key in enumerate(several) if key.startswith(prefix[:-1])]
    is_long = len(prefix) >= MIN_LETTERS
    assert found.one_edit_away(prefix, limit) == (near[:limit] if is_long else [])
    assert found.without_last(prefix, limit) == (less[:limit] if is_long else [])
    assert all((key in found) == (key in several) for key in (*several, prefix))


def candidate(text: str, kind: Kind, frequency: float = 0.0) -> Candidate:
    return Candidate(folded_prefix(text), text, kind, frequency)


TEXTS = Completions(
    [
        candidate("coffee beans", Kind.QUERY, 4),
        candidate("coffee maker", Kind.QUERY, 9),
        candidate("Coffee Maker", Kind.TITLE),
        candidate("Coffee: a history", Kind.TITLE, 2),
        candidate("Coffee cup", Kind.TITLE),
        candidate("Crème brûlée", Kind.TITLE),
        candidate("東京の天気", Kind.TITLE),
        candidate("coffee", Kind.WORD, 50),
        candidate("maker", Kind.WORD, 5),
        candidate("makes", Kind.WORD, 7),
        candidate("history", Kind.WORD, 7),
    ]
)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("COF", ["coffee maker", "coffee beans", "Coffee: a history", "Coffee cup", "coffee"]),
        ("coffee ", ["coffee maker", "coffee beans", "Coffee: a history", "Coffee cup"]),
        ("coffee m", ["coffee maker"]),  # "coffee makes" is in no text
        ("my coffee m", []),  # "my" is unknown
        ("Maker hist", []),
        ("cofe", ["coffee maker", "coffee beans", "Coffee: a history", "Coffee cup", "coffee"]),
        ("cfe", []),
        ("creme b", ["Crème brûlée"]),
        ("東京", ["東京の天気"]),
        ("mkae", ["makes", "maker"]),
        ("", []),
        ("?!", []),
        (" ", []),
    ],
)
def test_what_is_typed_is_completed(typed: str, found: Sequence[str]) -> None:
    assert [one.text for one in TEXTS.complete(typed, 10)] == found
    assert [one.text for one in TEXTS.complete(typed, 2)] == found[:2]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("tower 10", ["tower 100"]),
        ("10", []),  # a number alone completes nothing
        ("garden 10", []),
        ("tower case 10", ["tower case 100"]),
        ("tower ca", ["tower case"]),
        ("garden ca", ["garden cable"]),
        ("tower 100 ca", ["tower 100 case"]),
        ("case cable c", ["case cable cable", "case cable case"]),  # no text has both
    ],
)
def test_only_words_that_stand_together_are_joined(typed: str, found: Sequence[str]) -> None:
    several = Completions(
        [
            *(candidate(title, Kind.TITLE) for title in ("Case for Tower 100", "Long garden cable", "Radio 1000")),
            *(candidate(word, Kind.WORD, 9 if word == "cable" else 1) for word in ("tower", "case", "cable", "garden")),
        ]
    )  # fmt: skip
    assert [one.text for one in several.complete(typed, 10)] == found
    assert [one.text for one in several.complete(typed, 1)] == found[:1]


def test_what_begins_with_the_typed_text_comes_before_an_edit_of_it() -> None:
    several = Completions(
        [
            candidate("plane", Kind.WORD, 1),
            candidate("planet", Kind.QUERY, 9),
            candidate("pane", Kind.QUERY, 50),
            candidate("plants", Kind.QUERY, 99),
        ]
    )
    # "plants" is an edit of the last letter away.
    assert [one.text for one in several.complete("plane", 5)] == ["planet", "plane", "pane"]
    assert [one.text for one in several.complete("planr", 5)] == ["plants", "planet", "plane"]
    assert [one.kind for one in several.complete("plane", 2)] == [Kind.QUERY, Kind.WORD]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("file", True),
        ("mp3", True),
        ("über", True),
        ("학교", False),
        ("학교들", True),
        ("of", False),
        ("2024", False),
        ("東京", False),
        ("カメラ", False),
        ("copy files", False),
    ],
)
def test_words_that_help(word: str, expected: bool) -> None:
    assert is_completing_word(word) is expected


def test_sorting_in_steps_is_sorting() -> None:
    items = np.random.default_rng(1).integers(0, 500, 5_000).tolist()
    pauses: list[None] = []
    found = sorted_in_steps(
        list(enumerate(items)), lambda item: -item[1], lambda: pauses.append(None)
    )
    assert found == sorted(enumerate(items), key=lambda item: -item[1])
    assert len(pauses) > 5_000 / 200
    assert sorted_in_steps([], str, lambda: None) == []


PREFIXES_TEXTS = [
    "coffee beans",
    "coffee cup",
    "coffin nail",
    "cup of tea",
    "cope with it",
    "co",
    "cofounder",
]
DOCUMENTS = [
    Document(f"d{i}", {"title": "", "text": text}) for i, text in enumerate(PREFIXES_TEXTS)
]
MODEL = linear_model(DOCUMENTS, n_dense=3)
PREFIXES = Prefixes(MODEL, Words.of(MODEL))


@pytest.mark.parametrize(
    ("query", "word"),
    [("Hot Coff", "coff"), ("coff ", ""), ("coff.", ""), ("", ""), ("é", "é"), ("a\tbc", "bc")],
)
def test_a_query_ends_in_its_last_word(query: str, word: str) -> None:
    assert last_word(query) == word


@pytest.mark.parametrize("word", ["co", "cof", "coff", "coffee", "cup", "zz", "t"])
def test_completions_are_the_most_frequent_words_with_the_prefix(word: str) -> None:
    counts: dict[str, int] = {}
    for text in PREFIXES_TEXTS:
        for other in set(text.split()):
            if other.startswith(word) and other != word:
                counts[other] = counts.get(other, 0) + 1
    expected = sorted(counts, key=lambda other: (-counts[other], other))
    assert PREFIXES.completions(word) == expected[:MOST]


def test_frequent_pairs_of_words_take_no_place_of_a_completion() -> None:
    pairs = [f"foot {letter}" for letter in "abcdefghi"]
    known = Words.of(MODEL)
    words = Vocabulary(StringTable.of(["foot", *pairs, "football", "footwear"]))
    known.tables = [(words, np.array([1.0, *[9.0] * len(pairs), 2.0, 3.0]))]
    assert Prefixes(MODEL, known).completions("foot") == ["footwear", "football"]


def test_there_are_few_completions_and_the_rarest_are_left_out() -> None:
    texts = [f"word{i:02d} " * (i % 7 + 1) for i in range(40) for _ in range(i + 1)]
    model = linear_model(
        [Document(f"d{i:04d}", {"title": "", "text": t}) for i, t in enumerate(texts)]
    )
    found = Prefixes(model, Words.of(model)).completions("word")
    assert found == [f"word{i}" for i in range(39, 39 - MOST, -1)]


@pytest.mark.parametrize(("query", "share"), [("hot coff", UNKNOWN), ("hot co", KNOWN)])
def test_features_have_a_share_of_the_weight_of_whole_words(query: str, share: float) -> None:
    encoded = MODEL.encode_queries([query])
    found = widen(encoded, PREFIXES.of(query)).encoded
    before = encoded.sparse.csr().toarray()[0]
    expected = before.copy()
    for word in PREFIXES.completions(last_word(query)):
        own = MODEL.encode_queries([word]).sparse.csr().toarray()[0]
        new = (before == 0) & (np.abs(own) > 0)
        expected[new] = np.maximum(expected[new], np.float32(share) * own[new])
    np.testing.assert_array_equal(found.sparse.csr().toarray()[0], expected)
    np.testing.assert_array_equal(found.dense, encoded.dense)
    assert np.count_nonzero(expected) > np.count_nonzero(before)


@pytest.mark.parametrize("query", ["c", "coff ", "zzzz", "", "🎉"])
def test_nothing_is_added_where_no_word_is_begun(query: str) -> None:
    assert not PREFIXES.of(query)


WORDS = st.text(st.sampled_from("abé급\U0010fffe"), max_size=4)


@given(st.sets(WORDS), WORDS)
def test_words_of_a_table_are_found_by_their_beginning(texts: set[str], word: str) -> None:
    ascending = sorted(texts)
    longer = [text for text in ascending if text.startswith(word) and text != word]
    for known in (ascending, StringTable.of(ascending)):
        assert [known[place] for place in places_beginning(known, word)] == longer
