"""How relevant a clicked document is to a query: weights of judgements.

Σ runs over the votes on a document for a query; c is 1 for a click.

    mixture  γ Σ c, γ how likely the document answers the query, given its votes: see `mixture`
    naive    Σ c

So weights are numbers of clicks: what many people chose for a query outweighs what one did. γ is scaled so that
its squares over a query sum to 1 on average. A document counts as relevant if it was clicked.

Where only clicks are known, not what was shown, nothing tells how likely a place was looked at, and both rules are Σ c.
Such clicks are added to those that have a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fullrank.storage.encoding import Float64, Int64
from fullrank_trainer.clicks.join import Bool, Votes
from fullrank_trainer.clicks.mixture import Clicked, Mixture, Propensities, fit_mixture

Rule = Literal["mixture", "naive"]
DEFAULT: Rule = "mixture"

MIN_WEIGHT = 0.5
"""Least γ, where a query has 1 on average. Most judgements below it are clicks by mistake, and
those cost more than the others gain (chosen on the validation queries of the simulation in docs/results/clicks.md)."""
MAX_INVERSE = 10.0
"""A judgement that measures counts at most so often because it was unlikely to be noticed."""
SATISFIED_S = 30.0
"""A document that was looked at for so long counts as a whole click, if dwell time counts."""


@dataclass(frozen=True, eq=False)
class Judged:
    """Documents that are relevant to queries. All arrays have one row a pair, by query and document.

    Attributes:
        query, document: int64, places in them.
        weight: float64, above zero.
        people: int64, how many clicked.
    """

    queries: Sequence[str]
    documents: Sequence[str]
    query: Int64
    document: Int64
    weight: Float64
    people: Int64

    def __len__(self) -> int:
        return len(self.query)

    def take(self, rows: Bool) -> Judged:
        arrays = ("query", "document", "weight", "people")
        return replace(self, **{name: getattr(self, name)[rows] for name in arrays})


def weigh(
    votes: Votes,
    propensities: Propensities,
    rule: Rule = DEFAULT,
    *,
    mixture: Mixture | None = None,
    measures: bool = False,
    position_1: bool = False,
    dwell: bool = False,
    least: float = 0.0,
) -> Judged:
    """Weigh judgements.

    Args:
        mixture: of all splits; None: fitted to these votes.
        measures: γ Σ c, unscaled, is divided by how likely a document that answers would have been clicked at all in
            the places it had. A mean over clicks is then what it would be if people looked at every place alike.
        position_1: the rule of the papers for advertisements: only the first place counts, and only in lists that were
            clicked anywhere. Its documents were looked at for certain, so p_k is 1.
        dwell: a click on a document that was left within 30 s counts in proportion; one without a dwell time is whole.
        least: judgements with a smaller γ, scaled, are left out.
    """
    every = votes
    votes, c = clicks_of(votes.take(votes.is_listed), position_1=position_1, dwell=dwell)
    counted = Clicked.of(votes, c)
    clicks = counted.total(counted.clicks)
    is_relevant = clicks > 0
    if rule == "naive":
        judged = _judged(votes, counted, clicks, is_relevant)
    else:
        mixture = mixture or fit_mixture(counted, propensities)
        judged = _judged(votes, counted, mixture.posterior(counted), is_relevant)
        scaled = _scaled(judged.weight, judged.query)
        weight = scaled * clicks[is_relevant]
        if measures:
            noticed = np.maximum(mixture.noticed(counted)[is_relevant], 1 / MAX_INVERSE)
            weight = judged.weight * clicks[is_relevant] / noticed
        judged = replace(judged, weight=weight).take(scaled >= least)
    if every.is_listed.all():
        return judged
    _, c = clicks_of(every, dwell=dwell)
    counted = Clicked.of(every, c)
    weight = np.zeros(len(counted.pairs))
    np.add.at(weight, counted.of_votes, c * ~every.is_listed)
    keys = judged.query * max(1, len(every.documents)) + judged.document
    weight[np.searchsorted(counted.pairs, keys)] += judged.weight
    return _judged(every, counted, weight, weight > 0)


def has_only_clicks(votes: Votes) -> bool:
    """Return whether the votes tell nothing of documents that were shown and not clicked."""
    return not votes.is_listed.any()


def clicks_of(
    votes: Votes, *, position_1: bool = False, dwell: bool = False
) -> tuple[Votes, Float64]:
    """Return the votes that count, and the clicks of each: 0 or 1, and shares of 1 if dwell time counts."""
    if position_1:
        clicked_lists = np.unique(votes.shown[votes.clicked])
        votes = votes.take((votes.place == 0) & np.isin(votes.shown, clicked_lists))
    c = votes.clicked.astype(np.float64)
    if dwell:
        seconds = np.where(np.isnan(votes.dwell_s), SATISFIED_S, votes.dwell_s)
        c *= np.clip(seconds / SATISFIED_S, 0, 1)
    return votes, c


def _judged(votes: Votes, counted: Clicked, weight: Float64, chosen: Bool) -> Judged:
    people = _people(counted.of_votes, votes.person, votes.clicked, len(counted.pairs))
    query, document = np.divmod(counted.pairs, max(1, len(votes.documents)))
    return Judged(votes.queries, votes.documents, query, document, weight, people).take(chosen)


def _people(at: Int64, person: Int64, clicked: Bool, pairs: int) -> Int64:
    """Return how many people clicked each pair.

    Anybody can search without a name, so where people are named, all others together are one.
    """
    if not len(at):
        return np.zeros(0, np.int64)
    if (person >= 0).any():
        person = np.maximum(person, -1)
    person = person - person.min()
    span = int(person.max()) + 1
    found = np.unique(at[clicked] * span + person[clicked])
    return np.bincount(found // span, minlength=pairs).astype(np.int64)


def _scaled(weight: Float64, query: Int64) -> Float64:
    if not len(weight):
        return weight
    squares = np.bincount(query, weight**2)
    scaled: Float64 = weight / np.sqrt(squares[squares > 0].mean())
    return scaled
