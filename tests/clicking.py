"""Simulated people who look at places and click, and lists to join."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fullrank.events.lists import ServedList
from fullrank.events.records import Event
from trainer.clicks.join import Votes
from trainer.clicks.mixture import Mixture

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
    """How likely each document answers its query, by Bayes' rule, vote by vote; places beyond the fit are its last."""
    last = len(mixture.epsilon) - 1
    best: dict[tuple[str, str], int] = {}
    odds: dict[tuple[str, str], float] = {}
    rows = zip(votes.query, votes.document, votes.place, votes.clicked, strict=True)
    for q, d, place, clicked in rows:
        pair = votes.queries[q], votes.documents[d]
        p = mixture.propensities.of([place])[0]
        right, wrong = mixture.alpha * p, mixture.epsilon[min(place, last)] * p
        ratio = right / wrong if clicked else (1 - right) / (1 - wrong)
        odds[pair] = odds.get(pair, 1.0) * ratio
        best[pair] = min(int(place), best.get(pair, int(place)))
    found = {}
    for pair, ratio in odds.items():
        prior = mixture.prior[min(best[pair], last)]
        found[pair] = float(ratio * prior / (ratio * prior + 1 - prior))
    return found
