"""How relevant a clicked document is to a query: weights of judgements.

Σ runs over the votes on a document for a query: c is 1 for a click, p_k how likely its place was looked at.

    coec   r − m, r = (Σ c + a m) / (Σ p_k + a): clicks over expected clicks, shrunk to the mean m of all documents
    naive  Σ c
    ips    Σ c / max(p_k, 1/10)

A document counts as relevant if it was clicked; for coec also if r exceeds m. Subtracting m takes away what any
document would get in its place: clicks by mistake, and clicks out of trust in the first places.

a views weigh as much as the mean. If relevance has the variance τ² among the documents of a place, the best linear
estimate has a = m/τ² (Bühlmann 1967, for clicks as rare events). τ² comes from the products of the residuals
e = c − p_k m_k of different people who saw the same document, E[e e'] = p p' τ², with m_k the mean at place k. The best
linear estimate of documents that are either right or wrong has a small a, where one click by mistake far down outweighs
many clicks further up: a is 3 or more.
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

MIN_SHRINKAGE, MAX_SHRINKAGE = 3.0, 30.0
"""Range of a of coec."""
MIN_WEIGHT = 0.5
"""Least weight of coec in training, where a query has 1 on average. Many judgements below it are clicks by mistake, and
those cost more than the others gain (chosen on the validation queries of the simulation in docs/results/loop.md)."""
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
    shrinkage: float | None = None,
    position_1: bool = False,
    dwell: bool = False,
    scaled: bool = True,
    least: float = 0.0,
) -> Judged:
    """Weigh judgements.

    The weight takes the place of |P|^−½ in the loss of a query with |P| relevant documents. Counts of clicks differ by
    orders of magnitude between queries, so weights of naive and ips have unit norm in each query, as |P|^−½ has.
    Those of coec are comparable between queries and tell how sure a judgement is, so they only have it on average.

    Args:
        votes: of one split.
        propensities: p_k.
        rule: how clicks become weights.
        shrinkage: a of coec; None: estimated.
        position_1: the rule of the papers for advertisements: only the first place counts, and only in lists that were
            clicked anywhere. Its documents were looked at for certain, so p_k is 1.
        dwell: a click on a document that was left within 30 s counts in proportion; one without a dwell time is whole.
        least: judgements with less weight are left out.
        scaled: False leaves the sums of naive and ips as they are, so that a mean over clicks is a mean over queries.

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
        a = shrinkage_of(votes.place, at, c, p, mean) if shrinkage is None else shrinkage
        weight = (clicks + a * mean) / (views + a)
        # A log that has only what was clicked, not what was shown, has no mean to exceed.
        if not votes.clicked.all():
            # r is a share: propensities that fall too fast must not let the last places outweigh the first.
            weight = np.minimum(weight, 1.0) - mean
        is_relevant &= weight > 0
    elif rule == "ips":
        weight = np.bincount(at, c / np.maximum(p, 1 / MAX_IPS), len(pairs))
    else:
        weight = clicks
    query, document = np.divmod(pairs[is_relevant], max(1, len(votes.documents)))
    weight, people = weight[is_relevant], people[is_relevant]
    if scaled:
        weight = _scaled(weight, query, each=rule != "coec")
    sure = weight >= least
    return Judged(
        votes.queries, votes.documents, query[sure], document[sure], weight[sure], people[sure]
    )


def shrinkage_of(place: Int64, pair: Int64, c: Float64, p: Float64, mean: float) -> float:
    """Estimate a = m/τ².

    Args:
        place, pair: int64, of each vote: its place, and a number of its query and document.
        c, p: of each vote.
        mean: m.
    """
    at_place = np.bincount(place, p)
    shares = np.bincount(place, c) / np.maximum(at_place, 1e-12)
    e = c - p * shares[place]
    products = float((np.bincount(pair, e) ** 2).sum() - (e**2).sum())
    scale = float((np.bincount(pair, p) ** 2).sum() - (p**2).sum())
    if products <= 0 or scale <= 0:  # no document was seen by two people, or all are alike
        return MAX_SHRINKAGE if scale > 0 else MIN_SHRINKAGE
    return float(np.clip(mean * scale / products, MIN_SHRINKAGE, MAX_SHRINKAGE))


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
