"""Word translation in front of a model: what is learned, what it passes on, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fullrank.bundle.catalog import open_bundle
from fullrank.errors import RecipeError, TrainingError
from fullrank.explain import explain
from fullrank.model import Parts
from fullrank.models.registry import load_model
from fullrank.models.translation import TranslationModel
from tests.planted import TOPICS, write_lines, write_planted, write_planted_links, write_qrels
from trainer.collection import read_collection
from trainer.features.corpus import count_collection
from trainer.language.translation import word_pairs
from trainer.progress import Reporter
from trainer.recipes.recipe import load_recipe
from trainer.train import train

QUIET = Reporter(quiet=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("translation") / "ask")


@pytest.fixture(scope="module")
def told(folder: Path) -> Path:
    """A second query set on the same corpus, in the words of the documents."""
    where = folder.parent / "tell"
    queries = [{"_id": f"t{i}", "text": f"tell{i % TOPICS}a"} for i in range(2 * TOPICS)]
    write_lines(where / "queries.jsonl", queries)
    write_qrels(
        where / "qrels" / "train.tsv", [(f"t{i}", f"d{i % TOPICS}-1") for i in range(2 * TOPICS)]
    )
    (where / "corpus.jsonl").write_bytes((folder / "corpus.jsonl").read_bytes())
    return where


@pytest.fixture(scope="module")
def model(folder: Path, told: Path) -> TranslationModel:
    """With a latent part behind the table, learned from the second query set."""
    learned = ["latent=learned", "loss=margin", "dimension=4", "epochs=2", "rates=0.1"]
    result = train(
        folder, folder.parent / "out", "behind", recipe="translation-tfidf",
        overrides=[*learned, f"monolingual={told}"], threads=1, reporter=QUIET,
    )  # fmt: skip
    found = open_bundle(result.path).model
    assert isinstance(found, TranslationModel)
    return found


def test_words_find_their_translations(folder: Path) -> None:
    """ask<t> translates to the words of its topic, and the ranking is far better than by shared words alone."""
    out = folder.parent / "out"
    result = train(folder, out, "plain", recipe="translation-tfidf", threads=1, reporter=QUIET)
    found = {row.system: row.measures["map"].mean for row in result.table}
    assert found["translation-tfidf"] > found["tfidf"] + 0.2
    bundle = open_bundle(result.path)
    model = bundle.model
    assert isinstance(model, TranslationModel)
    matrix = model.table.csr()
    for word, row in zip(model.words.words, matrix, strict=True):
        dense = row.toarray().ravel()
        if word.startswith("ask"):
            best = model.targets[int(dense.argmax())]
            assert word[3] in best, (word, best)
            assert dense.sum() == pytest.approx(1, abs=1e-5)
        elif word.startswith("name"):
            assert model.targets[int(dense.argmax())] == word
            assert dense.sum() == 1
    facts = bundle.card["training"]["translation"]
    assert facts["pairs"] == 20 * TOPICS * 6
    assert (np.diff(facts["log_likelihood"]) >= 0).all()


def test_expected_counts_go_through_the_model_behind(model: TranslationModel) -> None:
    """u = U φ(Tᵀq): the same as the model behind makes of those counts; words without a translation count nothing."""
    text = "ask1a ask1a ask2b neverseen decoy1"
    table = model.table.csr().toarray()
    counts = np.zeros(len(model.words))
    for word, times in (("ask1a", 2), ("ask2b", 1), ("decoy1", 1)):
        counts[model.words.row(word)] = times
    expected = counts @ table
    behind = model.model.query
    idf = np.array([behind.idf[behind.words.row(word)] for word in model.targets])
    damped = np.where(expected < 1, expected, 1 + np.log(np.maximum(expected, 1)))
    x = damped * idf
    x /= np.linalg.norm(x)
    rows = behind.words.rows(model.targets)
    found = model.encode_queries([text])
    np.testing.assert_allclose(found.dense[0], x @ behind.table[rows], atol=1e-6)
    assert len(found.indices) == np.count_nonzero(expected)
    nothing = model.encode_queries(["neverseen", ""])
    assert not nothing.dense.any()
    assert not len(nothing.indices)


def test_a_words_share_is_that_of_its_translations(folder: Path, model: TranslationModel) -> None:
    bundle = open_bundle(next((folder.parent / "out" / "behind").glob("*/manifest.json")).parent)
    for text in ("ask1a ask2b decoy1", "ask1a ask1b ask1a", "neverseen", "name0n0 tell0a ask0a"):
        query = model.encode_queries([text])
        ranking = bundle.retriever.search(query, 3)[0]
        for place, row in enumerate(ranking.rows.tolist()):
            found = explain(model.query_terms(text), bundle.retriever, query, row, limit=100)
            assert found.learned == pytest.approx(ranking.learned[place], rel=1e-5, abs=1e-6)
            assert found.exact == pytest.approx(ranking.exact[place], rel=1e-5, abs=1e-6)
            assert {word.word for word in found.words} <= set(text.split())


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("table.indptr", lambda a: a[:-1], "into"),
        ("table.values", lambda a: a[:-1], "differ in length"),
        ("table.indices", lambda a: a + 1000, "row of targets"),
        ("table.values", lambda a: -a, "below zero"),
        ("translated.sparse.idf", lambda a: a[:-1], r"sparse\.idf"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    model: TranslationModel, name: str, change: object, message: str
) -> None:
    assert callable(change)
    parts = model.parts()
    arrays = {**parts.arrays, name: change(parts.arrays[name])}
    with pytest.raises(ValueError, match=message):
        TranslationModel.from_parts(Parts(parts.config, arrays, parts.strings))
    assert isinstance(load_model(parts), TranslationModel)


def test_mates_are_the_pairs_where_there_are_mates(tmp_path: Path) -> None:
    """What a description links to says nothing of its words; the document it describes does."""
    folder = write_planted_links(tmp_path / "links")
    ids = [document.id for document in read_collection(folder).documents]
    write_lines(folder / "ja" / "queries.jsonl", [{"_id": id, "text": "語"} for id in ids[:5]])
    corpus = count_collection(read_collection(folder / "ja"), processes=1)
    queries, documents = word_pairs(corpus)
    assert queries.tolist() == documents.tolist() == [0, 1, 2, 3, 4]
    judged = count_collection(read_collection(write_planted(tmp_path / "p")), processes=1)
    queries, documents = word_pairs(judged)
    assert len(queries) == len(documents) == len(judged.pairs)
    assert all(d in judged.pairs.relevant[q] for q, d in zip(queries, documents, strict=True))


def test_what_cannot_be_learned_from_is_refused(folder: Path, tmp_path: Path) -> None:
    recipe = load_recipe("translation-tfidf")
    with pytest.raises(RecipeError, match=r"train\.monolingual is what can be learned"):
        recipe.override(["loss=margin"])
    overrides = ["loss=margin", "latent=learned", f"monolingual={tmp_path / 'other'}"]
    write_planted(tmp_path / "other", seed=7)
    with pytest.raises(TrainingError, match="has other documents than"):
        train(
            folder, tmp_path, "x", recipe="translation-tfidf", overrides=overrides, reporter=QUIET
        )
    bare = write_planted(tmp_path / "bare", splits=["valid"])
    with pytest.raises(TrainingError, match="no translation can be learned"):
        train(bare, tmp_path, "x", recipe="translation-tfidf", reporter=QUIET)
