"""Fitting language models: the counts, and the choice of the weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.bundle import open_bundle
from fullrank.errors import TrainingError
from fullrank.measures import average_precision
from fullrank.models.language import LanguageModel, LanguageScorer
from fullrank.progress import Reporter
from fullrank.text.folding import stemmer
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import Judgement
from fullrank_trainer.recipes.recipe import load_recipe
from fullrank_trainer.systems import language as system
from fullrank_trainer.systems.language import count_texts, mixed_scores, with_weights
from fullrank_trainer.train import Trainer, train
from fullrank_trainer.training.loop import TrainingRun
from tests.planted import write_lines, write_planted, write_qrels
from tests.weighted import judged_pairs, write_values

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = ("model.dimension=6", "epochs=8")


def trainer_of(folder: Path, splits: tuple[str, ...] = ("train", "valid")) -> Trainer:
    source = read_collection(write_planted(folder / "c", splits=splits))
    return Trainer(source, Reporter(quiet=True), folder, "x", seed=1, threads=1, resume=False)


def test_background_probabilities_weigh_documents_and_queries_equally(tmp_path: Path) -> None:
    corpus = trainer_of(tmp_path).corpus
    recipe = load_recipe("bltm")
    found = count_texts(corpus, recipe.model, recipe.own)
    words = list(found.words.words)
    assert found.background.sum() == pytest.approx(1)
    assert (found.background > 0).all()
    texts = [f"{d.fields['title']} {d.fields['text']}".split() for d in corpus.collection.documents]
    document_words = [word for text in texts for word in text]
    share = document_words.count("decoy3") / len(document_words)
    queries: Any = corpus.queries.take(corpus.pairs.queries).csr().sum(axis=0)
    asked = queries[corpus.counts.words.index("decoy3")] / queries.sum()
    assert found.background[words.index("decoy3")] == pytest.approx((share + asked) / 2)
    # Each judged pair is one row, the same row on both sides.
    assert len(found.queries) == len(found.documents) == len(corpus.pairs)
    first = corpus.pairs.queries[0]
    assert found.queries.csr()[[0]].sum() == corpus.queries.csr()[[first]].sum()


def test_pairs_weigh_as_their_judgements(tmp_path: Path) -> None:
    """Equal weights change nothing; others change the table, as repeated pairs would (test_ibm1)."""
    tables: list[np.ndarray] = []
    for weigh in (None, lambda _: 2.0, lambda i: 1.0 + 9 * (i % 2)):
        folder = tmp_path / str(len(tables))
        trainer = trainer_of(folder)
        if weigh is not None:
            pairs = judged_pairs(folder / "c", "train")
            values = {pair: weigh(i) for i, pair in enumerate(pairs)}
            write_values(folder / "c", "weights", "train", values)
            collection = read_collection(folder / "c", strict=True)
            trainer = Trainer(
                collection, Reporter(quiet=True), folder, "y", seed=1, threads=1, resume=False
            )
        recipe = load_recipe("word-translation")
        texts = count_texts(trainer.corpus, recipe.model, recipe.own)
        if weigh is None:
            assert texts.weights is None
        else:
            assert texts.weights is not None
            assert len(texts.weights) == len(texts.queries)
        model = system._unigram(trainer.corpus, texts, recipe)
        run = TrainingRun(recipe, None, 1, "", Reporter(quiet=True), folder / "checkpoint", False)
        tables.append(system._translation(model, texts, recipe, run)[0].translation.toarray())
    np.testing.assert_allclose(tables[1], tables[0], atol=1e-6)
    assert np.abs(tables[2] - tables[0]).max() > 0.01


def test_stems_are_counted_as_one_word(tmp_path: Path) -> None:
    corpus = trainer_of(tmp_path).corpus
    recipe = load_recipe("bltm").override(["language.stem=english"])
    plain = count_texts(corpus, recipe.model, replace(recipe.own, stem="none"))
    found = count_texts(corpus, recipe.model, recipe.own)
    stem = stemmer("english")
    assert found.words.words == sorted({stem(word) for word in plain.words.words})
    assert found.documents.values.sum() == plain.documents.values.sum()
    assert found.background.sum() == pytest.approx(1)


def test_damped_documents_count_repeated_words_by_their_logarithm(tmp_path: Path) -> None:
    corpus = trainer_of(tmp_path).corpus
    repeated = corpus.documents.with_values(corpus.documents.values * 3)
    corpus.totals.documents = repeated
    recipe = load_recipe("word-translation").override(["language.damped=true"])
    found = count_texts(corpus, recipe.model, recipe.own)
    plain = count_texts(corpus, recipe.model, replace(recipe.own, damped=False))
    wanted = 1 + np.log(plain.documents.values)
    np.testing.assert_allclose(found.documents.values, wanted, rtol=1e-6)
    np.testing.assert_array_equal(found.queries.values, plain.queries.values)


def test_shares_are_over_a_power_of_the_length(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path)
    documents = trainer.corpus.documents
    lengths = np.asarray(documents.csr().sum(axis=1), np.float64)
    for p in (0.0, 0.75, 1.0):
        recipe = load_recipe("word-translation").override([f"language.length={p}"])
        encoded = trainer.fit(recipe, 0, 0.0).fitted.documents
        divided = lengths**p * lengths.mean() ** (1 - p)
        wanted = documents.values / np.repeat(divided, np.diff(documents.indptr))
        assert np.sort(encoded.sparse.values) == pytest.approx(np.sort(wanted), rel=1e-5)


def test_the_better_of_stems_and_words_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    things = [f"thing{letter}{other}" for letter in "abcde" for other in "fghij"]
    write_lines(
        folder / "corpus.jsonl",
        [{"_id": thing, "title": thing, "text": f"{thing}s are listed"} for thing in things],
    )
    endings = {"train": "ing", "valid": "ed"}  # training knows no word of validation, only its stem
    write_lines(
        folder / "queries.jsonl",
        [
            {"_id": f"{split}-{thing}", "text": thing + ending}
            for split, ending in endings.items()
            for thing in things
        ],
    )
    for split in endings:
        write_qrels(
            folder / "qrels" / f"{split}.tsv", [(f"{split}-{thing}", thing) for thing in things]
        )
    result = train(
        folder, tmp_path / "out", "shop", recipe="word-translation",
        overrides=["language.stem=auto"], threads=1, reporter=Reporter(quiet=True),
    )  # fmt: skip
    bundle = open_bundle(result.path)
    stems = bundle.card["training"]["stems"]
    assert stems["none"] < stems["english"] == 1
    assert bundle.model.config["stem"] == "english"


def test_plsa_uses_every_document_once_and_no_query(tmp_path: Path) -> None:
    corpus = trainer_of(tmp_path, splits=()).corpus
    recipe = load_recipe("plsa")
    found = count_texts(corpus, recipe.model, recipe.own)
    assert len(found.documents) == len(corpus.documents)
    assert len(found.queries.indices) == 0
    assert not any(word.startswith("ask") for word in found.words.words)


def test_learning_from_pairs_is_refused_without_any(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, splits=())
    with pytest.raises(TrainingError, match="no judged pair"):
        trainer.search(load_recipe("bltm").override(TINY))
    # Models that do not learn from pairs can be fitted without pairs.
    for name in ("unigram", "plsa"):
        found = trainer.search(load_recipe(name).override(TINY)).fitted.model
        assert found.config["lambda1"] == load_recipe(name).own.lambda1[0]


@pytest.mark.parametrize("is_weighted", [False, True])
def test_weights_are_chosen_on_validation_and_may_be_fixed(
    tmp_path: Path, is_weighted: bool
) -> None:
    folder = write_planted(tmp_path / "c", splits=("train", "valid"))
    if is_weighted:
        weights = {pair: 1.0 + 9 * (ord(pair[0][-1]) % 2) for pair in judged_pairs(folder, "valid")}
        write_values(folder, "weights", "valid", weights)
    trainer = trainer_of(tmp_path)
    found = trainer.search(load_recipe("bltm-pr").override(TINY))
    tried = found.fitted.facts["weights"]
    recipe = found.recipe.own
    assert len(tried) == len(recipe.lambda1) * len(recipe.lambda2)
    best = max(line["map"] for line in tried)
    config = found.fitted.model.config
    assert {"lambda1": config["lambda1"], "lambda2": config["lambda2"], "map": best} in tried
    # The scores of the weight search equal those of the serving code, on all 30 validation queries.
    assert found.row is not None
    assert found.row.measures["map"].mean == pytest.approx(best)
    alone = trainer.search(load_recipe("bltm-pr").override([*TINY, "lambda2=0"]))
    assert alone.fitted.model.config["lambda2"] == 0


def test_mixed_scores_equal_the_scorers(tmp_path: Path) -> None:
    fitted = trainer_of(tmp_path).search(load_recipe("bltm").override(TINY)).fitted
    model = fitted.model
    assert isinstance(model, LanguageModel)
    query, rows = fitted.encode(np.array([3])), np.arange(len(fitted.documents))
    grid = [(0.1, 0.0), (0.5, 0.5), (0.9, 1.0)]
    for line, weights in zip(mixed_scores(model, fitted.documents, query, grid), grid, strict=True):
        scorer = LanguageScorer(with_weights(model, *weights), fitted.documents)
        np.testing.assert_allclose(line, sum(scorer.score(query, rows)), rtol=1e-12, atol=1e-12)


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, -np.inf]), min_size=1, max_size=30), st.data())
def test_the_average_precision_is_that_of_the_whole_ranking(
    drawn: list[float], data: st.DataObject
) -> None:
    rows = st.integers(0, len(drawn) - 1)
    relevant = sorted(data.draw(st.sets(rows, min_size=1)))
    excluded = sorted(data.draw(st.sets(rows)) - set(relevant))
    ones = np.ones(len(relevant), np.int64)
    judgement = Judgement("q", np.array(relevant), ones, np.array(excluded, np.int64), 1.0, None)
    scores = np.array(drawn)
    scores[excluded] = -np.inf
    order = np.argsort(-scores, kind="stable")
    expected = average_precision(np.isin(order, relevant).astype(np.int64), len(relevant))
    assert system._average_precision(np.array(drawn), judgement) == pytest.approx(expected)


def test_the_card_counts_evaluations_of_each_iteration(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path)
    facts = trainer.search(load_recipe("bltm-pr").override(TINY)).fitted.facts
    assert len(facts["history"]) == len(facts["evaluations"]) == 8
    losses = [line["loss"] for line in facts["history"]]
    assert np.all(np.diff(losses) < 1e-3)
    evaluations, _, gaps = np.array(facts["evaluations"]).T
    assert (evaluations > 1).any()
    assert (gaps < 0.0011).all()
    likelihood = trainer.search(load_recipe("word-translation")).fitted.facts["log_likelihood"]
    assert np.all(np.diff(likelihood) > -1e-6)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_translations_are_trained_on_ranks_where_judgements_have_no_weights(
    tmp_path: Path, is_weighted: bool
) -> None:
    trainer = trainer_of(tmp_path)
    if is_weighted:
        weights = dict.fromkeys(judged_pairs(tmp_path / "c", "train"), 2.0)
        write_values(tmp_path / "c", "weights", "train", weights)
        source, quiet = read_collection(tmp_path / "c", strict=True), Reporter(quiet=True)
        trainer = Trainer(source, quiet, tmp_path, "y", seed=1, threads=1, resume=False)
    pairs, losses, tables = trainer.corpus.pairs, [], []
    for ranked in ("false", "true"):
        chosen = ["lambda1=0.3", "lambda2=0.5", "expanded=100", f"ranked={ranked}"]
        fitted = trainer.search(load_recipe("word-translation").override(chosen)).fitted
        assert isinstance(fitted.model, LanguageModel)
        scores = fitted.encode(pairs.queries).sparse.csr() @ fitted.documents.sparse.csr().T
        chances = np.exp(0.5 * scores.toarray())
        chances /= chances.sum(axis=1, keepdims=True)
        rows = zip(chances, map(pairs.relevant.__getitem__, pairs.queries.tolist()), strict=True)
        losses.append(-np.mean([np.log(line[found].sum()) for line, found in rows]))
        tables.append(fitted.model.translation)
    np.testing.assert_array_equal(tables[1].indices, tables[0].indices)
    if is_weighted:
        np.testing.assert_array_equal(tables[1].data, tables[0].data)
    else:
        assert losses[1] < 0.98 * losses[0]
