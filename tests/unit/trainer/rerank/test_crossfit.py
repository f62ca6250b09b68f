"""Cross-fitting: no query is judged by trees that saw it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fullrank.rerank.trees import Trees
from fullrank_trainer.rerank.candidates import Candidates

pytest.importorskip("tests.openmp", exc_type=ImportError)

from fullrank_trainer.rerank import boosting as crossfit
from fullrank_trainer.rerank.boosting import FOLDS, cross_fit, fit_booster, folds


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


def test_each_query_is_judged_without_it_and_without_its_fold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, ids = noise(40), [f"q{i}" for i in range(40)]
    fits: list[tuple[set[int], set[int]]] = []
    real = fit_booster

    def recorded(given: Candidates, fit: Sequence[int], stop: Sequence[int], **options: Any) -> Any:
        fits.append((set(fit), set(stop)))
        return real(given, fit, stop, **options)

    judged: list[set[int]] = []
    by_features = {id(features): i for i, features in enumerate(found.features)}
    predict = Trees.predict

    def watched(self: Trees, features: Any) -> Any:
        if judged == [] or len(judged) < len(fits):
            judged.append(set())
        judged[-1].add(by_features[id(features)])
        return predict(self, features)

    monkeypatch.setattr(crossfit, "fit_booster", recorded)
    monkeypatch.setattr(Trees, "predict", watched)
    cross_fit(found, ids, seed=1, threads=1)
    assert len(judged) == FOLDS
    assert set().union(*judged) == set(range(40))
    assert sum(map(len, judged)) == 40
    for (fit, stop), fold in zip(fits, judged, strict=False):
        assert not fit & stop
        assert not fold & (fit | stop)
        assert fit | stop | fold == set(range(40))
    assert fits[-1] == (set(range(40)), set())


def test_grades_that_nothing_predicts_show_no_gain() -> None:
    found, ids = noise(200), [f"q{i}" for i in range(200)]
    crossed = cross_fit(found, ids, seed=1, threads=1)
    honest = found.measure(crossed.scores)["map"].mean()
    seen = found.measure([crossed.trees.predict(x) for x in found.features])["map"].mean()
    by_chance = np.mean([1 / rank for rank in range(1, 21)])
    assert honest == pytest.approx(by_chance, abs=0.06)
    # The same trees look far better on the queries that they learned.
    assert seen > honest + 0.05
