"""Counts and weights compared with scikit-learn, bm25s and formulas in float64."""

from __future__ import annotations

import math
from collections import Counter
from zlib import crc32

import bm25s
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from fullrank.storage.encoding import Rows
from fullrank.text import sequences
from fullrank.text.features import (
    Counts,
    TextWords,
    Vocabulary,
    bm25,
    bm25_idf,
    count_corpus,
    tfidf,
    tfidf_idf,
    trigram_rows,
)
from fullrank.text.sequences import TextCounter
from fullrank.text.words import Bigrams, count_words, trigrams, words
from tests.unit.fullrank.kernels.data import dense, same

COUNTER = Bigrams(["w1 w2", "a a"]).count
NASTY = ["", "a", "a a a", "...", "B b 日本語日本 b", "über ÜBER straße", "x" * 300, "a b"]


def over(counts: Counts, vocabulary: Vocabulary) -> list[Rows]:
    """Give the columns over another vocabulary, without the words that have no row in it."""
    target = vocabulary.rows(counts.words)
    return [column.remap_columns(target, len(vocabulary)) for column in counts.columns]


@pytest.fixture(scope="module")
def corpus() -> list[str]:
    """Planted texts: Zipf words, lengths from 0 to a few hundred."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 300, 200)
    ranks = [np.minimum(rng.zipf(1.3, n), 2000) for n in lengths]
    return NASTY + [" ".join(f"w{rank}" for rank in text) for text in ranks]


# -- counting ------------------------------------------------------------------------------------


def test_counts_of_a_corpus_equal_a_count_word_by_word(corpus: list[str]) -> None:
    titles = [text[:9] for text in corpus]
    counts = count_corpus([corpus, titles])
    assert counts.words == sorted({w for text in [*corpus, *titles] for w in words(text)})
    for column, texts in zip(counts.columns, (corpus, titles), strict=True):
        dense(column)  # entries ascend
        assert column.width == len(counts.words)
        for i, text in enumerate(texts):
            row = slice(int(column.indptr[i]), int(column.indptr[i + 1]))
            found = {
                counts.words[j]: int(count)
                for j, count in zip(column.indices[row], column.values[row], strict=True)
            }
            assert found == dict(Counter(words(text)))


@pytest.mark.parametrize("columns", [[[]], [[""]], [["", ""], []], [["a"], ["b", "c"]]])
def test_counting_empty_texts_and_columns(columns: list[list[str]]) -> None:
    counts = count_corpus(columns)
    assert [len(column) for column in counts.columns] == [len(texts) for texts in columns]
    assert counts.words == sorted({w for texts in columns for text in texts for w in words(text)})


@pytest.mark.parametrize("counter", [count_words, COUNTER])
@pytest.mark.parametrize("chunk", [1, 50, 2000])
def test_counts_do_not_depend_on_chunks(
    chunk: int, counter: TextCounter, corpus: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = count_corpus([corpus], counter=counter)
    monkeypatch.setattr(sequences, "_CHUNK_CHARACTERS", chunk)
    cut = count_corpus([corpus], counter=counter)
    assert cut.words == whole.words
    assert same(cut.columns[0], whole.columns[0])


def test_counts_over_another_vocabulary(corpus: list[str]) -> None:
    counts = count_corpus([corpus])
    vocabulary = Vocabulary(["w3", "a", "absent", "w1"], buckets=5)
    own = over(counts, vocabulary)[0]
    twin = np.zeros((len(corpus), len(vocabulary)), np.float32)
    for row, text in enumerate(corpus):
        for word, often in count_words(text).items():
            twin[row, vocabulary.row(word)] += often
    np.testing.assert_array_equal(dense(own), twin)
    plain = over(counts, Vocabulary(["w3", "a", "absent", "w1"]))[0]
    np.testing.assert_array_equal(dense(plain), dense(own)[:, :4])
    total = sum(len(words(text)) for text in corpus)
    assert dense(own).sum() == total


def test_counts_with_their_words_in_a_table_are_the_same_counts(corpus: list[str]) -> None:
    plain = count_corpus([corpus])
    packed = plain.in_table()
    assert list(packed.words) == list(plain.words)
    assert packed.columns == plain.columns
    known = Vocabulary(plain.words[::2])
    for one, other in zip(over(plain, known), over(packed, known), strict=True):
        np.testing.assert_array_equal(one.csr().toarray(), other.csr().toarray())


def test_no_word_has_a_lone_surrogate() -> None:
    texts = ["red \ud800", "a\ud800b", "\ud83d\udc7b", "日\ud800本", "é\udfffx", "\ud800\u0301"]
    assert sorted(count_corpus([texts]).in_table().words) == ["a", "b", "red", "x", "é", "日", "本"]


def test_document_frequency_counts_a_row_once_over_all_columns() -> None:
    counts = count_corpus([["a b", "b", ""], ["a a", "c", "c"]])
    assert dict(zip(counts.words, counts.document_frequency().tolist(), strict=True)) == {
        "a": 1,
        "b": 2,
        "c": 2,
    }


# -- vocabulary ----------------------------------------------------------------------------------


def test_unknown_words_go_to_their_bucket_or_have_no_row() -> None:
    vocabulary = Vocabulary(["b", "a"], buckets=3)
    unseen = 2 + crc32("日本".encode()) % 3
    assert len(vocabulary) == 5
    assert vocabulary.rows(["a", "b", "日本"]).tolist() == [1, 0, unseen]
    assert Vocabulary(["b", "a"]).rows(["a", "日本"]).tolist() == [1, -1]


# -- weights -------------------------------------------------------------------------------------


def test_tfidf_equals_scikit_learn(corpus: list[str]) -> None:
    peer = TfidfVectorizer(analyzer=words, sublinear_tf=True)
    expected = peer.fit_transform(corpus).toarray()
    counts = count_corpus([corpus])
    assert counts.words == list(peer.get_feature_names_out())
    idf = tfidf_idf(counts.document_frequency(), len(corpus))
    np.testing.assert_allclose(idf, peer.idf_, rtol=1e-6)
    found = tfidf(counts.columns[0], idf)
    np.testing.assert_allclose(dense(found), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (0.9, 0.4), (1.2, 0.0), (2.0, 1.0)])
def test_bm25_equals_the_bm25s_library(k1: float, b: float, corpus: list[str]) -> None:
    counts = count_corpus([corpus])
    rows = counts.columns[0]
    idf = bm25_idf(counts.document_frequency(), len(corpus))
    mean = float(rows.sums().mean())
    ours = dense(bm25(rows, idf, k1=k1, b=b, mean_length=mean))

    place = {word: i for i, word in enumerate(counts.words)}
    tokens = [[place[word] for word in words(text)] for text in corpus]
    peer = bm25s.BM25(method="lucene", k1=k1, b=b, dtype="float64")
    peer.index((tokens, place), show_progress=False)
    for query in ([0], [1, 5, 7], list(range(0, len(place), 9))):
        # Lucene's form leaves out the constant k1 + 1.
        expected = peer.get_scores([counts.words[i] for i in query]) * (k1 + 1)
        np.testing.assert_allclose(ours[:, query].sum(1), expected, rtol=2e-5, atol=1e-6)


def test_bm25_equals_its_formula() -> None:
    counts = Rows.from_lists([([0, 2], [3, 1]), ([], []), ([1], [2])], 3)
    idf = np.array([0.5, 2.0, 1.5], np.float32)
    found = dense(bm25(counts, idf, k1=1.2, b=0.75, mean_length=2.0))

    def weight(idf: float, tf: float, length: float) -> float:
        return idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / 2))

    expected = np.array(
        [[weight(0.5, 3, 4), 0, weight(1.5, 1, 4)], [0, 0, 0], [0, weight(2, 2, 2), 0]]
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_idf_equals_its_formulas() -> None:
    df = np.array([0, 1, 5, 10])
    np.testing.assert_allclose(
        bm25_idf(df, 10), [math.log(1 + (10 - d + 0.5) / (d + 0.5)) for d in df], rtol=1e-6
    )
    np.testing.assert_allclose(
        tfidf_idf(df, 10), [1 + math.log(11 / (1 + d)) for d in df], rtol=1e-6
    )


# -- rows ----------------------------------------------------------------------------------------

_ENTRIES = st.lists(
    st.lists(st.tuples(st.integers(0, 6), st.integers(-3, 3)), max_size=9), max_size=6
)


@given(_ENTRIES, st.integers(0, 8))
def test_top_entries_keeps_the_largest_ties_by_index(
    entries: list[list[tuple[int, int]]], keep: int
) -> None:
    rows = Rows.from_lists([([i for i, _ in row], [v for _, v in row]) for row in entries], 7)
    found = rows.top_entries(keep)
    dense(found)  # entries ascend
    for i in range(len(rows)):
        row = slice(int(rows.indptr[i]), int(rows.indptr[i + 1]))
        pairs = list(zip(rows.indices[row].tolist(), rows.values[row].tolist(), strict=True))
        best = sorted(pairs, key=lambda pair: (-abs(pair[1]), pair[0]))[: keep or None]
        kept = slice(int(found.indptr[i]), int(found.indptr[i + 1]))
        got = list(zip(found.indices[kept].tolist(), found.values[kept].tolist(), strict=True))
        assert got == sorted(best)


def test_rows_of_an_unsorted_matrix_are_sorted() -> None:
    matrix = sp.csr_array((np.array([1.0, 2.0]), np.array([3, 1]), np.array([0, 2])), shape=(1, 4))
    rows = Rows.from_csr(matrix)
    np.testing.assert_array_equal(dense(rows), [[0, 2, 0, 1]])


def test_row_sums_are_added_in_float64() -> None:
    rows = Rows.from_lists([([0, 1, 2], [1e8, 1, -1e8]), ([], [])], 3)
    np.testing.assert_array_equal(rows.sums(), [1, 0])
    np.testing.assert_array_equal(rows.take(np.array([0])).sums(), [1])


# -- trigrams ------------------------------------------------------------------------------------


def test_trigrams_of_many_words_are_those_of_each() -> None:
    known = Vocabulary(["#ca", "aaa", "cat", "at#", "éa#", "日本"])
    for texts in (["cat", "aaaa", "dog"] * 50, ["cat", "éa", "aaaaé", "日本"] * 50):
        each = Rows.vstack([trigram_rows([text], known) for text in texts])
        for many, one in zip(trigram_rows(texts, known).arrays, each.arrays, strict=True):
            np.testing.assert_array_equal(many, one)


def test_trigram_rows_equal_their_formula() -> None:
    known = Vocabulary(["#ca", "cat", "aaa", "at#"])
    rows = trigram_rows(["cat", "aaaa", "a", "zzz"], known)
    expected = np.zeros((4, 4))
    for i, word in enumerate(["cat", "aaaa", "a", "zzz"]):
        for trigram in trigrams(word):
            if trigram in known.words:
                expected[i, known.words.index(trigram)] += len(trigrams(word)) ** -0.5
    np.testing.assert_allclose(dense(rows), expected, rtol=1e-6)
    assert expected[1, 2] == 2 / math.sqrt(4)


@pytest.mark.parametrize("width", [1, 2, 9])
def test_every_operation_on_one_row_equals_that_on_many(corpus: list[str], width: int) -> None:
    """Bit for bit: a query is encoded alone, training encoded it in a batch."""
    counts = count_corpus([corpus])
    rng = np.random.default_rng(2)
    target = rng.integers(-1, len(counts.words) // 2, len(counts.words)).astype(np.int32)
    idf = tfidf_idf(counts.document_frequency(), len(corpus))
    table = rng.normal(size=(len(counts.words), width)).astype(np.float32)
    found = counts.columns[0].remap_columns(target, len(counts.words))
    weighed = tfidf(found, idf)
    products, joined = weighed.matmul(table), Rows.hstack(weighed, found)
    for row, text in enumerate(corpus):
        one = count_corpus([[text]])
        place = np.array([counts.words.index(word) for word in one.words], np.int64)
        alone = one.columns[0].remap_columns(target[place], len(counts.words))
        assert same(alone, found.take(np.array([row])))
        assert same(tfidf(alone, idf), weighed.take(np.array([row])))
        assert same(Rows.hstack(tfidf(alone, idf), alone), joined.take(np.array([row])))
        assert tfidf(alone, idf).matmul(table).tobytes() == products[row : row + 1].tobytes()


@given(st.text("ab Cé\U0001f600\ud800-한국어를\n", max_size=60))
def test_the_words_of_one_text_equal_those_of_a_corpus(text: str) -> None:
    found, split = TextWords.of(text), words(text)
    assert list(found.counts().words) == sorted(set(split))
    assert found.amounts.tolist() == [split.count(word) for word in sorted(set(split))]
    assert found.sequence.tobytes() == "".join(word + " " for word in split).encode(
        "utf-8", "surrogatepass"
    )
    assert [
        0,
        *np.cumsum([len(w.encode("utf-8", "surrogatepass")) + 1 for w in split]),
    ] == found.places.tolist()
