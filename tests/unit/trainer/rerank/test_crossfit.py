"""Cross-fitting: no query is judged by trees that saw it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from fullrank_trainer.rerank.candidates import Candidates

pytest.importorskip("tests.openmp", exc_type=ImportError)

from fullrank_trainer.rerank.boosting import FOLDS, MAX_TREES, cross_fit, fit_booster, folds


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
