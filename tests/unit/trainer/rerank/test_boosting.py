"""LightGBM's trees as arrays: they predict what LightGBM predicts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fullrank.encoding import Float32, Int64
from fullrank_trainer.rerank.candidates import Candidates

pytest.importorskip("tests.openmp", exc_type=ImportError)

from fullrank_trainer.rerank.boosting import LEAVES, MAX_TREES, fit_booster, float32_below, trees_of


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
