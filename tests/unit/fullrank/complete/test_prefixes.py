"""The last word of a query stands for the words that begin with it, at a share of their weight."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.complete import KNOWN, MOST, UNKNOWN, Prefixes, last_word, places_beginning
from fullrank.models.known import KnownWords
from fullrank.models.widening import widen
from fullrank.storage.documents import Document
from fullrank.storage.strings import StringTable
from fullrank.text.features import Vocabulary
from tests.bundles import linear_model

TEXTS = [
    "coffee beans",
    "coffee cup",
    "coffin nail",
    "cup of tea",
    "cope with it",
    "co",
    "cofounder",
]
DOCUMENTS = [Document(f"d{i}", {"title": "", "text": text}) for i, text in enumerate(TEXTS)]
MODEL = linear_model(DOCUMENTS, n_dense=3)
PREFIXES = Prefixes(MODEL, KnownWords(MODEL))


@pytest.mark.parametrize(
    ("query", "word"),
    [("Hot Coff", "coff"), ("coff ", ""), ("coff.", ""), ("", ""), ("é", "é"), ("a\tbc", "bc")],
)
def test_a_query_ends_in_its_last_word(query: str, word: str) -> None:
    assert last_word(query) == word


@pytest.mark.parametrize("word", ["co", "cof", "coff", "coffee", "cup", "zz", "t"])
def test_completions_are_the_most_frequent_words_with_the_prefix(word: str) -> None:
    counts: dict[str, int] = {}
    for text in TEXTS:
        for other in set(text.split()):
            if other.startswith(word) and other != word:
                counts[other] = counts.get(other, 0) + 1
    expected = sorted(counts, key=lambda other: (-counts[other], other))
    assert PREFIXES.completions(word) == expected[:MOST]


def test_frequent_pairs_of_words_take_no_place_of_a_completion() -> None:
    pairs = [f"foot {letter}" for letter in "abcdefghi"]
    known = KnownWords(MODEL)
    words = Vocabulary(StringTable.of(["foot", *pairs, "football", "footwear"]))
    known.tables = [(words, np.array([1.0, *[9.0] * len(pairs), 2.0, 3.0]))]
    assert Prefixes(MODEL, known).completions("foot") == ["footwear", "football"]


def test_there_are_few_completions_and_the_rarest_are_left_out() -> None:
    texts = [f"word{i:02d} " * (i % 7 + 1) for i in range(40) for _ in range(i + 1)]
    model = linear_model(
        [Document(f"d{i:04d}", {"title": "", "text": t}) for i, t in enumerate(texts)]
    )
    found = Prefixes(model, KnownWords(model)).completions("word")
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


def test_features_of_words_are_those_of_queries_of_one_word() -> None:
    words = ["coffee", "cup", "co", "zz", "cofounder"]
    together = MODEL.encode_queries(words)
    for place, word in enumerate(words):
        alone = MODEL.encode_queries([word])
        np.testing.assert_array_equal(together.dense[place], alone.dense[0])
        for own, other in zip(together.sparse.row(place), alone.sparse.row(0), strict=True):
            np.testing.assert_array_equal(own, other)
