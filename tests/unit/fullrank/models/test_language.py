"""The language model's parts: folding in, scores of some rows and of all, what a bundle may not hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from fullrank.encoding import Float32
from fullrank.features import Rows, Vocabulary
from fullrank.model import Parts
from fullrank.models.language import LanguageModel, LanguageScorer, fold_in, no_translation

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
    """Σ_w n_w ln Σ_z φ_wz θ_z + 0.1 Σ ln θ of each text."""
    values = []
    for i in range(len(rows)):
        n, words = rows.csr()[[i]].toarray()[0], table.any(axis=1)
        s = table[words].astype(float) @ theta[i].astype(float)
        values.append(float(n[words] @ np.log(s) + 0.1 * np.log(theta[i].astype(float)).sum()))
    return values


def test_folding_in_climbs_the_likelihood() -> None:
    table = topics(2, 35)
    rows = Rows.from_lists([([0, 3, 39], [2, 1, 5]), ([], []), ([38], [4]), ([7], [1])], 40)
    before = [-np.inf] * 4
    for iterations in (0, 1, 2, 5, 20, 200):
        theta = fold_in(rows, table, iterations=iterations, prior=0.1)
        after = log_likelihood(rows, table, theta)
        assert np.all(np.array(after) >= np.array(before) - 1e-5)
        before = after
        np.testing.assert_allclose(theta.sum(axis=1), 1, rtol=1e-6)
        # Nothing known says nothing.
        np.testing.assert_array_equal(theta[1:3], np.float32(0.2))


@pytest.mark.parametrize("latent", ["none", "topics", "translation"])
def test_a_rows_score_does_not_depend_on_the_others(latent: str) -> None:
    """Bit for bit, over more rows than are looked at together, and for long queries."""
    found = model(latent)
    encoded = found.encode_documents(documents(1100))
    scorer = found.scorer(encoded)
    for text in ("", "w1", "w0 w0 w38 w39 unknown", " ".join([*WORDS, *WORDS[:7]])):
        query = found.encode_queries([text])
        everything = np.arange(len(encoded))
        learned, exact = scorer.score(query, everything)
        for rows in (np.array([1099]), np.array([7, 3, 1030]), everything[::-1], everything[:0]):
            part = scorer.score(query, rows)
            np.testing.assert_array_equal(part[0], learned[rows])
            np.testing.assert_array_equal(part[1], exact[rows])
        assert (exact >= 0).all()
        assert (learned >= 0).all()
        if text == "":
            assert not learned.any()
            assert not exact.any()


def test_an_empty_document_has_what_its_topics_alone_say() -> None:
    for latent in ("none", "translation"):
        found = model(latent)
        scorer = found.scorer(found.encode_documents([{}]))
        learned, exact = scorer.score(found.encode_queries(["w1 w2"]), np.array([0]))
        assert learned.tolist() == exact.tolist() == [0.0]
    found = model("topics")
    learned, exact = found.scorer(found.encode_documents([{}])).score(
        found.encode_queries(["w1"]), np.array([0])
    )
    assert learned[0] > 0
    assert exact[0] == 0


def test_the_weights_choose_the_parts() -> None:
    rows = np.arange(20)
    for settings, learns, matches in (
        ({"lambda2": 1.0}, False, True),
        ({"lambda2": 0.0}, True, False),
        ({"lambda1": 1.0}, False, False),
    ):
        found = model("topics", **settings)
        scorer = found.scorer(found.encode_documents(documents(20)))
        learned, exact = scorer.score(found.encode_queries(["w1 w2 w2"]), rows)
        assert (learned.any(), exact.any()) == (learns, matches)


def test_the_dense_product_is_what_topics_expect_of_the_query() -> None:
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


def test_words_outside_of_the_vocabulary_still_make_a_text_longer() -> None:
    found = model("none")
    short, long = (found.encode_documents([{"text": t}]) for t in ("w1", "w1 x y z"))
    assert (short.weights.tolist(), long.weights.tolist()) == ([1.0], [0.25])


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


@pytest.mark.parametrize("change", [{"lambda1": 0}, {"lambda2": 1.5}, {"latent": "magic"}])
def test_settings_that_mean_nothing_are_refused(change: dict[str, Any]) -> None:
    parts = model("topics").parts()
    with pytest.raises(ValueError, match=r"lambda|latent"):
        LanguageModel.from_parts(replace(parts, config={**parts.config, **change}))


def test_a_scorer_is_the_models() -> None:
    found = model("none")
    assert isinstance(found.scorer(found.encode_documents([])), LanguageScorer)
