"""The evidence is a fair bet: it rarely grows between equal models, and grows fast between others."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from fullrank.experiment.decisions import LEVEL, Verdict, e_value, tally_of


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (3, 7), (40, 10), (25, 25)])
def test_it_is_the_integral(wins: int, losses: int) -> None:
    found, _ = quad(lambda t: (2 * t) ** wins * (2 * (1 - t)) ** losses, 0, 1)
    assert e_value(wins, losses) == pytest.approx(found)
    assert e_value(losses, wins) == pytest.approx(found)


def test_its_mean_under_a_fair_coin_is_one() -> None:
    # Over all outcomes of ten votes, each as likely as its number of orders.
    outcomes = [(w, np.prod(range(11 - w, 11)) / np.prod(range(1, w + 1))) for w in range(11)]
    assert sum(e_value(w, 10 - w) * ways / 1024 for w, ways in outcomes) == pytest.approx(1)


@pytest.mark.sweep
def test_equal_models_are_rarely_told_apart() -> None:
    rng = np.random.default_rng(1)
    decided = 0
    for _ in range(400):
        wins = np.cumsum(rng.random(3000) < 0.5)
        total = np.arange(1, 3001)
        decided += any(
            e_value(w, n - w) >= LEVEL for w, n in zip(wins[::7], total[::7], strict=True)
        )
    assert decided <= 20


def test_a_better_candidate_is_promoted_and_a_worse_one_stopped() -> None:
    assert tally_of(70, 30).verdict is Verdict.PROMOTE
    assert tally_of(30, 70).verdict is Verdict.STOP
    assert tally_of(55, 45).verdict is Verdict.OPEN
    assert tally_of(0, 0).verdict is Verdict.OPEN
    assert tally_of(100_000, 10).verdict is Verdict.PROMOTE
