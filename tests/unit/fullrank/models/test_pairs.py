"""Word-pair models: both stored forms of W, refused parts, and explanations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fullrank.errors import BundleError
from fullrank.models.contract import Parts
from fullrank.models.pairs import PRIME, PairModel, PairRows, PairTable, text_side, window_starts
from fullrank.models.registry import load_model
from fullrank.retrieval import Retriever
from fullrank.retrieval.retriever import explain
from fullrank.storage.encoding import Rows
from fullrank.text.features import Vocabulary

WORDS = ["ant", "bee", "cat", "dog", "elk"]
W = np.array(
    [[1, 0, 0.5, 0, 0], [0, 1, 0, -2, 0], [0, 0, 0, 0, 0], [3, 0, 0, 1, 0.25], [0, 0, 0, 0, 1]],
    np.float32,
)
SETTINGS = {"fields": [["all", ["title", "text"]]], "query_fields": ["title"], "match_terms": 0}


def rows_of_W() -> PairRows:
    return PairRows(
        Rows.from_lists([(np.flatnonzero(row).tolist(), row[row != 0].tolist()) for row in W], 5)
    )


def hashed(slots: int = 7, alpha: float = 0.5) -> PairTable:
    table = np.random.default_rng(slots).standard_normal(slots).astype(np.float32)
    return PairTable(table, PRIME, alpha, 5)


def model(store: PairRows | PairTable, **settings: int) -> PairModel:
    idf = np.array([1, 2, 1, 3, 1, 4], np.float32)
    return PairModel(SETTINGS | settings, text_side(Vocabulary(WORDS), idf, 3), store)


def dense(store: PairRows | PairTable) -> np.ndarray:
    """Return W from its definition."""
    if isinstance(store, PairRows):
        return W
    i, j = np.indices((5, 5))
    whole = store.weights[(i * store.prime + j) % len(store.weights)]
    return np.asarray(whole + store.alpha * np.eye(5))


STORES = [rows_of_W(), hashed(), hashed(1), hashed(3), hashed(64, 0.0)]
TEXTS = ["", "zebra", "ant", "bee dog dog", "ant bee cat dog elk elk elk", "elk zebra"]


@pytest.mark.parametrize("store", STORES)
def test_expanding_a_query_multiplies_it_with_W(store: PairRows | PairTable) -> None:
    """Wᵀx without zeros, indices ascending; a row has the same bits alone as in a batch."""
    found = model(store)
    x = found.texts.features(["ant"], [Rows.from_lists([([0], [1])], 1)], [1.0])[0]
    assert found.store.expand(x).csr().toarray() == pytest.approx(dense(store)[:1], abs=1e-6)
    batch = found.encode_queries(TEXTS)
    for i, text in enumerate(TEXTS):
        alone = found.encode_queries([text])
        _, indices, weights, _ = batch.row(i)
        np.testing.assert_array_equal(indices, alone.sparse.indices)
        np.testing.assert_array_equal(weights, alone.sparse.values)
        assert (np.diff(indices) > 0).all()
        t = found.encode_documents([{"text": text}]).sparse.csr().toarray()[0]
        np.testing.assert_allclose(batch.sparse.csr().toarray()[i], t @ dense(store), atol=1e-6)


def test_only_the_top_words_of_a_text_count() -> None:
    """Three of five words; a tie for the last place goes to the first word."""
    t = model(rows_of_W()).encode_documents([{"title": "elk cat", "text": "ant bee dog"}])
    assert [WORDS[i] for i in t.sparse.indices.tolist()] == ["ant", "bee", "dog"]
    np.testing.assert_allclose(t.sparse.values, np.array([1, 2, 3]) / np.sqrt(14), rtol=1e-6)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("match_terms", [0, 1, 2])
def test_shares_of_words_add_up_to_the_score(store: PairRows | PairTable, match_terms: int) -> None:
    found = model(store, match_terms=match_terms)
    documents = found.encode_documents([{"text": text} for text in TEXTS])
    retriever = Retriever(documents, found.scorer(documents))
    for text in TEXTS:
        query = found.encode_queries([text])
        assert match_terms == 0 or len(query.sparse.indices) <= match_terms
        [ranking] = retriever.search(query, len(TEXTS))
        for place, row in enumerate(ranking.rows.tolist()):
            parts = explain(found.query_terms(text), retriever, query, row)
            assert parts.lexical == pytest.approx(ranking.lexical[place], abs=1e-6)
            assert parts.dense == ranking.dense[place] == 0


def test_a_word_explains_the_score_by_the_words_it_votes_for() -> None:
    found = model(rows_of_W())
    terms = {term.term: term for term in found.query_terms("bee dog")}
    assert np.asarray(terms["bee"].feature).tolist() == [1, 3]
    np.testing.assert_allclose(terms["bee"].weight, np.array([1, -2]) * 2 / np.sqrt(13), rtol=1e-6)
    assert np.asarray(terms["dog"].feature).tolist() == [0, 3, 4]


def test_window_starts_equal_the_hash_of_the_paper() -> None:
    """h(i, j) = (iP + j) mod H without an overflow, for the largest vocabularies."""
    starts = window_starts(2_500_000, PRIME, 6_000_000)
    for i in (0, 1, 77, 2_499_999):
        assert int(starts[i]) == i * PRIME % 6_000_000


@pytest.mark.parametrize("store", STORES)
def test_a_pair_model_equals_itself_after_storing_and_loading(store: PairRows | PairTable) -> None:
    found = model(store, match_terms=2)
    again = load_model(found.parts())
    a, b = found.encode_queries(TEXTS), again.encode_queries(TEXTS)
    np.testing.assert_array_equal(a.sparse.values, b.sparse.values)
    np.testing.assert_array_equal(a.sparse.indices, b.sparse.indices)
    assert again.config == found.config
    assert again.query_text({"title": "bee", "text": "ant"}) == "bee"


@pytest.mark.parametrize(
    ("name", "array", "reason"),
    [
        ("idf", np.ones(5, np.float32), "idf"),
        ("W.indptr", np.zeros(5, np.int64), "do not fit"),
        ("W.values", np.ones(3, np.float32), "do not fit"),
        ("W.indices", np.full(8, 5, np.int32), "not a word"),
        ("W.indices", np.full(8, -1, np.int32), "not a word"),
    ],
)
def test_parts_that_do_not_fit_are_refused(name: str, array: np.ndarray, reason: str) -> None:
    parts = model(rows_of_W()).parts()
    with pytest.raises(BundleError, match=reason):
        load_model(replace(parts, arrays={**parts.arrays, name: array}))


def test_an_empty_table_is_refused() -> None:
    parts: Parts = model(hashed()).parts()
    with pytest.raises(BundleError, match=r"W\.table"):
        load_model(replace(parts, arrays={**parts.arrays, "W.table": np.zeros(0, np.float32)}))
