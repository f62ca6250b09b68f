"""Weights of judgements, against the formulas in plain Python."""

from __future__ import annotations

from collections import defaultdict
from typing import get_args

import numpy as np
import pytest

from fullrank_trainer.clicks.join import Votes, join
from fullrank_trainer.clicks.mixture import Clicked, Propensities, fit_mixture
from fullrank_trainer.clicks.weights import Judged, Rule, weigh
from tests.clicking import click, gamma_by_hand, listing, simulate

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
