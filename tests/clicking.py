"""Simulated people who look at places and click, and lists to join."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import compress, product

import numpy as np

from fullrank.events.records import Event, ServedList
from fullrank_trainer.clicks.join import Votes
from fullrank_trainer.clicks.mixture import Mixture

MONDAY = 1_795_392_000.0  # 2026-11-23, midnight in UTC


def listing(
    query_id: str,
    ids: Sequence[str],
    text: str = "red shoes",
    at: float = 0.0,
    user: str | None = "ann",
    **more: object,
) -> ServedList:
    """Make a served list, ``at`` seconds after midnight."""
    texts = {} if user is None else {"user_id": user}
    return ServedList(query_id, MONDAY + at, text, list(ids), texts=texts, **more)  # type: ignore[arg-type]


def click(
    query_id: str | None,
    document: str | None,
    at: float = 1.0,
    user: str | None = "ann",
    action: str = "click",
    dwell_ms: float | None = None,
    is_bot: bool = False,
) -> Event:
    """Make an event, ``at`` seconds after midnight."""
    texts = {} if query_id is None else {"query_id": query_id}
    if user is not None:
        texts["user_id"] = user
    return Event(action, MONDAY + at, texts, document, dwell_ms, is_bot)


def simulate(
    sessions: int,
    p: Callable[[int], float],
    relevance: np.ndarray,
    seed: int,
    coin: float = 1.0,
    people: int = 500,
) -> tuple[list[ServedList], list[Event]]:
    """Let people click by the position-based model: the place is looked at and the document is relevant.

    Args:
        sessions: number of lists.
        p: how likely a place, from 1, is looked at.
        relevance: (queries, documents), in the order in which they are shown without a coin.
        seed: of the random numbers.
        coin: share of the lists with a coin, at a random place.
        people: number of people.
    """
    rng = np.random.default_rng(seed)
    queries, shown = relevance.shape
    looked_at = np.array([p(k) for k in range(1, shown + 1)])
    lists, events = [], []
    for session in range(sessions):
        query = int(rng.integers(queries))
        order = np.arange(shown)
        pair, swapped = None, False
        if rng.random() < coin:
            pair, swapped = int(rng.integers(shown - 1)), bool(rng.random() < 0.5)
            if swapped:
                order[[pair, pair + 1]] = order[[pair + 1, pair]]
        user, at = f"u{rng.integers(people)}", 60.0 * session
        ids = [f"d{query}-{d}" for d in order]
        name = f"s{session}"
        lists.append(listing(name, ids, f"query {query}", at, user, pair=pair, swapped=swapped))
        clicked = rng.random(shown) < looked_at * relevance[query, order]
        events += [click(name, ids[k], at + 1, user) for k in np.flatnonzero(clicked)]
    return lists, events


def gamma_by_hand(votes: Votes, mixture: Mixture) -> dict[tuple[str, str], float]:
    return answers_by_hand(votes, mixture)[0]


def answers_by_hand(
    votes: Votes, mixture: Mixture
) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
    """Sum over all sets of documents that may answer a query, vote by vote. Places beyond the fit are its last.

    Returns:
        How likely each document answers its query, and how likely each query has one answer at most.
    """
    last = len(mixture.epsilon) - 1
    text = text_groups(votes)
    best: dict[tuple[str, str], int] = {}
    right: dict[tuple[str, str], float] = {}
    wrong: dict[tuple[str, str], float] = {}
    rows = zip(votes.query, votes.document, votes.place, votes.clicked, strict=True)
    for q, d, place, clicked in rows:
        pair = votes.queries[q], votes.documents[d]
        p = mixture.propensities.of([place])[0]
        for of, share in ((right, mixture.alpha), (wrong, mixture.epsilon[min(place, last)])):
            of[pair] = of.get(pair, 1.0) * (share * p if clicked else 1 - share * p)
        best[pair] = min(int(place), best.get(pair, last))
    found: dict[tuple[str, str], float] = {}
    of_one: dict[str, float] = {}
    for query in {query for query, _ in best}:
        shown = [pair for pair in best if pair[0] == query]
        odds = [float(mixture.odds[text[pair], best[pair]]) for pair in shown]
        priors = [float(mixture.prior[text[pair], best[pair]]) for pair in shown]
        answering = dict.fromkeys(shown, 0.0)
        one = many = 0.0
        for chosen in product((False, True), repeat=len(shown)):
            likely = math.prod(
                (right if answers else wrong)[pair]
                for pair, answers in zip(shown, chosen, strict=True)
            )
            in_many = likely * math.prod(
                prior if answers else 1 - prior
                for prior, answers in zip(priors, chosen, strict=True)
            )
            in_one = 0.0
            if sum(chosen) <= 1:
                in_one = likely * math.prod(compress(odds, chosen)) / (1 + sum(odds))
            in_one, in_many = mixture.one_answer * in_one, (1 - mixture.one_answer) * in_many
            one, many = one + in_one, many + in_many
            for pair in compress(shown, chosen):
                answering[pair] += in_one + in_many
        found |= {pair: value / (one + many) for pair, value in answering.items()}
        of_one[query] = one / (one + many)
    return found, of_one


def text_groups(votes: Votes) -> dict[tuple[str, str], int]:
    """The group by text of each query and document: unknown, the first, the next two, the next seven, the rest."""
    ranks = np.full(len(votes), -1) if votes.text_rank is None else votes.text_rank
    return {
        (votes.queries[q], votes.documents[d]): sum(rank >= first for first in (0, 1, 3, 10))
        for q, d, rank in zip(votes.query, votes.document, ranks.tolist(), strict=True)
    }
