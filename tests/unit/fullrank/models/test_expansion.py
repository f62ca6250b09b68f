"""Expanded queries by hand: which documents are added, their weight, and the explanation of a score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fullrank.errors import BundleError
from fullrank.models.contract import Parts
from fullrank.models.expansion import ExpansionModel
from fullrank.models.linear import LinearModel
from fullrank.models.registry import load_model
from fullrank.models.translation import TranslationModel
from fullrank.retrieval import Retriever
from fullrank.retrieval.retriever import explain
from fullrank.storage.encoding import Encoded, Rows
from fullrank.text.features import Vocabulary
from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.features.matrices import build_features
from fullrank_trainer.recipes.settings import ModelSettings, TrainSettings
from fullrank_trainer.systems.linear.parameters import compile_model, encode_corpus, start
from tests.planted import write_lines, write_qrels

TEXTS = ["ant bee", "ant cat", "cat dog", "dog eel", "fox", ""]


def tfidf(
    folder: Path, settings: ModelSettings, texts: Sequence[str]
) -> tuple[LinearModel, Encoded]:
    """A model over documents with these texts, and the documents."""
    lines = [{"_id": str(i), "title": "", "text": text} for i, text in enumerate(texts)]
    write_lines(folder / "corpus.jsonl", lines)
    write_qrels(folder / "qrels" / "train.tsv", [("0", "1")])
    corpus = count_collection(read_collection(folder), processes=1)
    features = build_features(corpus, settings)
    parameters = start(features, TrainSettings(), np.random.default_rng(1))
    base = compile_model(features, parameters)
    return base, encode_corpus(features, base, parameters)


@pytest.fixture
def made(tmp_path: Path) -> tuple[ExpansionModel, Encoded]:
    """tf-idf over six documents; expansion adds the two best with weight ½."""
    base, documents = tfidf(tmp_path, ModelSettings(fields="joined"), TEXTS)
    return ExpansionModel(base, 0.5, 2), documents


def search(model: ExpansionModel, documents: Encoded, text: str) -> dict[int, float]:
    retriever = Retriever(documents, model.scorer(documents))
    ranking = retriever.search(model.encode_queries([text]), len(documents))[0]
    return dict(zip(ranking.rows.tolist(), ranking.scores.tolist(), strict=True))


def test_expansion_adds_the_mean_of_the_best_documents(
    made: tuple[ExpansionModel, Encoded],
) -> None:
    """ "bee" finds one document, which adds "ant"; "ant" finds the second document."""
    model, documents = made
    t = documents.sparse.csr().toarray().astype(np.float64)
    s = model.encode_queries(["bee", "ant dog"]).sparse.csr().toarray().astype(np.float64)
    bee = search(model, documents, "bee")
    wanted = t @ (s[0] + 0.5 * t[0])
    assert [bee[row] for row in range(6)] == pytest.approx(wanted.tolist())
    assert bee[1] > 0 == bee[2]
    both = search(model, documents, "ant dog")
    # Three documents tie for the second place; the first row gets it.
    first = t @ s[1]
    best = sorted(range(6), key=lambda row: (-round(first[row], 6), row))[:2]
    wanted = t @ (s[1] + 0.5 * t[best].mean(axis=0))
    assert [both[row] for row in range(6)] == pytest.approx(wanted.tolist())


def test_a_query_without_matches_is_not_expanded(made: tuple[ExpansionModel, Encoded]) -> None:
    """A query without known words, an empty collection, and a weight of zero."""
    model, documents = made
    assert set(search(model, documents, "gnu").values()) == {0.0}
    plain = replace(model, beta=0.0)
    retriever = Retriever(documents)
    ranking = retriever.search(model.encode_queries(["ant dog"]), 6)[0]
    rows, scores = ranking.rows.tolist(), ranking.scores.tolist()
    assert search(plain, documents, "ant dog") == pytest.approx(
        dict(zip(rows, scores, strict=True))
    )
    nothing = documents.slice(0, 0)
    assert search(model, nothing, "ant") == {}


def test_a_large_feedback_uses_only_documents_that_share_a_word(
    made: tuple[ExpansionModel, Encoded],
) -> None:
    model, documents = made
    t = documents.sparse.csr().toarray().astype(np.float64)
    s = model.encode_queries(["ant"]).sparse.csr().toarray()[0].astype(np.float64)
    found = search(replace(model, feedback=100), documents, "ant")
    wanted = t @ (s + 0.5 * t[[0, 1]].mean(axis=0))
    assert [found[row] for row in range(6)] == pytest.approx(wanted.tolist())


def test_explanations_name_the_added_words(made: tuple[ExpansionModel, Encoded]) -> None:
    model, documents = made
    retriever = Retriever(documents, model.scorer(documents))
    query = model.encode_queries(["bee"])
    found = explain(model.query_terms("bee"), retriever, query, 1)
    assert [(word.word, word.lexical) for word in found.words] == [("ant", 0.0)]
    assert found.dense == pytest.approx(search(model, documents, "bee")[1])
    own = explain(model.query_terms("bee"), retriever, query, 0)
    assert {word.word for word in own.words} == {"ant", "bee"}
    assert own.lexical == pytest.approx(next(w.lexical for w in own.words if w.word == "bee"))


@pytest.mark.parametrize("kind", ["expansion", "translation"])
def test_explanations_of_words_with_several_forms_add_up(tmp_path: Path, kind: str) -> None:
    settings = ModelSettings(fields="joined", folded=0.5, plurals=0.5)
    texts = ["ant bees", "ants cat", "cafe dog", "café cats", "fox", ""]
    base, documents = tfidf(tmp_path, settings, texts)
    model: ExpansionModel | TranslationModel = ExpansionModel(base, 0.5, 2)
    text = "ants cafés bee cat"
    if kind == "translation":
        targets = ["ant", "ants", "bee", "cafe", "cats"]
        chances = np.array([0.5, 0.5, 1.0, 0.25, 0.75], np.float32)
        rows = np.array([0, 1, 2, 3, 4], np.int32)
        table = Rows(np.array([0, 2, 3, 5]), rows, chances, len(targets))
        model = TranslationModel(Vocabulary(["ameise", "biene", "katze"]), targets, table, base)
        text = "ameise biene katze katze"
    terms = model.query_terms(text)
    assert any(np.size(term.feature) > 1 for term in terms)
    query = model.encode_queries([text])
    retriever = Retriever(documents, model.scorer(documents))
    [ranking] = retriever.search(query, len(texts))
    assert np.count_nonzero(ranking.lexical) >= 4
    for row, dense, lexical in zip(ranking.rows, ranking.dense, ranking.lexical, strict=True):
        found = explain(terms, retriever, query, int(row))
        assert (found.dense, found.lexical) == pytest.approx((dense, lexical), rel=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"beta": -1.0}, "out of range"),
        ({"beta": float("nan")}, "out of range"),
        ({"feedback": 0}, "out of range"),
    ],
)
def test_settings_out_of_range_are_refused(
    made: tuple[ExpansionModel, Encoded], change: dict[str, float], message: str
) -> None:
    parts = made[0].parts()
    assert isinstance(load_model(parts), ExpansionModel)
    with pytest.raises(BundleError, match=message):
        load_model(Parts({**parts.config, **change}, parts.arrays, parts.strings))


def test_a_dense_part_or_buckets_are_refused(made: tuple[ExpansionModel, Encoded]) -> None:
    parts = made[0].parts()
    words = len(parts.strings["sparse.words"])
    sparse = {**parts.config["sparse"], "buckets": 1}
    arrays = {
        **parts.arrays,
        "sparse.idf": np.ones(words + 1, np.float32),
        "sparse.D": np.ones((1, words + 1), np.float32),
    }
    with pytest.raises(BundleError, match="buckets"):
        load_model(Parts({**parts.config, "sparse": sparse}, arrays, parts.strings))
