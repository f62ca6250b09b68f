"""Language models: folding in, scores of some rows and of all, refused parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fullrank.models.contract import Parts
from fullrank.models.language import LanguageModel, LanguageScorer, Stems, fold_in, no_translation
from fullrank.storage.encoding import Float32, Rows
from fullrank.text.features import Vocabulary
from fullrank.text.folding import stemmer

WORDS = [f"w{i}" for i in range(40)]


def topics(seed: int, known: int) -> Float32:
    table = np.random.default_rng(seed).random((len(WORDS), 5)).astype(np.float32)
    table[known:] = 0
    return np.asarray(table / table.sum(axis=0), np.float32)


def model(latent: str, **settings: Any) -> LanguageModel:
    rng = np.random.default_rng(4)
    translation = no_translation(len(WORDS))
    if latent == "translation":
        found = sp.random_array((40, 40), density=0.2, rng=rng, dtype=np.float32)
        translation = sp.csr_array(found.tocsr())
        translation.sort_indices()
    width = 5 if latent == "topics" else 0
    background = rng.random(len(WORDS)) + 0.1
    return LanguageModel(
        {
            "latent": latent,
            "lambda1": 0.2,
            "lambda2": 0.4,
            "iterations": 20,
            "prior": 0.1,
            "fields": ["title", "text"],
            "query_fields": ["title", "text"],
            **settings,
        },
        Vocabulary(WORDS),
        (background / background.sum()).astype(np.float32),
        topics(1, 30)[:, :width],
        topics(2, 35)[:, :width],
        translation,
    )


def texts(count: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice([*WORDS, "unknown"], rng.integers(0, 60))) for _ in range(count)]


def documents(count: int) -> list[dict[str, str]]:
    return [{"title": "w1", "text": text} if i % 9 else {} for i, text in enumerate(texts(count))]


def log_likelihood(rows: Rows, table: Float32, theta: Float32) -> list[float]:
    """Return Σ_w n_w ln Σ_z φ_wz θ_z + 0.1 Σ ln θ of each text."""
    values = []
    for i in range(len(rows)):
        n, words = rows.csr()[[i]].toarray()[0], table.any(axis=1)
        s = table[words].astype(float) @ theta[i].astype(float)
        values.append(float(n[words] @ np.log(s) + 0.1 * np.log(theta[i].astype(float)).sum()))
    return values


def test_folding_in_never_lowers_the_likelihood() -> None:
    table = topics(2, 35)
    rows = Rows.from_lists([([0, 3, 39], [2, 1, 5]), ([], []), ([38], [4]), ([7], [1])], 40)
    before = [-np.inf] * 4
    for iterations in (0, 1, 2, 5, 20, 200):
        theta = fold_in(rows, table, iterations=iterations, prior=0.1)
        after = log_likelihood(rows, table, theta)
        assert np.all(np.array(after) >= np.array(before) - 1e-5)
        before = after
        np.testing.assert_allclose(theta.sum(axis=1), 1, rtol=1e-6)
        # Texts without known words are uniform.
        np.testing.assert_array_equal(theta[1:3], np.float32(0.2))


@pytest.mark.parametrize("latent", ["none", "topics", "translation"])
def test_the_score_of_a_row_does_not_depend_on_other_rows(latent: str) -> None:
    """Bit for bit, over more rows than one block, and for long queries."""
    found = model(latent)
    encoded = found.encode_documents(documents(1100))
    scorer = LanguageScorer(found, encoded)
    for text in ("", "w1", "w0 w0 w38 w39 unknown", " ".join([*WORDS, *WORDS[:7]])):
        query = found.encode_queries([text])
        everything = np.arange(len(encoded))
        dense, lexical = scorer.score(query, everything)
        for rows in (np.array([1099]), np.array([7, 3, 1030]), everything[::-1], everything[:0]):
            part = scorer.score(query, rows)
            np.testing.assert_array_equal(part[0], dense[rows])
            np.testing.assert_array_equal(part[1], lexical[rows])
        assert (lexical >= 0).all()
        assert (dense >= 0).all()
        if text == "":
            assert not dense.any()
            assert not lexical.any()


def test_an_empty_document_scores_by_its_topics_alone() -> None:
    for latent in ("none", "translation"):
        found = model(latent)
        scorer = LanguageScorer(found, found.encode_documents([{}]))
        dense, lexical = scorer.score(found.encode_queries(["w1 w2"]), np.array([0]))
        assert dense.tolist() == lexical.tolist() == [0.0]
    found = model("topics")
    dense, lexical = LanguageScorer(found, found.encode_documents([{}])).score(
        found.encode_queries(["w1"]), np.array([0])
    )
    assert dense[0] > 0
    assert lexical[0] == 0


def test_lambda_1_and_lambda_2_switch_the_parts_off() -> None:
    rows = np.arange(20)
    for settings, learns, matches in (
        ({"lambda2": 1.0}, False, True),
        ({"lambda2": 0.0}, True, False),
        ({"lambda1": 1.0}, False, False),
    ):
        found = model("topics", **settings)
        scorer = LanguageScorer(found, found.encode_documents(documents(20)))
        dense, lexical = scorer.score(found.encode_queries(["w1 w2 w2"]), rows)
        assert (bool(dense.any()), bool(lexical.any())) == (learns, matches)


def test_the_dense_product_equals_the_expected_query_under_topics() -> None:
    """u·v = Σ n(q) P_x(q|D)."""
    found = model("topics")
    encoded = found.encode_documents(documents(9))
    query = found.encode_queries(["w1 w2 w2 unknown"])
    expected = encoded.dense @ (found.query[1] + 2 * found.query[2])
    np.testing.assert_allclose(encoded.dense @ query.dense[0], expected, rtol=1e-5)
    terms = found.query_terms("w1 w2 w2 unknown")
    np.testing.assert_allclose(sum(t.dense for t in terms), query.dense[0], rtol=1e-6)
    assert {t.term: (t.feature, t.weight) for t in terms} == {
        "w1": (1, 1.0), "w2": (2, 2.0), "unknown": (-1, 0.0)
    }  # fmt: skip


def test_unknown_words_count_for_the_length_of_a_text() -> None:
    found = model("none")
    short, long = (found.encode_documents([{"text": t}]) for t in ("w1", "w1 x y z"))
    assert (short.sparse.values.tolist(), long.sparse.values.tolist()) == ([1.0], [0.25])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"background": np.ones(3, np.float32)}, "background"),
        ({"query.topics": np.ones((3, 5), np.float32)}, "query.topics"),
        ({"query.topics": np.ones((40, 4), np.float32)}, "width"),
        ({"translation.indptr": np.zeros(3, np.int64)}, "index pointer"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    parts = model("topics").parts()
    with pytest.raises(ValueError, match=message):
        LanguageModel.from_parts(Parts(parts.config, {**parts.arrays, **change}, parts.strings))


@pytest.mark.parametrize(
    "change", [{"lambda1": 0}, {"lambda2": 1.5}, {"latent": "magic"}, {"stem": "latent"}]
)
def test_settings_out_of_range_are_refused(change: dict[str, Any]) -> None:
    parts = model("topics").parts()
    with pytest.raises(ValueError, match=r"lambda|latent|stem"):
        LanguageModel.from_parts(replace(parts, config={**parts.config, **change}))


@pytest.mark.parametrize("latent", ["none", "translation"])
def test_expanded_documents_score_like_the_likelihood(latent: str) -> None:
    """Stored without a limit, Σ n(q) t_q is the score of the scorer; it is an inner product."""
    plain, stored = model(latent), model(latent, expanded=1000)
    corpus, queries = documents(30), texts(12, seed=5)
    encoded, expanded = plain.encode_documents(corpus), stored.encode_documents(corpus)
    scorer = LanguageScorer(plain, encoded)
    assert scorer is not None
    assert stored.scorer(expanded) is None
    products = stored.encode_queries(queries).sparse.csr() @ expanded.sparse.csr().T
    for i, line in enumerate(products.toarray()):
        one = plain.encode_queries(queries[i : i + 1])
        np.testing.assert_allclose(
            line, np.sum(scorer.score(one, np.arange(30)), axis=0), rtol=1e-5, atol=1e-6
        )


def test_expanded_documents_keep_their_heaviest_words() -> None:
    everything = model("translation", expanded=1000).encode_documents(documents(20)).sparse
    kept = model("translation", expanded=7).encode_documents(documents(20)).sparse
    assert any(len(everything.row(i)[1]) > 7 for i in range(20))
    for i in range(20):
        heaviest = np.sort(everything.row(i)[1])[::-1][:7]
        np.testing.assert_array_equal(np.sort(kept.row(i)[1])[::-1], heaviest)


def test_expanded_documents_without_words_or_known_words_are_empty() -> None:
    stored = model("translation", expanded=5)
    assert len(stored.encode_documents([]).sparse) == 0
    encoded = stored.encode_documents([{}, {"text": "unknown unknown"}])
    assert len(encoded.sparse.values) == 0


def test_topics_cannot_be_expanded() -> None:
    parts = model("topics").parts()
    broken = Parts({**parts.config, "expanded": 5}, parts.arrays, parts.strings)
    with pytest.raises(ValueError, match="expanded documents have no topics"):
        LanguageModel.from_parts(broken)


def test_a_model_of_stems_knows_a_word_by_its_stem() -> None:
    words = ["file", "list"]
    found = LanguageModel(
        {**model("none").settings, "stem": "english"},
        Vocabulary(words),
        np.full(2, 0.5, np.float32),
        np.zeros((2, 0), np.float32),
        np.zeros((2, 0), np.float32),
        no_translation(2),
    )
    query = found.encode_queries(["listing files, lists of a file"])
    assert query.sparse.csr().toarray().tolist() == [[2, 2]]
    document = found.encode_documents([{"text": "listed filing"}])
    assert document.sparse.csr().toarray().tolist() == [[0.5, 0.5]]
    terms = {term.term: (term.feature, term.weight) for term in found.query_terms("listing files")}
    assert terms == {"files": (0, 1.0), "listing": (1, 1.0)}
    assert LanguageModel.from_parts(found.parts()).rows(["lists", "unknown"]).tolist() == [1, -1]


def spelled(words: Sequence[str], share: Sequence[float], **settings: Any) -> LanguageModel:
    nothing = np.zeros((len(words), 0), np.float32)
    background = np.array(share, np.float32)
    kept = {"latent": "none", "lambda1": 0.5, "lambda2": 1.0, "iterations": 0, "prior": 0.0}
    fields = {"fields": ["text"], "query_fields": ["text"]}
    return LanguageModel(
        {**kept, **fields, **settings}, Vocabulary(words), background, nothing, nothing,
        no_translation(len(words)),
    )  # fmt: skip


def counts_of(found: LanguageModel, queries: Sequence[str]) -> np.ndarray:
    """Return s of queries."""
    return np.asarray(found.encode_queries(queries).sparse.csr().toarray(), np.float64)


def test_an_unknown_word_counts_as_the_words_that_it_may_stand_for() -> None:
    """appla is one replaced letter from apple and apply, and apple is four times as frequent."""
    found = spelled(["apple", "apply", "pear"], [0.4, 0.1, 0.5], spelling=0.5)
    queries = ["aple", "appla pear", "apple", "aple aple apple", "pea", "zzzz"]
    encoded = counts_of(found, queries)
    likely = 4**0.75 / (1 + 4**0.75)
    two = [0.5 * likely, 0.5 - 0.5 * likely, 1]
    expected = np.array([[0.5, 0, 0], two, [1, 0, 0], [2, 0, 0], [0, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(encoded, expected, rtol=1e-5)
    for query, row in zip(queries, encoded, strict=True):
        np.testing.assert_allclose(counts_of(found, [query])[0], row, rtol=1e-6)
        total = np.zeros(3)
        for term in found.query_terms(query):
            if term.feature >= 0:
                total[term.feature] += term.weight
        np.testing.assert_allclose(total, row, rtol=1e-6)
    assert [term.term for term in found.query_terms("aple")] == ["aple", "aple → apple"]
    assert found.matching_words("aple", ["apple", "pear"]).tolist() == [True, False]


def test_a_model_of_stems_corrects_to_written_words() -> None:
    """paramters lacks a letter of parameters, while their stems are two edits apart."""
    written = Vocabulary(["upgrade", "upgrading", "parameter", "parameters"])
    found = spelled(["paramet", "upgrad"], [0.5, 0.5], stem="english", spelling=0.5)
    found = replace(found, surface=written)
    loaded = LanguageModel.from_parts(found.parts())
    assert loaded.surface is not None
    assert list(loaded.surface.words) == list(written.words)
    queries = ["paramters", "upgrades", "upgradng"]
    expected = np.array([[0.5, 0], [0, 1], [0, 0.5]])  # upgrades is known by its stem
    for one in (found, loaded):
        np.testing.assert_allclose(counts_of(one, queries), expected, rtol=1e-6)
    plain = replace(found, settings={**found.settings, "spelling": 0.0})
    assert not counts_of(plain, ["paramters"]).any()


STEMS = ["list", "file", "upgrad", "日本"]
STEMS_WORDS = ["listing", "lists", "files", "upgrade", "unknown"]
asked = st.lists(st.sampled_from([*STEMS, *STEMS_WORDS, "listed", "upgrading", "café", ""]))


@given(asked, st.integers(0, len(STEMS_WORDS)), st.booleans())
def test_rows_are_those_of_the_stems(words: list[str], written: int, is_stored: bool) -> None:
    index = {stem: row for row, stem in enumerate(STEMS)}
    stem = stemmer("english")
    rows = [index.get(stem(word), -1) for word in STEMS_WORDS[:written]]
    stored = np.array(rows, np.int32) if is_stored else None
    found = Stems("english", Vocabulary(STEMS), Vocabulary(STEMS_WORDS[:written]), stored)
    assert found.rows(words).tolist() == [index.get(stem(word), -1) for word in words]
    assert found.of_written.tolist() == rows


@pytest.mark.parametrize("rows", [[0], [0, 4], [-2, 0]])
def test_rows_that_do_not_fit_are_refused(rows: list[int]) -> None:
    with pytest.raises(ValueError, match="rows of stems"):
        Stems("english", Vocabulary(STEMS), Vocabulary(STEMS_WORDS[:2]), np.array(rows, np.int32))
