"""How relevant a clicked document is to a query: weights of judgements.

Σ runs over the votes on a document for a query: c is 1 for a click, p_k how likely its place was looked at.

    coec   (Σ c + a m) / (Σ p_k + a): clicks over expected clicks, shrunk to the mean m of all documents by a views
    naive  Σ c
    ips    Σ c / max(p_k, 1/10)

A document counts as relevant if it was clicked; for coec also more than m, the mean of the documents that were shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from fullrank.encoding import Float64, Int64
from trainer.clicks.join import Votes
from trainer.clicks.propensity import Propensities

Rule = Literal["coec", "naive", "ips"]
RULES: tuple[Rule, ...] = get_args(Rule)

SHRINKAGE = 1.0
"""a of coec: so many views of the first place weigh as much as the mean."""
MAX_IPS = 10.0
SATISFIED_S = 30.0
"""A document that was looked at for so long counts as a whole click, if dwell time counts."""


@dataclass(frozen=True, eq=False)
class Judged:
    """Documents that are relevant to queries. All arrays have one row a pair, by query and document.

    Attributes:
        queries, documents: names, as in Votes.
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


def weigh(
    votes: Votes,
    propensities: Propensities,
    rule: Rule = "coec",
    *,
    shrinkage: float = SHRINKAGE,
    position_1: bool = False,
    dwell: bool = False,
) -> Judged:
    """Weigh judgements.

    The weight takes the place of |P|^−½ in the loss of a query with |P| relevant documents. Counts of clicks differ by
    orders of magnitude between queries, so weights of naive and ips have unit norm in each query, as |P|^−½ has.
    Those of coec are comparable between queries and tell how sure a judgement is, so they only have it on average.

    Args:
        votes: of one split.
        propensities: p_k.
        rule: how clicks become weights.
        shrinkage: a of coec.
        position_1: the rule of the papers for advertisements: only the first place counts, and only in lists that were
            clicked anywhere. Its documents were looked at for certain, so p_k is 1.
        dwell: a click on a document that was left within 30 s counts in proportion; one without a dwell time is whole.

    Example:
        >>> judged = weigh(votes, fit_propensities(votes.coins))
    """
    if position_1:
        clicked_lists = np.unique(votes.shown[votes.clicked])
        votes = votes.take((votes.place == 0) & np.isin(votes.shown, clicked_lists))
    c = votes.clicked.astype(np.float64)
    if dwell:
        seconds = np.where(np.isnan(votes.dwell_s), SATISFIED_S, votes.dwell_s)
        c *= np.clip(seconds / SATISFIED_S, 0, 1)
    p = propensities.of(votes.place)
    keys = votes.query * max(1, len(votes.documents)) + votes.document
    pairs, at = np.unique(keys, return_inverse=True)
    clicks = np.bincount(at, c, len(pairs))
    people = _people(at, votes.person, votes.clicked, len(pairs))
    is_relevant = clicks > 0
    if rule == "coec":
        views = np.bincount(at, p, len(pairs))
        mean = float(clicks.sum() / views.sum()) if len(pairs) else 0.0
        weight = (clicks + shrinkage * mean) / (views + shrinkage)
        # A log without what was shown, only with what was clicked, has no mean to exceed.
        is_relevant &= (weight > mean) | bool(votes.clicked.all())
    elif rule == "ips":
        weight = np.bincount(at, c / np.maximum(p, 1 / MAX_IPS), len(pairs))
    else:
        weight = clicks
    query, document = np.divmod(pairs[is_relevant], max(1, len(votes.documents)))
    weight = _scaled(weight[is_relevant], query, each=rule != "coec")
    return Judged(votes.queries, votes.documents, query, document, weight, people[is_relevant])


def _people(at: Int64, person: Int64, clicked: np.ndarray, pairs: int) -> Int64:
    """Return how many people clicked each pair."""
    if not len(at):
        return np.zeros(0, np.int64)
    span = int(person.max()) + 1
    found = np.unique(at[clicked] * span + person[clicked])
    return np.bincount(found // span, minlength=pairs).astype(np.int64)


def _scaled(weight: Float64, query: Int64, *, each: bool) -> Float64:
    """Scale weights so that the squares of a query sum to 1, in each query or on average."""
    if not len(weight):
        return weight
    squares = np.bincount(query, weight**2)
    asked = squares > 0
    return weight / np.sqrt(squares[query] if each else squares[asked].mean())
