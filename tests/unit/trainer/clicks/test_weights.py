"""Weights, propensities and mixtures of clicks, against the formulas in plain Python."""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from fullrank_trainer.clicks.join import Coins, Votes, join
from fullrank_trainer.clicks.mixture import (
    TEXTS,
    Clicked,
    Mixture,
    Propensities,
    fit_mixture,
    fit_propensities,
)
from fullrank_trainer.clicks.weights import Judged, Rule, weigh
from tests.clicking import answers_by_hand, click, gamma_by_hand, listing, simulate, text_groups

ETA_1 = Propensities.of_power(1.0)


def weights(judged: Judged) -> dict[tuple[str, str], float]:
    columns = judged.query.tolist(), judged.document.tolist(), judged.weight.tolist()
    return {
        (judged.queries[q], judged.documents[d]): weight
        for q, d, weight in zip(*columns, strict=True)
    }


def count_clicks(votes: Votes) -> dict[tuple[str, str], float]:
    """Count in plain Python."""
    clicks: dict[tuple[str, str], float] = defaultdict(float)
    for q, d, clicked in zip(votes.query, votes.document, votes.clicked, strict=True):
        if clicked:
            clicks[votes.queries[q], votes.documents[d]] += 1
    return clicks


@pytest.fixture(scope="module")
def votes() -> Votes:
    relevance = np.random.default_rng(1).choice([0.05, 0.3, 0.9], (30, 10))
    return join(*simulate(800, lambda k: 1 / k, relevance, 2))


def test_the_naive_rule_counts_clicks(votes: Votes) -> None:
    assert weights(weigh(votes, ETA_1, "naive")) == count_clicks(votes)


def in_clicks(sure: dict[tuple[str, str], float], votes: Votes) -> dict[tuple[str, str], float]:
    """Scale how sure judgements are, so that the squares of a query sum to 1 on average, times their clicks."""
    squares: dict[str, float] = defaultdict(float)
    for (query, _), value in sure.items():
        squares[query] += value**2
    scale = float(np.mean([*squares.values()])) ** 0.5
    clicks = count_clicks(votes)
    return {pair: value / scale * clicks[pair] for pair, value in sure.items()}


def test_the_mixture_counts_the_clicks_that_answer(votes: Votes) -> None:
    mixture = fit_mixture(Clicked.of(votes, votes.clicked.astype(np.float64)), ETA_1)
    gamma = gamma_by_hand(votes, mixture)
    clicks = count_clicks(votes)
    wanted = in_clicks({pair: gamma[pair] for pair in clicks}, votes)
    assert weights(weigh(votes, ETA_1)) == pytest.approx(wanted, rel=1e-6, abs=1e-9)


def test_the_mixture_ranks_what_answers_first_where_counts_do_not() -> None:
    """The documents that answer least are shown first, so they get the most clicks."""
    relevance = np.tile([0.2, 0.3, 0.4, 0.6, 0.8], (4, 1))
    votes = join(*simulate(8000, lambda k: 1 / k, relevance, 3, coin=0.0))

    def order(rule: Rule) -> list[int]:
        total = np.zeros(5)
        for (_, document), weight in weights(weigh(votes, ETA_1, rule)).items():
            total[int(document.split("-")[1])] += weight
        return np.argsort(-total).tolist()

    assert order("mixture")[:3] == [4, 3, 2]
    assert order("naive")[0] == 0


def test_position_1_keeps_the_first_place_of_lists_that_were_clicked() -> None:
    lists = [
        listing("l1", "ab", user="ann"),
        listing("l2", "ab", user="bob"),
        listing("l3", "ab", user="kim"),  # no click
        listing("l4", "yz", "boots", offset=10, user="ann"),  # the second page
        listing("l5", "cd", "boots", user="bob"),
    ]
    clicks = [click("l1", "a"), click("l2", "b"), click("l4", "y"), click("l5", "c")]
    votes = join(lists, clicks)
    counted = weigh(votes, Propensities.of_power(3), "naive", position_1=True)
    assert weights(counted) == {("red shoes", "a"): 1, ("boots", "c"): 1}
    assert weights(weigh(votes, ETA_1, position_1=True)).keys() == weights(counted).keys()


def test_where_people_are_named_all_others_are_one() -> None:
    """Anybody can search twice without a name."""
    lists = [listing(f"l{i}", "ab", user=None) for i in range(3)]
    clicks = [click(f"l{i}", "a", user=None) for i in range(3)]
    alone = weigh(join(lists, clicks), Propensities.of_power(1), "naive")
    assert alone.people.tolist() == [3]
    named = [listing("l9", "ab", user="ann"), listing("l8", "ab", user="bob")]
    more = [click("l9", "b", user="ann"), click("l8", "b", user="bob")]
    found = weigh(join(lists + named, clicks + more), Propensities.of_power(1), "naive")
    assert found.people.tolist() == [1, 2]


def test_dwell_counts_only_if_asked() -> None:
    lists = [listing("l1", "abcd")]
    clicks = [click("l1", "a", dwell_ms=3000), click("l1", "b"), click("l1", "c", dwell_ms=90_000)]
    votes = join(lists, clicks)
    plain = weigh(votes, Propensities.of_power(0), "naive").weight
    np.testing.assert_allclose(plain, 1)
    dwelt = weigh(votes, Propensities.of_power(0), "naive", dwell=True).weight
    np.testing.assert_allclose(dwelt / dwelt[1], [0.1, 1, 1])


def test_people_are_counted_once_whatever_they_click() -> None:
    lists = [listing(f"l{i}", "ab", at=i * 90_000) for i in range(3)]
    lists.append(listing("l9", "ab", user="bob"))
    clicks = [click(f"l{i}", "a", i * 90_000) for i in range(3)]
    judged = weigh(
        join(lists, [*clicks, click("l9", "a"), click("l9", "b")]),
        Propensities.of_power(0),
        "naive",
    )
    assert judged.people.tolist() == [2, 1]


def test_a_click_by_mistake_weighs_less_than_clicks_of_many() -> None:
    """Nine people see both documents; all click the first, one the second, far down."""
    lists = [listing(f"l{i}", [f"d{k}" for k in range(10)], user=f"u{i}") for i in range(9)]
    clicks = [click(f"l{i}", "d0", user=f"u{i}") for i in range(9)]
    votes = join(lists, [*clicks, click("l3", "d9", user="u3")])
    judged = weigh(votes, Propensities.of_power(1))
    right, mistaken = judged.weight
    assert right > 2 * mistaken


@pytest.mark.parametrize("rule", get_args(Rule))
def test_a_log_of_clicks_alone_counts_them_by_every_rule(rule: Rule) -> None:
    """Nothing was passed over, so places and mistakes cannot be told."""
    asked = {"a": 3, "b": 1}
    lists = [
        listing(f"{d}{i}", d, at=i * 90_000, offset=4 * i) for d in asked for i in range(asked[d])
    ]
    votes = join(lists, [click(f"{d}{i}", d, i * 90_000) for d in asked for i in range(asked[d])])
    judged = weigh(votes, Propensities.of_power(1), rule, least=0.5)
    assert sorted(judged.weight.tolist()) == [1, 3]


@pytest.mark.parametrize("rule", get_args(Rule))
def test_clicks_without_their_lists_are_added_as_counts(rule: Rule) -> None:
    """An import beside a log of lists, which alone tell how people click."""
    relevance = np.random.default_rng(1).choice([0.05, 0.3, 0.9], (30, 10))
    lists, events = simulate(800, lambda k: 1 / k, relevance, 2)
    alone = join(lists, events)
    imported = {("query 0", "d0-3"): 7, ("query 0", "d0-9"): 1, ("new", "x"): 5}
    for (query, document), count in imported.items():
        for n in range(count):
            id = f"{query} {document} {n}"
            served = listing(id, [document], query, user=None, offset=9 * n, only_clicked=True)
            lists.append(served)
            events.append(click(id, document, user=None))
    wanted = weights(weigh(alone, ETA_1, rule))
    for pair, count in imported.items():
        wanted[pair] = wanted.get(pair, 0.0) + count
    found = weights(weigh(join(lists, events), ETA_1, rule))
    assert found == pytest.approx(wanted)


def test_no_votes_weigh_nothing() -> None:
    for rule in get_args(Rule):
        assert len(weigh(join([], []), Propensities.of_power(1), rule)) == 0


def test_judgements_below_the_least_weight_are_left_out(votes: Votes) -> None:
    whole = weights(weigh(votes, ETA_1))
    sure = weights(weigh(votes, ETA_1, least=0.5))
    clicks = count_clicks(votes)
    assert sure == {pair: weight for pair, weight in whole.items() if weight / clicks[pair] >= 0.5}
    assert 0 < len(sure) < len(whole)


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
