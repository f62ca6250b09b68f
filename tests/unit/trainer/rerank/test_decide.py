"""The second stage of a training: boosting, cross-fitting, when it is kept, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from fullrank.bundle import open_bundle
from fullrank.errors import RecipeError, TrainingError
from fullrank.measures import Estimate
from fullrank.storage.encoding import Float32, Int64
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import evaluate
from fullrank_trainer.rerank.candidates import Candidates
from tests.planted import write_lines, write_planted, write_qrels
from tests.weighted import judged_pairs, write_values

pytest.importorskip("tests.openmp", exc_type=ImportError)

from fullrank_trainer.rerank.boosting import (
    FOLDS,
    LEAVES,
    MAX_TREES,
    cross_fit,
    fit_booster,
    float32_below,
    folds,
    trees_of,
)
from fullrank_trainer.rerank.decide import MIN_QUERIES, require_queries, verdict
from fullrank_trainer.train import train


def write_clicked(folder: Path) -> Path:
    """Pairs of documents with equal text; people choose the one that more training queries chose before."""
    rng = np.random.default_rng(1)
    documents, queries = [], []
    pairs: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    for topic in range(60):
        words = [f"w{topic}{letter}" for letter in "abc"]
        wanted = rng.integers(2)
        documents += [
            {"_id": f"d{topic}-{side}", "title": " ".join(words), "text": "page"}
            for side in range(2)
        ]
        for number in range(4):
            split = "train" if number < 2 else ("valid", "test")[number - 2]
            queries.append({"_id": f"q{topic}-{number}", "text": f"{words[number % 3]} {split}"})
            pairs[split].append((f"q{topic}-{number}", f"d{topic}-{wanted}"))
        queries.append({"_id": f"q{topic}-other", "text": "other"})
        pairs["train"].append((f"q{topic}-other", f"d{topic}-{1 - wanted}"))
    write_lines(folder / "corpus.jsonl", documents)
    write_lines(folder / "queries.jsonl", queries)
    for split, found in pairs.items():
        write_qrels(folder / "qrels" / f"{split}.tsv", found)
    return folder


def test_a_stage_that_helps_is_kept_and_helps_on_the_test_split(tmp_path: Path) -> None:
    folder = write_clicked(tmp_path / "clicked")
    options = {"recipe": "bm25", "threads": 1}
    plain = train(folder, tmp_path / "out", "plain", **options)  # type: ignore[arg-type]
    staged = train(folder, tmp_path / "out", "staged", rerank=True, **options)  # type: ignore[arg-type]
    bundle, collection = open_bundle(staged.path), read_collection(folder)
    card = bundle.card["second_stage"]
    assert bundle.second_stage is not None
    assert card["on"]
    assert card["gain"]["map"] > 0.1
    assert card["gain"]["map"] == pytest.approx(card["second"]["map"] - card["first"]["map"])
    assert next(iter(card["features"])) in {"clicks", "lexical.clicked", "length.clicked"}
    measured = [
        evaluate(b, collection, "test").measures["map"].mean
        for b in (open_bundle(plain.path), bundle)
    ]
    assert measured[1] > measured[0] + 0.1
    again = train(folder, tmp_path / "again", "staged", rerank=True, **options)  # type: ignore[arg-type]
    assert again.path.name[-8:] == staged.path.name[-8:]


def test_a_stage_that_does_not_gain_is_left_out(tmp_path: Path) -> None:
    folder = write_clicked(tmp_path / "clicked")
    texts = {f"d{topic}-{side}": topic for topic in range(60) for side in range(2)}
    # Without clicks and with a title of its own for each document there is nothing to learn.
    write_lines(
        folder / "corpus.jsonl",
        [{"_id": id, "title": f"w{topic}c unique{id}"} for id, topic in texts.items()],
    )
    (folder / "qrels" / "train.tsv").unlink()
    rng = np.random.default_rng(2)
    pairs = [(f"q{topic}-2", f"d{topic}-{rng.integers(2)}") for topic in range(60)]
    write_qrels(folder / "qrels" / "valid.tsv", pairs)
    found = train(folder, tmp_path / "out", "plain", recipe="bm25", threads=1, rerank=True)
    bundle = open_bundle(found.path)
    card = bundle.card["second_stage"]
    assert card["reason"].startswith("off: it gains")
    assert not card["on"]
    assert bundle.second_stage is None
    assert bundle.search("w1c").reordered == 0


@pytest.mark.parametrize(
    ("gain", "ms", "on"),
    [(0.005, 2.0, True), (0.0049, 0.1, False), (0.5, 2.01, False), (-0.1, 0.1, False)],
)
def test_the_rule_asks_for_a_gain_and_for_little_time(gain: float, ms: float, on: bool) -> None:
    found, reason = verdict(Estimate(gain, 0.002), ms)
    assert found is on
    assert reason.startswith("on: " if on else "off: ")


def test_a_gain_that_may_be_luck_is_not_enough() -> None:
    assert verdict(Estimate(0.006, 0.0031), 1.0)[0] is False
    assert verdict(Estimate(0.006, 0.0029), 1.0)[0] is True


def test_a_second_stage_is_tried_unasked_where_it_may_gain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_trainer.train.MANY", 20)
    folder, small = write_clicked(tmp_path / "clicked"), ["blend.recipes=bm25;tfidf"]

    def has_stage(name: str, **options: object) -> bool:
        found = train(folder, tmp_path / "out", name, threads=1, overrides=small, **options)  # type: ignore[arg-type]
        return "second_stage" in open_bundle(found.path).card

    assert has_stage("unasked")
    assert not has_stage("refused", rerank=False)
    assert not has_stage("limited", seconds=30)
    monkeypatch.setattr("fullrank_trainer.train.MANY", 10_000)
    assert not has_stage("few")


def test_a_collection_without_a_validation_split_is_refused_first(tmp_path: Path) -> None:
    folder = write_planted(tmp_path / "planted", splits=("train", "test"))
    with pytest.raises(TrainingError, match="learns from a split 'valid'"):
        train(folder, tmp_path / "out", "mine", recipe="bm25", rerank=True)
    assert not (tmp_path / "out").exists()


def test_queries_that_the_model_knows_cannot_teach_a_second_stage(tmp_path: Path) -> None:
    folder, out = write_clicked(tmp_path / "clicked"), tmp_path / "out"
    for split in ("train", "valid"):
        write_values(folder, "weights", split, dict.fromkeys(judged_pairs(folder, split), 1.0))
    known, taught = (
        train(
            folder,
            out / str(rerank),
            "mine",
            rerank=rerank,
            threads=1,
            overrides=["blend.recipes=bm25;tfidf"],
        ).path
        for rerank in (False, True)
    )
    assert open_bundle(known).card["training"]["learned_valid"] == 60
    assert "learned_valid" not in open_bundle(taught).card["training"]
    with pytest.raises(RecipeError, match="has learned the clicks of valid"):
        train(folder, out, "mine", start=known, rerank=True)


def test_too_few_validation_queries_are_refused(tmp_path: Path) -> None:
    folder = write_clicked(tmp_path / "clicked")
    pairs = [(f"q{topic}-2", f"d{topic}-0") for topic in range(MIN_QUERIES - 1)]
    write_qrels(folder / "qrels" / "valid.tsv", pairs)
    with pytest.raises(TrainingError, match=f"needs {MIN_QUERIES} queries"):
        require_queries(read_collection(folder))
    write_qrels(folder / "qrels" / "valid.tsv", [*pairs, ("q59-2", "d59-0")])
    require_queries(read_collection(folder))


def candidates(queries: int, seed: int = 1) -> Candidates:
    """Documents whose grade depends on two of four features; the others are noise."""
    rng = np.random.default_rng(seed)
    features: list[Float32] = []
    grades: list[Int64] = []
    for _ in range(queries):
        x = rng.standard_normal((int(rng.integers(5, 40)), 4)).astype(np.float32)
        x[:, 3] = rng.integers(0, 3, len(x))
        wanted = x[:, 0] + np.where(x[:, 3] > 0, 1, -1) * x[:, 1]
        grades.append((wanted >= np.sort(wanted)[-2]).astype(np.int64))
        features.append(x)
    return Candidates(features, grades, [np.ones(2, np.int64)] * queries, ("a", "b", "c", "d"))


def test_the_arrays_predict_what_lightgbm_predicts() -> None:
    found = candidates(80)
    booster = fit_booster(found, list(range(80)), trees=60, seed=1, threads=1)
    trees = trees_of(booster)
    trees.check(4)
    assert len(trees) == 60
    rows = np.concatenate(candidates(50, seed=2).features)
    # Rows at the thresholds themselves are where a rounding would show.
    at = np.unique(trees.threshold)
    edges = np.stack([at] * 4, axis=1)
    above = np.nextafter(edges, np.float32(np.inf))
    rows = np.concatenate([rows, edges, above]).astype(np.float32)
    expected = np.asarray(booster.predict(rows.astype(np.float64)))
    np.testing.assert_allclose(trees.predict(rows), expected, rtol=0, atol=1e-12)
    parts = trees.take(0, 25).predict(rows) + trees.take(25, 60).predict(rows)
    np.testing.assert_allclose(parts, expected, rtol=0, atol=1e-12)
    assert not trees.take(60, 80).predict(rows).any()


def test_lambdamart_learns_an_order_that_no_single_feature_has() -> None:
    found = candidates(300)
    booster = fit_booster(found, list(range(250)), seed=1, threads=1)
    trees = trees_of(booster)
    assert len(trees) == MAX_TREES
    assert trees.leaf.shape[1] == LEAVES
    fresh = candidates(100, seed=9)
    learned = fresh.measure([trees.predict(x) for x in fresh.features])["map"].mean()
    by_feature = fresh.measure([x[:, 0].astype(np.float64) for x in fresh.features])["map"].mean()
    assert learned > by_feature + 0.15


def test_node_values_are_the_means_of_the_training_rows() -> None:
    found = candidates(60)
    everything = list(range(60))
    trees = trees_of(fit_booster(found, everything, trees=20, seed=1, threads=1))
    rows = np.concatenate(found.features)
    assert trees.base == pytest.approx(trees.predict(rows).mean(), abs=1e-9)


def coarse(queries: int) -> Candidates:
    """Candidates whose features have few values, so that repeated queries change no bin of LightGBM."""
    found = candidates(queries)
    features = [np.round(np.clip(x, -2, 2) * 2).astype(np.float32) for x in found.features]
    return replace(found, features=features)


def test_weight_two_is_the_query_twice() -> None:
    found = coarse(200)
    times = np.array([1 + i % 3 for i in range(200)])
    weighted = replace(found, weights=times / times.mean())
    repeated = np.repeat(np.arange(200), times).tolist()
    rows = np.concatenate(found.features)
    fits = {
        "weighted": (weighted, list(range(200))),
        "twice": (found, repeated),
        "plain": (found, list(range(200))),
    }
    scores = {}
    for name, (given, queries) in fits.items():
        booster = fit_booster(given, queries, trees=3, seed=1, threads=1)
        scores[name] = trees_of(booster).predict(rows)
    np.testing.assert_allclose(scores["weighted"], scores["twice"], atol=1e-6)
    assert np.abs(scores["weighted"] - scores["plain"]).max() > 1e-3


def test_equal_weights_keep_the_bits() -> None:
    found = candidates(60)
    alike = replace(found, weights=np.ones(60))
    rows = np.concatenate(found.features)
    scores = [
        trees_of(fit_booster(some, list(range(60)), trees=20, seed=1, threads=1)).predict(rows)
        for some in (found, alike)
    ]
    np.testing.assert_array_equal(scores[0], scores[1])


@pytest.mark.parametrize("threshold", [0.1, 1 / 3, -0.1, 1e-40, 16777217.0, 1e300, -3e38, 0.5])
def test_a_threshold_as_float32_separates_the_same_float32_features(threshold: float) -> None:
    low = np.float32(float32_below(threshold))
    with np.errstate(over="ignore"):  # no float32 is above the largest
        above, below = (np.nextafter(low, np.float32(side)) for side in (np.inf, -np.inf))
    for value in (low, above, below, np.float32(0), np.finfo(np.float32).max):
        if np.isfinite(value):
            assert (float(value) <= threshold) == bool(value <= low)


def noise(queries: int) -> Candidates:
    """One of twenty documents is relevant, at random: nothing predicts which."""
    rng = np.random.default_rng(1)
    features = [rng.standard_normal((20, 3)).astype(np.float32) for _ in range(queries)]
    grades = [(np.arange(20) == rng.integers(20)).astype(np.int64) for _ in range(queries)]
    return Candidates(features, grades, [np.ones(1, np.int64)] * queries, ("a", "b", "c"))


def test_folds_are_equal_and_follow_from_the_ids() -> None:
    ids = [f"q{i}" for i in range(103)]
    found = folds(ids)
    assert sorted(np.bincount(found).tolist()) == [20, 20, 21, 21, 21]
    shuffled = np.random.default_rng(1).permutation(103)
    assert folds([ids[i] for i in shuffled]).tolist() == found[shuffled].tolist()


def test_a_fold_is_judged_by_trees_of_the_others_as_many_as_rank_those_best() -> None:
    """A brute-force twin: LightGBM fitted without each fold, and its MAP at each number of trees."""
    ids = [f"q{i}" for i in range(60)]
    weights = np.linspace(0.1, 1.9, 60)
    given = replace(noise(60), weights=weights)
    crossed, fold = cross_fit(given, ids, seed=1, threads=1), folds(ids)
    counts = list(range(20, MAX_TREES + 1, 20))
    scores = {count: [np.zeros(0)] * 60 for count in counts}
    for part in range(FOLDS):
        fit = np.flatnonzero(fold != part).tolist()
        booster = fit_booster(given, fit, seed=1, threads=1)
        for count, query in product(counts, np.flatnonzero(fold == part).tolist()):
            rows = given.features[query]
            scores[count][query] = np.asarray(booster.predict(rows, num_iteration=count))
    ranked = {count: weights * given.measure(scores[count])["map"] for count in counts}
    best = [
        max(counts, key=lambda count: ranked[count][fold != part].sum()) for part in range(FOLDS)
    ]
    assert crossed.sizes == best
    assert len(crossed.trees) == max(counts, key=lambda count: ranked[count].sum())
    for query, part in enumerate(fold.tolist()):
        wanted = scores[best[part]][query]
        np.testing.assert_allclose(crossed.scores[query], wanted, rtol=0, atol=1e-12)


def test_grades_that_nothing_predicts_show_no_gain() -> None:
    found, ids = noise(200), [f"q{i}" for i in range(200)]
    crossed = cross_fit(found, ids, seed=1, threads=1)
    honest = found.measure(crossed.scores)["map"].mean()
    seen = found.measure([crossed.trees.predict(x) for x in found.features])["map"].mean()
    by_chance = np.mean([1 / rank for rank in range(1, 21)])
    assert honest == pytest.approx(by_chance, abs=0.06)
    # The same trees look far better on the queries that they learned.
    assert seen > honest + 0.05
