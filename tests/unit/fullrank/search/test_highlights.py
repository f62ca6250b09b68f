"""Highlights: which words are marked, against the dense brute force of each word's share."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from math import fsum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.models.linear import LinearModel
from fullrank.models.unseen.model import live_model
from fullrank.search.highlight import (
    LEAST_MEANING,
    MAX_MEANING,
    Field,
    Highlight,
    Kind,
    Marked,
    Tags,
    apart,
    highlights,
    meaning_words,
    snippet,
    word_spans,
)
from fullrank.text.words import count_words
from tests.bundles import CORPUS, FIELDS, linear_model

DOCUMENTS = [document.texts(FIELDS) for document in CORPUS]


@pytest.fixture
def model() -> LinearModel:
    return linear_model(CORPUS, n_dense=8)


def share(model: LinearModel, query: str, document: dict[str, str], word: str) -> float:
    """What a word adds to a score: that of the document's text minus that of its text without the word.

    The dense features are linear in the words but for their norm, which is that of the whole text.
    """
    side = model.document
    counts = count_words("\n".join(document.values()))
    # φ adds up unit vectors of the fields.
    phi = np.zeros(len(side.words.words))
    for text in document.values():
        own = np.zeros_like(phi)
        for name, tf in count_words(text).items():
            own[side.words.row(name)] = (1 + np.log(tf)) * side.idf[side.words.row(name)]
        phi += own / (np.linalg.norm(own) or 1)
    phi /= np.linalg.norm(phi)
    encoded = model.encode_queries([query])
    row = side.words.row(word)
    dense = phi[row] * float(side.table[row].astype(float) @ encoded.dense[0])
    s = encoded.sparse.csr().toarray()[0]
    t = model.encode_documents([document]).sparse.csr().toarray()[0]
    assert word in counts
    feature = model.sparse.words.row(word)
    return dense + float(s[feature]) * float(t[feature])


@pytest.mark.parametrize("query", ["copy files", "remote host", "東京", "nothing known"])
def test_shares_equal_the_brute_force(model: LinearModel, query: str) -> None:
    encoded = model.encode_documents(DOCUMENTS)
    words = sorted({word for d in DOCUMENTS for text in d.values() for word in count_words(text)})
    found = model.word_shares(model.encode_queries([query]), DOCUMENTS, encoded, words)
    for i, document in enumerate(DOCUMENTS):
        own = count_words("\n".join(document.values()))
        for j, word in enumerate(words):
            expected = share(model, query, document, word) if word in own else 0
            assert found[i, j] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("query", ["copy files", "remote host ssh", "東京"])
def test_the_spans_are_words_of_the_query_and_those_of_the_largest_shares(
    model: LinearModel, query: str
) -> None:
    encoded = model.encode_documents(DOCUMENTS)
    found = highlights(
        model, query, model.encode_queries([query]), DOCUMENTS, encoded, Highlight(FIELDS, 100)
    )
    asked = set(count_words(query))
    for document, fields in zip(DOCUMENTS, found, strict=True):
        own = set(count_words("\n".join(document.values())))
        shares = {word: share(model, query, document, word) for word in own}
        least = LEAST_MEANING * max(shares.values())
        others = [w for w in own - asked if shares[w] > 0 and shares[w] >= least]
        meaning = set(sorted(others, key=lambda w: (-shares[w], w))[:MAX_MEANING])
        for name, text in document.items():
            assert fields[name].text == text
            words = [
                (int(a), int(b), "word" if word in asked else "meaning")
                for a, b, word in zip(*word_spans(text), strict=True)
                if word in asked | meaning
            ]
            cut = {i for a, b, kind in fields[name].spans for i in range(a, b) if kind == "word"}
            assert cut == {i for a, b, kind in words if kind == "word" for i in range(a, b)}
            if text.isascii():
                assert fields[name].spans == words


def test_fields_that_are_no_text_have_no_snippet(model: LinearModel) -> None:
    document = {
        "title": "cp",
        "text": "Copy files",
        "section": 1,
        "sizes": [1],
        "tags": ["copy", "cp"],
    }
    query = model.encode_queries(["copy"])
    asked = Highlight(["text", "section", "sizes", "tags", "nowhere"])
    [found] = highlights(
        model, "copy", query, [document], model.encode_documents([DOCUMENTS[0]]), asked
    )
    assert {name: snippet.text for name, snippet in found.items()} == {
        "text": "Copy files",
        "tags": "copy\ncp",
    }


def test_other_forms_and_unknown_words_are_words_of_the_query() -> None:
    plain = linear_model(CORPUS)
    folded = replace(plain, sparse=replace(plain.sparse, folded=0.8, plurals=0.7))
    model = live_model(folded)
    assert model is not None
    document = {"title": "Zürich files", "text": "a zurich file, wi-fi gnomes"}
    query = "zurich directory files gnome wifi"
    found = model.matching_words(query, ["files", "file", "directories", "zürich", "zurich"])
    assert found.tolist() == [True, True, True, True, True]
    assert model.matching_words(query, ["gnomes", "ssh", "gnu"]).tolist() == [True, False, False]
    encoded = model.encode_documents([document])
    words = ["zürich", "zurich", "gnomes", "gnu"]
    shares = model.word_shares(model.encode_queries([query]), [document], encoded, words)
    assert (shares[0, :3] > 0).all()
    assert shares[0, 3] == 0


def test_meaning_words_are_few_and_near_the_largest() -> None:
    shares = [0.0, 5.0, 4.0, 0.4, -3.0, *[1.0] * 10, 9.0]
    matched = [i == 1 for i in range(len(shares))]
    own = range(len(shares) - 1)
    assert meaning_words(own, matched, shares) == [2, 5, 6, 7, 8, 9, 10, 11]
    assert meaning_words([2, 3, 4], matched, shares) == [2, 3]
    assert meaning_words([], matched, shares) == []


WEIGHTS: dict[str, tuple[Kind, float]] = {
    "red": ("word", 0.75),
    "apple": ("word", 0.5),
    "fruit": ("meaning", 0.1),
    "zero": ("word", 0.0),
}
TEXT = st.lists(st.sampled_from([*WEIGHTS, "a", "of", "&amp", "<b>"]), max_size=40).map(", ".join)


NUMBERS = {word: i for i, word in enumerate(WEIGHTS)}
MARKED: Marked = dict(enumerate(WEIGHTS.values()))


def field_of(text: str) -> Field:
    """A text between others."""
    whole = f"red apple\n{text}\nred apple"
    starts, stops, words = word_spans(whole)
    numbers = [NUMBERS.get(word, -1) for word in words]
    here = slice(2, len(words) - 2)
    return Field(
        whole, 10, 10 + len(text), starts.tolist()[here], stops.tolist()[here], numbers[here]
    )


def value(words: list[str]) -> float:
    """What a window is worth: each of its marked words once."""
    return fsum(WEIGHTS[word][1] for word in set(words) & WEIGHTS.keys())


@given(TEXT, st.integers(1, 12))
def test_no_window_weighs_more(text: str, size: int) -> None:
    words = word_spans(text).words
    found = word_spans(snippet(field_of(text), MARKED, size).text).words
    windows = [words[i : i + size] for i in range(max(1, len(words) - size + 1))]
    assert value(found) == max(map(value, windows))
    assert found in windows


@given(TEXT, st.integers(1, 12))
def test_the_spans_are_the_marked_words_of_the_snippet(text: str, size: int) -> None:
    found = snippet(field_of(text), MARKED, size)
    assert found.text in text
    assert [(found.text[a:b], kind) for a, b, kind in found.spans] == [
        (word, WEIGHTS[word][0]) for word in word_spans(found.text).words if word in WEIGHTS
    ]


@given(TEXT, st.integers(1, 12))
def test_tags_enclose_the_spans_and_all_else_is_escaped(text: str, size: int) -> None:
    plain = snippet(field_of(text), MARKED, size)
    found = snippet(field_of(text), MARKED, size, Tags("[", "]"))
    assert [(unescape(found.text[a:b]), kind) for a, b, kind in found.spans] == [
        (plain.text[a:b], kind) for a, b, kind in plain.spans
    ]
    for start, stop, _ in found.spans:
        assert (found.text[start - 1], found.text[stop]) == ("[", "]")
    assert unescape(found.text.replace("[", "").replace("]", "")) == plain.text
    assert "<" not in found.text


def test_a_window_has_as_many_words_before_its_marked_ones_as_after() -> None:
    text = " ".join(["x"] * 50 + ["red", "y", "apple"] + ["x"] * 50)
    found = snippet(field_of(text), MARKED, 7)
    assert found.text == "x x red y apple x x"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("(one) two three.", "(one) two"), ("(one) two.", "(one) two."), ("...", "..."), ("", "")],
)
def test_a_text_without_marked_words_begins_at_its_beginning(text: str, expected: str) -> None:
    assert snippet(field_of(text), MARKED, 2) == (expected, [])


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 2, "word"), (1, 3, "word")], [(0, 3, "word")]),
        ([(0, 2, "word"), (2, 3, "word")], [(0, 2, "word"), (2, 3, "word")]),
        ([(0, 2, "meaning"), (1, 3, "word")], [(1, 3, "word")]),
        ([(0, 1, "meaning"), (1, 3, "word"), (3, 5, "meaning")], None),
    ],
)
def test_spans_do_not_overlap(
    spans: list[tuple[int, int, Kind]], expected: list[tuple[int, int, Kind]] | None
) -> None:
    assert apart(spans) == (spans if expected is None else expected)
