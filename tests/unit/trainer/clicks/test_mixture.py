"""Clicks of documents that answer and of documents that do not, against sums in plain Python and a simulation."""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from fullrank_trainer.clicks.join import Votes, join
from fullrank_trainer.clicks.mixture import TEXTS, Clicked, Mixture, Propensities, fit_mixture
from tests.clicking import answers_by_hand, click, gamma_by_hand, listing, text_groups

ETA_1 = Propensities.of_power(1.0)
ALPHA, EPSILON = 0.7, 0.06


def simulated(
    other: Callable[[int], float] = lambda k: EPSILON,
    seed: int = 1,
    queries: int = 300,
    shown: int = 10,
    answers: int = 1,
    people: int = 10,
) -> tuple[Votes, set[tuple[str, str]]]:
    """Ten or other people search each query; some documents answer it. Return the votes and what answers."""
    rng = np.random.default_rng(seed)
    lists, events, found = [], [], set()
    for query in range(queries):
        right = {min(shown - 1, int(rng.geometric(0.3)) - 1) for _ in range(answers)}
        found |= {(f"query {query}", f"d{place}") for place in right}
        for user in range(people):
            id = f"{query}-{user}"
            ids = [f"d{i}" for i in range(shown)]
            lists.append(listing(id, ids, f"query {query}", user=f"u{id}"))
            for place in range(shown):
                share = ALPHA if place in right else other(place + 1)
                if rng.random() < share / (place + 1):
                    events.append(click(id, f"d{place}", user=f"u{id}"))
    return join(lists, events), found


def a_mixture(places: int, one_answer: float = 0.6) -> Mixture:
    """A mixture whose parameters are all different."""
    prior, odds = (
        np.linspace(best, worst, TEXTS * places).reshape(TEXTS, places)
        for best, worst in ((0.4, 0.05), (0.9, 0.02))
    )
    return Mixture(0.6, np.linspace(0.1, 0.02, places), prior, odds, one_answer, ETA_1)


def with_text_ranks(votes: Votes, ranks: Sequence[int]) -> Votes:
    """Rank each document by its text, in every query alike."""
    return replace(votes, text_rank=np.array(ranks, np.int64)[votes.document])


def hash_of(pair: tuple[str, str]) -> int:
    """A number that is the same in every process."""
    return zlib.crc32(" ".join(pair).encode())


def counts(votes: Votes) -> Clicked:
    return Clicked.of(votes, votes.clicked.astype(np.float64))


def named(votes: Votes, counted: Clicked) -> list[tuple[str, str]]:
    query, document = np.divmod(counted.pairs, len(votes.documents))
    return [
        (votes.queries[q], votes.documents[d])
        for q, d in zip(query.tolist(), document.tolist(), strict=True)
    ]


@pytest.mark.parametrize("one_answer", [0.0, 0.6, 1.0])
def test_the_posterior_is_bayes_rule(one_answer: float) -> None:
    votes, _ = simulated(queries=8, answers=2)
    votes = with_text_ranks(votes, [-1, 0, 1, 2, 3, 9, 10, 500, 0, 40])
    counted = counts(votes)
    mixture = a_mixture(8, one_answer)
    found = dict(zip(named(votes, counted), mixture.posterior(counted), strict=True))
    assert found == pytest.approx(gamma_by_hand(votes, mixture), rel=1e-6, abs=1e-8)


def test_an_answer_takes_clicks_of_others_for_mistakes() -> None:
    """Where queries have one answer, a click on b says less once everybody clicked a."""
    lists = [listing(f"l{i}", "ab", user=f"u{i}") for i in range(6)]
    events = [click(f"l{i}", "a", user=f"u{i}") for i in range(1, 6)]
    events.append(click("l0", "b", user="u0"))
    counted = counts(join(lists, events))
    alone, free = (
        a_mixture(2, one_answer).posterior(counted)[1].item() for one_answer in (1.0, 0.0)
    )
    assert alone < 0.01 < 0.1 < free


@pytest.mark.parametrize("answers", [1, 2, 4])
def test_a_fit_tells_whether_queries_have_one_answer(answers: int) -> None:
    votes, right = simulated(queries=600, answers=answers)
    counted = counts(votes)
    mixture = fit_mixture(counted, ETA_1)
    assert mixture.one_answer > 0.8 if answers == 1 else mixture.one_answer < 0.1
    gamma = mixture.posterior(counted)
    is_right = np.array([pair in right for pair in named(votes, counted)])
    sure = gamma > 0.5
    assert sure.sum() > 0.6 * is_right.sum()
    assert is_right[sure].mean() == pytest.approx(gamma[sure].mean(), abs=0.03)


def test_a_fit_finds_how_people_click_and_says_how_sure_it_is() -> None:
    votes, answers = simulated()
    counted = counts(votes)
    mixture = fit_mixture(counted, ETA_1)
    assert mixture.alpha == pytest.approx(ALPHA, abs=0.05)
    assert mixture.epsilon == pytest.approx(np.full(10, EPSILON), abs=0.03)
    gamma = mixture.posterior(counted)
    is_right = np.array([pair in answers for pair in named(votes, counted)])
    for low, high in ((0.0, 0.1), (0.1, 0.5), (0.5, 0.9), (0.9, 1.0)):
        rows = (gamma >= low) & (gamma <= high)
        error = math.sqrt((gamma[rows] * (1 - gamma[rows])).sum()) / rows.sum()
        assert abs(is_right[rows].mean() - gamma[rows].mean()) < 4 * error + 0.02


def test_a_fit_expects_as_many_answers_as_there_are() -> None:
    """Of few queries it expects fewer, because of the documents at the mean that are added."""
    votes, answers = simulated(queries=1200)
    counted = counts(votes)
    gamma = fit_mixture(counted, ETA_1).posterior(counted)
    assert gamma.sum() / len(answers) == pytest.approx(1, abs=0.1)


def test_a_fit_is_a_fixed_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of the M step, in plain Python, give the parameters back."""
    monkeypatch.setattr("fullrank_trainer.clicks.mixture._TOLERANCE", 1e-7)
    monkeypatch.setattr("fullrank_trainer.clicks.mixture._STEPS", 5000)
    shown = 5
    votes, _ = simulated(queries=100, shown=shown)
    votes = with_text_ranks(votes, [0, 2, 2, 20, -1])
    mixture = fit_mixture(counts(votes), ETA_1)
    gamma, of_one = answers_by_hand(votes, mixture)
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
    wanted = [(mistaken[k] + 50 * mean) / (seen[k] + 50) for k in range(shown)]
    assert mixture.epsilon == pytest.approx(wanted, abs=1e-3)
    mean = sum(gamma.values()) / len(gamma)
    one = gamma_by_hand(votes, replace(mixture, one_answer=1.0))
    many = gamma_by_hand(votes, replace(mixture, one_answer=0.0))
    share_of_one = (sum(of_one.values()) + 0.5 * 10) / (len(of_one) + 10)
    assert mixture.one_answer == pytest.approx(share_of_one, abs=1e-3)
    # Every query has the same documents at the same places.
    groups = text_groups(votes)
    group = [groups["query 0", f"d{k}"] for k in range(shown)]
    total = 1 + mixture.odds[group, range(shown)].sum()
    for k in range(shown):
        at = [(of_one[q], one[q, d], many[q, d]) for q, d in gamma if d == f"d{k}"]
        prior = (sum((1 - r) * g for r, _, g in at) + 5 * mean) / (sum(1 - r for r, *_ in at) + 5)
        odds = (sum(r * g for r, g, _ in at) + 5 * mean) / (sum(r / total for r, *_ in at) + 5)
        assert mixture.prior[group[k], k] == pytest.approx(prior, abs=1e-3)
        assert mixture.odds[group[k], k] == pytest.approx(odds, abs=1e-3)


def test_a_text_that_fits_says_which_click_was_a_mistake() -> None:
    """Few clicks, and a rank by text that is mostly right: the fit finds out how much the rank tells."""
    votes, right = simulated(lambda k: 0.2, queries=2000, shown=5, people=2)
    pairs = [
        (votes.queries[q], votes.documents[d])
        for q, d in zip(votes.query, votes.document, strict=True)
    ]
    is_first = np.array([(pair in right) == (hash_of(pair) % 10 > 0) for pair in pairs])
    precision = []
    for known in (votes, replace(votes, text_rank=np.where(is_first, 0, 50))):
        counted = counts(known)
        gamma = fit_mixture(counted, ETA_1).posterior(counted)
        is_right = np.array([pair in right for pair in named(known, counted)])
        was_clicked = counted.total(counted.clicks) > 0
        surest = np.argsort(-gamma)[: (is_right & was_clicked).sum()]
        precision.append(is_right[surest].mean())
    assert precision[1] > precision[0] + 0.2


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
    mixture = a_mixture(2)
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
