"""Predicted clicks against scikit-learn, and against the probabilities that were planted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from fullrank_service.completion.calibrations import MAX_PLACEMENTS, Calibration, NotCalibrated, fit


def random_groups(seed: int, m: int = 400, places: int = 5) -> tuple[list[str], Any, Any, Any]:
    """Return groups of impressions whose clicks follow the score and the placement."""
    rng = np.random.default_rng(seed)
    of = rng.integers(places, size=m)
    scores = rng.normal(20, 6, m)
    impressions = rng.integers(1, 60, m).astype(np.float64)
    logits = -3 + 0.15 * (scores - 20) + np.linspace(-1, 1, places)[of]
    clicks = rng.binomial(impressions.astype(int), 1 / (1 + np.exp(-logits))).astype(np.float64)
    return [f"p{i}" for i in of], scores, impressions, clicks


def expected(groups: tuple[list[str], Any, Any, Any]) -> tuple[float, float, dict[str, float]]:
    """Fit the same function with scikit-learn, which takes whole targets: each group once for each of them."""
    placements, scores, n, clicks = groups
    mean = np.average(scores, weights=n)
    deviation = np.sqrt(np.average((scores - mean) ** 2, weights=n)) or 1.0
    names = sorted(set(placements))
    columns = [(scores - mean) / deviation]
    columns += [np.array([float(p == name) for p in placements]) for name in names]
    X = np.stack(columns, axis=1)
    positive, negative = clicks.sum(), n.sum() - clicks.sum()
    high, low = (positive + 1) / (positive + 2), 1 / (negative + 2)
    ones = clicks * high + (n - clicks) * low
    model = LogisticRegression(C=1.0, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    model.fit(
        np.concatenate([X, X]),
        np.repeat([1, 0], len(n)),
        sample_weight=np.concatenate([ones, n - ones]),
    )
    slope, *offsets = model.coef_[0].tolist()
    return float(model.intercept_[0]), slope, dict(zip(names, offsets, strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_the_fit_is_that_of_scikit_learn(seed: int) -> None:
    groups = random_groups(seed)
    found = fit(*groups)
    intercept, slope, offsets = expected(groups)
    assert (found.intercept, found.slope) == pytest.approx((intercept, slope), abs=1e-6)
    assert dict(found.offsets) == pytest.approx(offsets, abs=1e-6)
    assert found.impressions == groups[2].sum()
    assert found.clicks == groups[3].sum()


def test_planted_probabilities_are_found() -> None:
    found = fit(*random_groups(9, m=20_000))
    for place, offset in (("p0", -1.0), ("p2", 0.0), ("p4", 1.0)):
        for score in (10.0, 20.0, 30.0):
            planted = 1 / (1 + math.exp(-(-3 + 0.15 * (score - 20) + offset)))
            assert found.probability(score, place) == pytest.approx(planted, rel=0.1)


def test_the_same_groups_give_the_same_bits() -> None:
    groups = random_groups(3)
    assert fit(*groups) == fit(*random_groups(3))
    again = Calibration(**fit(*groups).json())
    assert again == fit(*groups)


@pytest.mark.parametrize("clicked", [0.0, 10.0])
def test_all_or_no_clicks_have_a_finite_fit(clicked: float) -> None:
    found = fit(["a", "b"], np.array([1.0, 1.0]), np.array([10.0, 10.0]), np.full(2, clicked))
    assert math.isfinite(found.intercept)
    assert found.probability(1.0, "a") == pytest.approx((2 * clicked + 1) / 22, abs=0.01)
    assert 0 < found.probability(-1e9, "a") <= found.probability(1e9, "other") < 1


def test_no_impressions_cannot_be_fitted() -> None:
    with pytest.raises(NotCalibrated):
        fit([], np.zeros(0), np.zeros(0), np.zeros(0))


def test_rare_placements_share_the_mean() -> None:
    names = [f"p{i:03}" for i in range(MAX_PLACEMENTS + 20)]
    n = np.arange(len(names), 0, -1.0)
    found = fit(names, np.ones(len(names)), n, n / 4)
    assert sorted(found.offsets) == names[:MAX_PLACEMENTS]
    assert found.probability(1.0, names[-1]) == found.probability(1.0, "unknown")


def test_no_lower_score_exceeds_the_bound() -> None:
    for sign in (1, -1):
        placements, scores, n, clicks = random_groups(4)
        found = fit(placements, sign * scores, n, clicks)
        assert found.slope * sign > 0
        bound = found.most(5.0, "p1")
        assert all(found.probability(5.0 - step, "p1") <= bound for step in (0, 1, 10, 1000))
