"""η is recovered from clicks, and its interval is honest."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from fullrank_trainer.clicks.join import Coins, join
from fullrank_trainer.clicks.mixture import Propensities, fit_propensities
from tests.clicking import click, listing, simulate

CURVE = [0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06]


def draw(ratios: np.ndarray, per_place: int, seed: int, both: float = 0.0) -> Coins:
    """Draw coins with one click, at the upper of places k and k + 1 with odds ``ratios[k]``, or with two."""
    rng = np.random.default_rng(seed)
    place = np.repeat(np.arange(len(ratios)), per_place)
    upper = rng.random(len(place)) < (ratios / (1 + ratios))[place]
    twice = rng.random(len(place)) < both
    return Coins(place, upper | twice, ~upper | twice, np.arange(len(place)))


def power(eta: float, places: int = 9) -> np.ndarray:
    k = np.arange(1, places + 1)
    return ((k + 1) / k) ** eta


@pytest.mark.parametrize("eta", [0.0, 0.6, 1.0, 2.0])
def test_eta_maximises_the_posterior(eta: float) -> None:
    coins = draw(power(eta), 200, 3, both=0.1)
    found = fit_propensities(coins)

    def loss(eta: float) -> float:
        odds = ((coins.place + 2) / (coins.place + 1)) ** eta
        pi = odds / (1 + odds)
        clicks = coins.upper * np.log(pi) + coins.lower * np.log1p(-pi)
        return float((eta - 1) ** 2 / 2 - clicks.sum())

    best = minimize_scalar(loss, bracket=(0, 1), tol=1e-10)
    assert found.eta == pytest.approx(best.x, abs=1e-5)
    # Fisher's information is the curvature there.
    h = 1e-3
    curvature = (loss(best.x + h) - 2 * loss(best.x) + loss(best.x - h)) / h**2
    low, high = found.interval
    assert (high - low) / 2 >= 1.959964 / curvature**0.5 - 1e-4
    assert (high + low) / 2 == pytest.approx(found.eta)


@pytest.mark.parametrize("eta", [0.0, 1.0, 2.0])
def test_the_interval_holds_eta_nineteen_times_in_twenty(eta: float) -> None:
    held = 0
    for seed in range(200):
        low, high = fit_propensities(draw(power(eta), 100, seed)).interval
        held += low <= eta <= high
    assert 180 <= held <= 199


def test_without_coins_eta_is_that_of_the_prior() -> None:
    nothing = np.zeros(0, np.int64)
    found = fit_propensities(Coins(nothing, nothing > 0, nothing > 0, nothing))
    assert found.eta == 1
    assert found.interval[0] < 0 < 2 < found.interval[1]
    np.testing.assert_allclose(found.of(np.arange(5)), 1 / np.arange(1, 6))


def test_clicks_of_one_person_are_no_evidence_of_many() -> None:
    """Each of 900 people says the same 20 times: as much as once."""
    once = draw(power(1.0), 100, 5)
    rows = np.repeat(np.arange(900), 20)
    often = Coins(once.place[rows], once.upper[rows], once.lower[rows], once.person[rows])
    strangers = Coins(often.place, often.upper, often.lower, np.arange(18_000))
    widths = [np.ptp(fit_propensities(coins).interval) for coins in (once, often, strangers)]
    assert widths[1] == pytest.approx(widths[0], rel=0.1)
    assert widths[2] < widths[0] / 4


@pytest.mark.parametrize("eta", [0.0, 1.0, 2.0])
def test_eta_is_recovered_from_people_who_click_by_place(eta: float) -> None:
    """Documents are as relevant as they like, 0.9 included, where lists with two clicks are common."""
    relevance = np.random.default_rng(1).choice([0.1, 0.4, 0.9], (40, 10))
    votes = join(*simulate(6000, lambda k: k**-eta, relevance, 2))
    found = fit_propensities(votes.coins)
    low, high = found.interval
    assert low <= eta <= high
    assert high - low < 0.7


def test_one_account_does_not_decide_eta() -> None:
    """It clicks as often as all others together, always the lower place."""
    relevance = np.random.default_rng(1).choice([0.1, 0.4, 0.9], (40, 10))
    lists, events = simulate(4000, lambda k: 1 / k, relevance, 2)
    clean = fit_propensities(join(lists, events).coins)
    for i in range(1500):
        at = 600.0 * i
        lists.append(listing(f"spam{i}", ["x", "y"], f"query {i}", at, "spam", pair=0))
        events.append(click(f"spam{i}", "y", at + 1, "spam"))
    assert fit_propensities(join(lists, events).coins).eta == pytest.approx(clean.eta, abs=0.15)


def test_free_ratios_follow_another_curve_where_clicks_suffice() -> None:
    curve = np.array(CURVE)
    many = fit_propensities(draw(curve[:-1] / curve[1:], 20_000, 4))
    np.testing.assert_allclose(many.of(np.arange(10)), curve / curve[0], rtol=0.1)
    assert many.spread > 0.05
    few = fit_propensities(draw(curve[:-1] / curve[1:], 3, 4))
    np.testing.assert_allclose(few.of([0, 1, 3]), [1, 0.5**few.eta, 0.25**few.eta], rtol=0.25)


def test_free_ratios_stay_near_the_law_that_made_the_clicks() -> None:
    errors = []
    for seed in range(20):
        found = fit_propensities(draw(power(1.0), 300, seed))
        p = found.of(np.arange(10))
        assert (np.diff(p) <= 0).all()
        errors.append(np.abs(np.log(p * np.arange(1, 11))).max())
    assert np.mean(errors) < 0.3


def test_p_never_rises_even_where_clicks_say_so() -> None:
    found = fit_propensities(draw(np.array([0.2, 3.0, 0.2]), 500, 1))
    assert (np.diff(found.of(np.arange(50))) <= 0).all()


def test_p_of_a_power() -> None:
    np.testing.assert_allclose(Propensities.of_power(2.0).of([0, 1, 9]), [1, 0.25, 0.01])
    np.testing.assert_array_equal(Propensities.of_power(0.0).of([0, 7]), [1, 1])
    assert len(Propensities.of_power(1.0).of([])) == 0
