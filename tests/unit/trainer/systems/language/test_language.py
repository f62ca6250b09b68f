"""Fitting language models, IBM model 1 and topics: the counts, and the choice of the weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.bundle import open_bundle
from fullrank.errors import TrainingError
from fullrank.measures import average_precision
from fullrank.models.language import LanguageModel, LanguageScorer
from fullrank.progress import Reporter
from fullrank.storage.encoding import Rows
from fullrank.text.folding import stemmer
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import Judgement
from fullrank_trainer.recipes.recipe import load_recipe
from fullrank_trainer.systems import language as system
from fullrank_trainer.systems import topics as em
from fullrank_trainer.systems.language import count_texts, mixed_scores, with_weights
from fullrank_trainer.systems.topics import LanguageSettings, TopicLearner
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
        rows = zip(chances, map(pairs.__getitem__, pairs.queries.tolist()), strict=True)
        losses.append(-np.mean([np.log(line[found].sum()) for line, found in rows]))
        tables.append(fitted.model.translation)
    np.testing.assert_array_equal(tables[1].indices, tables[0].indices)
    if is_weighted:
        np.testing.assert_array_equal(tables[1].data, tables[0].data)
    else:
        assert losses[1] < 0.98 * losses[0]


Float64 = npt.NDArray[np.float64]
WORDS, TOPICS = 12, 4

# Pairs of (query, document) as word → count, with empty texts, single words and words of one side only.
PAIRS: list[tuple[dict[int, float], dict[int, float]]] = [
    ({0: 1, 1: 2}, {2: 3, 3: 1, 4: 1}),
    ({1: 1}, {3: 2}),
    ({}, {2: 1, 5: 4}),
    ({0: 2}, {}),
    ({}, {}),
    ({6: 1, 7: 1, 0: 1}, {6: 2, 8: 1, 9: 1, 2: 1}),
    ({6: 3}, {8: 9}),
    ({0: 1, 6: 1, 1: 5}, {4: 1, 5: 1, 8: 1, 9: 1, 3: 1, 2: 1, 10: 1}),
]
PR = LanguageSettings(projection_steps=500, projection_tolerance=1e-9)
PLAIN = LanguageSettings()


def rows(side: int) -> Rows:
    return Rows.from_lists([(list(pair[side]), list(pair[side].values())) for pair in PAIRS], WORDS)


def learner(settings: LanguageSettings, epochs: int = 30, seed: int = 3) -> TopicLearner:
    rng = np.random.default_rng(seed)
    return TopicLearner(rows(0), rows(1), settings, topics=TOPICS, epochs=epochs, rng=rng)


def run(found: TopicLearner, epochs: int) -> list[float]:
    """The objective before each iteration."""
    values = []
    for _ in range(epochs):
        list(found.steps(0, 0))
        values.append(float(found.objective[0]))
    return values


def posteriors(text: dict[int, float], phi: Float64, theta: Float64) -> Float64:
    """p(z|w), a row per word."""
    raw = np.array([phi[w] * theta for w in text]).reshape(-1, len(theta))
    return np.asarray(raw / raw.sum(axis=1, keepdims=True))


def counts(text: dict[int, float]) -> Float64:
    return np.array(list(text.values()), np.float64).reshape(-1, 1)


def shares(text: dict[int, float], p: Float64) -> Float64:
    """(1/|Q|) Σ_q n(q) p(z|q)."""
    n = counts(text)
    return np.asarray((n * p).sum(axis=0) / n.sum())


def project(
    query: dict[int, float], document: dict[int, float], p: Float64, r: Float64
) -> tuple[Float64, Float64]:
    """The nearest posteriors with equal topic shares, by plain gradient ascent on λ."""
    q_size, d_size = sum(query.values()), sum(document.values())
    multipliers = np.zeros(p.shape[1])
    for _ in range(200_000):
        a, b = p * np.exp(-multipliers / q_size), r * np.exp(multipliers / d_size)
        a, b = a / a.sum(axis=1, keepdims=True), b / b.sum(axis=1, keepdims=True)
        gap = shares(query, a) - shares(document, b)
        if np.abs(gap).sum() < 1e-8:
            break
        multipliers += gap / (1 / q_size + 1 / d_size)
    return a, b


def twin(phi_q: Float64, phi_d: Float64, settings: LanguageSettings, epochs: int) -> list[Float64]:
    """φ^q, φ^d and θ after some iterations."""
    theta = np.full((len(PAIRS), phi_q.shape[1]), 1 / phi_q.shape[1])
    for _ in range(epochs):
        of_q = np.where(phi_q > 0, 0.01, 0.0)
        of_d = of_q if settings.merged else np.where(phi_d > 0, 0.01, 0.0)
        for i, (query, document) in enumerate(PAIRS):
            p, r = posteriors(query, phi_q, theta[i]), posteriors(document, phi_d, theta[i])
            if settings.projection_steps and query and document:
                p, r = project(query, document, p, r)
            theta[i] = 0.1
            for text, posterior, into in ((query, p, of_q), (document, r, of_d)):
                for w, line in zip(text, counts(text) * posterior, strict=True):
                    theta[i] += line
                    into[w] += line
            theta[i] /= theta[i].sum()
        phi_q, phi_d = of_q / of_q.sum(axis=0), of_d / of_d.sum(axis=0)
    return [phi_q, phi_d, theta]


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("settings", [PLAIN, PR], ids=["bltm", "bltm-pr"])
def test_em_equals_its_numpy_twin(settings: LanguageSettings, merged: bool) -> None:
    settings = replace(settings, merged=merged)
    found = learner(settings)
    wanted = twin(found.phi_q.copy(), found.phi_d.copy(), settings, 3)
    run(found, 3)
    for got, want in zip((found.phi_q, found.phi_d, found.theta), wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("settings", [PLAIN, PR], ids=["bltm", "bltm-pr"])
def test_the_map_objective_never_falls(settings: LanguageSettings, merged: bool) -> None:
    """The constrained objective subtracts the distance of the posteriors to their projection."""
    values = run(learner(replace(settings, merged=merged)), 30)
    assert np.all(np.diff(values) > -1e-7)
    assert values[-1] > values[0] + 1


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("settings", [PLAIN, PR], ids=["bltm", "bltm-pr"])
def test_weight_two_is_the_pair_twice(settings: LanguageSettings, merged: bool) -> None:
    settings = replace(settings, merged=merged)
    times = np.array([1 + i % 3 for i in range(len(PAIRS))])
    repeated = np.repeat(np.arange(len(PAIRS)), times)

    def fitted(order: npt.NDArray[np.int64], weights: npt.NDArray[np.float32]) -> TopicLearner:
        sides = (rows(0).take(order), rows(1).take(order))
        rng = np.random.default_rng(3)
        return TopicLearner(*sides, settings, topics=TOPICS, epochs=8, rng=rng, weights=weights)

    ones = np.ones(len(repeated), np.float32)
    twice = fitted(repeated, ones)
    weighted = fitted(np.arange(len(PAIRS)), times.astype(np.float32))
    np.testing.assert_allclose(run(weighted, 8), run(twice, 8), rtol=1e-9)
    for name in ("phi_q", "phi_d"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(twice, name), atol=1e-9)
    np.testing.assert_allclose(weighted.theta[repeated], twice.theta, atol=1e-9)
    plain = learner(settings)
    run(plain, 8)
    assert np.abs(plain.phi_d - weighted.phi_d).max() > 0.01


@pytest.mark.parametrize("settings", [PLAIN, PR], ids=["bltm", "bltm-pr"])
def test_the_weighted_objective_never_falls(settings: LanguageSettings) -> None:
    weights = np.array([0.1, 7, 1, 3, 0.5, 2, 0.01, 4], np.float32)
    rng = np.random.default_rng(3)
    found = TopicLearner(
        rows(0), rows(1), settings, topics=TOPICS, epochs=30, rng=rng, weights=weights
    )
    values = run(found, 30)
    assert np.all(np.diff(values) > -1e-7)
    assert values[-1] > values[0] + 1


def test_weights_of_one_keep_the_bits() -> None:
    ones = np.ones(len(PAIRS), np.float32)
    rng = np.random.default_rng(3)
    weighted = TopicLearner(rows(0), rows(1), PR, topics=TOPICS, epochs=30, rng=rng, weights=ones)
    plain = learner(PR)
    assert run(weighted, 4) == run(plain, 4)
    for name in ("phi_q", "phi_d", "theta"):
        np.testing.assert_array_equal(getattr(weighted, name), getattr(plain, name))


def test_the_objective_equals_the_log_posterior() -> None:
    found = learner(PLAIN)
    run(found, 3)
    phi_q, phi_d, theta = found.phi_q.copy(), found.phi_d.copy(), found.theta.copy()
    wanted = 0.1 * np.log(theta).sum() + sum(
        0.01 * np.log(phi[phi > 0]).sum() for phi in (phi_q, phi_d)
    )
    for i, pair in enumerate(PAIRS):
        for text, phi in zip(pair, (phi_q, phi_d), strict=True):
            wanted += sum(n * np.log(phi[w] @ theta[i]) for w, n in text.items())
    assert run(found, 1)[0] == pytest.approx(wanted)


def test_the_projection_satisfies_its_constraint() -> None:
    found = learner(PR)
    run(found, 4)
    phi_q, phi_d, theta = found.phi_q.copy(), found.phi_d.copy(), found.theta.copy()
    run(found, 1)
    assert found.evaluations[:5, 2].max() < 1e-9
    for i, (query, document) in enumerate(PAIRS):
        if not query or not document:
            assert not found.multipliers[i].any()
            continue
        tilt = found.multipliers[i]
        p = posteriors(query, phi_q, theta[i] * np.exp(-tilt / sum(query.values())))
        r = posteriors(document, phi_d, theta[i] * np.exp(tilt / sum(document.values())))
        np.testing.assert_allclose(shares(query, p), shares(document, r), atol=1e-9)
        # Without the constraint the shares differ.
        before = shares(query, posteriors(query, phi_q, theta[i]))
        assert np.abs(before - shares(document, posteriors(document, phi_d, theta[i]))).sum() > 1e-6


def test_a_projection_that_stops_early_reports_its_gap() -> None:
    found = learner(LanguageSettings(projection_steps=1, projection_tolerance=0.0))
    run(found, 2)
    assert (found.evaluations[:2, 0] > 1).all()
    assert (found.evaluations[:2, 2] > 1e-9).all()


def test_without_projection_steps_the_regularised_model_is_the_plain_one() -> None:
    """A tolerance as large as the largest gap removes the constraint: the bits are the same."""
    plain, free = learner(PLAIN), learner(replace(PR, projection_tolerance=2.0))
    run(plain, 6)
    run(free, 6)
    for name in ("phi_q", "phi_d", "theta"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(free, name))


def test_the_gradient_of_the_dual_is_the_constraint_gap() -> None:
    """−∂V/∂λ_z by finite differences of the likelihood under tilted topics."""
    rng = np.random.default_rng(5)
    phi = rng.random((WORDS, TOPICS))
    theta, multipliers = rng.random(TOPICS), rng.standard_normal(TOPICS)
    sides = [rows(0).take(np.array([7])), rows(1).take(np.array([7]))]
    sizes = [float(side.values.sum()) for side in sides]

    def value(at: Float64) -> tuple[float, list[Float64]]:
        total, expected = 0.0, []
        for side, size, sign in zip(sides, sizes, (-1, 1), strict=True):
            tilted, found = np.empty(TOPICS), np.empty(TOPICS)
            kept, n = np.empty(len(side.indices)), side.values.astype(np.float64)
            em._tilt(theta, at, sign / size, tilted)
            total += em._likelihood(side.indices, n, phi, tilted, kept)
            em._expected(side.indices, kept, phi, tilted, found)
            expected.append(found)
        return total, expected

    gradient = np.empty(TOPICS)
    expected_q, expected_d = value(multipliers)[1]
    em._gap(expected_q, expected_d, sizes[0], sizes[1], gradient)
    for z in range(TOPICS):
        step = np.zeros(TOPICS)
        step[z] = 1e-5
        slope = (value(multipliers + step)[0] - value(multipliers - step)[0]) / 2e-5
        assert -slope == pytest.approx(gradient[z], abs=1e-8)


def test_learning_from_documents_makes_pairs_without_a_query() -> None:
    """PLSA has one φ for both sides, and empty texts change nothing."""
    settings = LanguageSettings(merged=True)
    empty = Rows.from_lists([([], [])] * len(PAIRS), WORDS)
    rng = np.random.default_rng(1)
    found = TopicLearner(empty, rows(1), settings, topics=TOPICS, epochs=9, rng=rng)
    values = run(found, 9)
    assert np.all(np.diff(values) > -1e-9)
    assert found.phi_q is found.phi_d
    assert not found.phi_d[[0, 1, 7, 11]].any()
    np.testing.assert_allclose(found.phi_d.sum(axis=0), 1)
    np.testing.assert_array_equal(found.theta[4], 0.25)


def test_a_restored_learner_continues_with_the_same_bits() -> None:
    straight, stopped, resumed = learner(PR), learner(PR), learner(PR, seed=8)
    run(straight, 6)
    run(stopped, 3)
    resumed.restore(
        {name: array.copy() for name, array in stopped.parameters().items()},
        {name: array.copy() for name, array in stopped.state().items()},
    )
    run(resumed, 3)
    for name, array in {**straight.parameters(), **straight.state()}.items():
        np.testing.assert_array_equal({**resumed.parameters(), **resumed.state()}[name], array)


def test_threads_do_not_change_a_bit() -> None:
    before = numba.get_num_threads()
    found = []
    try:
        for threads in (1, numba.config.NUMBA_NUM_THREADS):  # type: ignore[attr-defined]
            numba.set_num_threads(threads)
            found.append(learner(PR))
            run(found[-1], 3)
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(found[0].phi_q, found[1].phi_q)
    np.testing.assert_array_equal(found[0].theta, found[1].theta)
