"""Clicks of documents that answer and of documents that do not, against sums in plain Python and a simulation."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest

from tests.clicking import click, gamma_by_hand, listing
from trainer.clicks.join import Votes, join
from trainer.clicks.mixture import Clicked, Mixture, fit_mixture
from trainer.clicks.propensity import Propensities

ETA_1 = Propensities.of_power(1.0)
ALPHA, EPSILON = 0.7, 0.06


def simulated(
    other: Callable[[int], float] = lambda k: EPSILON, seed: int = 1, queries: int = 300
) -> tuple[Votes, set[tuple[str, str]]]:
    """Ten people search each query; one document of ten answers. Return the votes and what answers."""
    rng = np.random.default_rng(seed)
    lists, events, answers = [], [], set()
    for query in range(queries):
        right = min(9, int(rng.geometric(0.3)) - 1)
        answers.add((f"query {query}", f"d{right}"))
        for user in range(10):
            id = f"{query}-{user}"
            lists.append(listing(id, [f"d{i}" for i in range(10)], f"query {query}", user=f"u{id}"))
            for place in range(10):
                share = ALPHA if place == right else other(place + 1)
                if rng.random() < share / (place + 1):
                    events.append(click(id, f"d{place}", user=f"u{id}"))
    return join(lists, events), answers


def counts(votes: Votes) -> Clicked:
    return Clicked.of(votes, votes.clicked.astype(np.float64))


def named(votes: Votes, counted: Clicked) -> list[tuple[str, str]]:
    query, document = np.divmod(counted.pairs, len(votes.documents))
    return [
        (votes.queries[q], votes.documents[d])
        for q, d in zip(query.tolist(), document.tolist(), strict=True)
    ]


def test_the_posterior_is_bayes_rule() -> None:
    votes, _ = simulated(queries=20)
    counted = counts(votes)
    mixture = Mixture(0.6, np.linspace(0.1, 0.02, 8), np.linspace(0.4, 0.05, 8), ETA_1)
    found = dict(zip(named(votes, counted), mixture.posterior(counted), strict=True))
    assert found == pytest.approx(gamma_by_hand(votes, mixture))


def test_a_fit_finds_how_people_click_and_says_how_sure_it_is() -> None:
    votes, answers = simulated()
    counted = counts(votes)
    mixture = fit_mixture(counted, ETA_1)
    assert mixture.alpha == pytest.approx(ALPHA, abs=0.05)
    assert mixture.epsilon == pytest.approx(np.full(10, EPSILON), abs=0.03)
    assert mixture.prior.sum() == pytest.approx(1, abs=0.1)
    gamma = mixture.posterior(counted)
    is_right = np.array([pair in answers for pair in named(votes, counted)])
    for low, high in ((0.0, 0.1), (0.1, 0.5), (0.5, 0.9), (0.9, 1.0)):
        rows = (gamma >= low) & (gamma <= high)
        error = math.sqrt((gamma[rows] * (1 - gamma[rows])).sum()) / rows.sum()
        assert abs(is_right[rows].mean() - gamma[rows].mean()) < 4 * error + 0.02


def test_a_fit_is_a_fixed_point() -> None:
    """The sums of the M step, in plain Python, give the parameters back."""
    votes, _ = simulated(queries=100)
    mixture = fit_mixture(counts(votes), ETA_1)
    gamma = gamma_by_hand(votes, mixture)
    clicks, looks = 0.0, 0.0
    mistaken: dict[int, float] = defaultdict(float)
    seen: dict[int, float] = defaultdict(float)
    for q, d, place, clicked in zip(
        votes.query, votes.document, votes.place, votes.clicked, strict=True
    ):
        share, p = gamma[votes.queries[q], votes.documents[d]], 1 / (place + 1)
        clicks, looks = clicks + share * clicked, looks + share * p
        mistaken[place] += (1 - share) * clicked
        seen[place] += (1 - share) * p
    assert mixture.alpha == pytest.approx(clicks / looks, abs=1e-3)
    mean = (sum(mistaken.values()) + 50 * 0.05) / (sum(seen.values()) + 50)
    wanted = [(mistaken[k] + 50 * mean) / (seen[k] + 50) for k in range(10)]
    assert mixture.epsilon == pytest.approx(wanted, abs=1e-3)
    mean = sum(gamma.values()) / len(gamma)
    at = [[g for (_, d), g in gamma.items() if d == f"d{k}"] for k in range(10)]
    assert mixture.prior == pytest.approx(
        [(sum(found) + 5 * mean) / (len(found) + 5) for found in at], abs=1e-3
    )


def test_trust_in_the_first_places_is_no_answer() -> None:
    votes, answers = simulated(lambda k: 0.1 + 0.3 / k, queries=600)
    counted = counts(votes)
    mixture = fit_mixture(counted, ETA_1)
    assert mixture.epsilon[0] > 2 * mixture.epsilon[4:].mean()
    is_right = np.array([pair in answers for pair in named(votes, counted)])
    was_clicked = counted.total(counted.clicks) > 0
    sure = was_clicked & (mixture.posterior(counted) > 0.5)
    assert sure.sum() > 300
    assert is_right[sure].mean() > 1.5 * is_right[was_clicked].mean()


def test_noticed_is_the_chance_of_a_click() -> None:
    lists = [listing("l1", "ab", user="ann"), listing("l2", "ba", user="bob")]
    votes = join(lists, [click("l1", "a", user="ann")])
    counted = counts(votes)
    mixture = Mixture(0.6, np.full(2, 0.1), np.full(2, 0.3), ETA_1)
    assert mixture.noticed(counted) == pytest.approx([1 - 0.4 * 0.7] * 2)


def test_clicks_without_what_was_passed_over_all_count() -> None:
    lists = [listing(f"l{i}", "a", f"query {i}") for i in range(3)]
    votes = join(lists, [click(f"l{i}", "a") for i in range(3)])
    counted = counts(votes)
    assert fit_mixture(counted, ETA_1).posterior(counted) == pytest.approx([1, 1, 1])


def test_an_empty_log_has_no_pairs() -> None:
    votes = join([], [])
    counted = counts(votes)
    assert fit_mixture(counted, ETA_1).posterior(counted).shape == (0,)
