"""Which documents answer a query: clicks as a mixture of documents that do and documents that do not.

    P(click on d at place k) = α p_k    if d answers the query
                               ε_k p_k  otherwise: by mistake, or out of trust in the first places

p_k is how likely place k is looked at (`propensity`). b is what is known of d before anybody clicked: the best place at
which it was shown for the query, and how it ranks by its text (`texts`). Queries are of two kinds:

    a share ρ has at most one answer: P(d) = o_b / (1 + Σ o), the sum over all documents shown for the query
    of the others, each document answers with probability π_b, whatever the others do

So where one document explains the clicks of a query, the others need more of them. EM fits all parameters. With l, the
likelihood of the votes on d if it answers over that if it does not, and r, how likely the query has one answer at most,
the E step gives γ = P(d answers | all votes on the query):

    γ = r γ¹ + (1 − r) γ*,    γ¹ = o_b l / (1 + Σ o l),    γ* = π_b l / (1 − π_b + π_b l)

and the M step, with c = 1 for a click,

    α = Σ γ c / Σ γ p,    ε_k = Σ_k (1 − γ) c / Σ_k (1 − γ) p,    ρ = mean of r over the queries
    π_b = Σ_b (1 − r) γ* / Σ_b (1 − r),    o_b = Σ_b r γ¹ / Σ_b r / (1 + Σ o)

The last is a step of an MM algorithm (Hunter 2004), the others maximise the likelihood of Poisson clicks, and of ours
where clicks are rare (Dempster, Laird, Rubin 1977; the regression EM of Wang et al. 2018 with known p). Sums start with
a few votes at the mean, so that a small log gives sensible values. Ten votes tell most documents apart: one that
answers is clicked far more often.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from fullrank.storage.encoding import Float64, Int64
from fullrank_trainer.clicks.join import Coins, Votes

# Where EM begins: one document in ten answers, and is clicked ten times as often; half of the queries have one answer.
_ALPHA, _EPSILON, _PI, _RHO = 0.5, 0.05, 0.1, 0.5
# Votes, documents and queries that agree with the mean, for each place.
_SMOOTH_VIEWS, _SMOOTH_DOCUMENTS, _SMOOTH_QUERIES = 50.0, 5.0, 10.0
# A document that answers is clicked at least twice as often as another.
_MAX_EPSILON = 0.5
_STEPS, _TOLERANCE = 200, 1e-3
# Ranks by text where the next group begins: unknown, the first document, the next two, the next seven, all others.
_GROUPS = (0, 1, 3, 10)
TEXTS = len(_GROUPS) + 1
"""Groups of documents by the rank of their text; the first is of those whose rank is unknown."""
_TINY = 1e-9


@dataclass(frozen=True, eq=False)
class Clicked:
    """Votes by query, document and place: a row each.

    Attributes:
        pairs: int64, query · width + document, ascending and without repetition.
        query: int64, of each pair, ascending: 0 for the first query that has a pair, and so on.
        pair: int64, of each row, place in ``pairs``.
        views: float64, of each row, votes.
        clicks: float64, of each row, votes with a click; fractions where dwell time counts.
        text: int64, of each pair, its group by text, below TEXTS.
        of_votes: int64, of each vote, place in ``pairs``.
    """

    pairs: Int64
    query: Int64
    pair: Int64
    place: Int64
    views: Float64
    clicks: Float64
    text: Int64
    of_votes: Int64

    @staticmethod
    def of(votes: Votes, c: Float64) -> Clicked:
        """Count votes; c, float64 from 0 to 1, says of each vote whether it is a click."""
        width = max(1, len(votes.documents))
        pairs, at = np.unique(votes.query * width + votes.document, return_inverse=True)
        _, query = np.unique(pairs // width, return_inverse=True)
        places = int(votes.place.max(initial=-1)) + 1
        rows, row = np.unique(at * places + votes.place, return_inverse=True)
        pair, place = np.divmod(rows, max(1, places))
        views = np.bincount(row, minlength=len(rows)).astype(np.float64)
        clicks = np.bincount(row, c, len(rows)).astype(np.float64)
        text = np.zeros(len(pairs), np.int64)
        if votes.text_rank is not None:
            text[at] = np.searchsorted(_GROUPS, votes.text_rank, side="right")
        return Clicked(pairs, query, pair, place, views, clicks, text, at)

    def total(self, values: Float64) -> Float64:
        """Return the sum of the rows of each pair, float64."""
        return np.bincount(self.pair, values, len(self.pairs)).astype(np.float64)

    @cached_property
    def best(self) -> Int64:
        """The best place of each pair, int64."""
        found = np.full(len(self.pairs), np.iinfo(np.int64).max)
        np.minimum.at(found, self.pair, self.place)
        return found


@dataclass(frozen=True, eq=False)
class Mixture:
    """How people click.

    Attributes:
        epsilon: ε_k, float64, of each place that was seen.
        prior: π_b, float64 (TEXTS, places), of each group by text and each place that was seen.
        odds: o_b, the same.
    """

    alpha: float
    epsilon: Float64
    prior: Float64
    odds: Float64
    one_answer: float
    propensities: Propensities

    def posterior(self, counted: Clicked) -> Float64:
        """Return γ of each pair, float64. Places that were not seen in the fit are like the last one that was."""
        return _explain(self, counted).gamma

    def noticed(self, counted: Clicked) -> Float64:
        """Return how likely each pair would have been clicked at least once if it were relevant, float64."""
        missed = counted.views * np.log1p(-_share(self.alpha * self.propensities.of(counted.place)))
        found: Float64 = -np.expm1(counted.total(missed))
        return found


class _Explained(NamedTuple):
    """The E step, float64 of each pair: γ¹, γ*, then r and 1 + Σ o of its query; and the mean of r over the queries."""

    one: Float64
    many: Float64
    of_one: Float64
    total: Float64
    one_answer: float

    @property
    def gamma(self) -> Float64:
        found: Float64 = self.of_one * self.one + (1 - self.of_one) * self.many
        return found


def _explain(mixture: Mixture, counted: Clicked) -> _Explained:
    """Compute the E step, in logarithms: ten clicks far down are a likelihood of e⁵⁰."""
    if not len(counted.pairs):
        none = np.zeros(0)
        return _Explained(none, none, none, none, mixture.one_answer)
    last = len(mixture.epsilon) - 1
    # Logarithms are taken of the few places and groups, not of each row and pair.
    places = np.arange(int(counted.place.max()) + 1)
    p = mixture.propensities.of(places)
    relevant = _share(mixture.alpha * p)
    other = _share(mixture.epsilon[np.minimum(places, last)] * p)
    evidence = counted.clicks * np.log(relevant / other)[counted.place]
    passed = counted.views - counted.clicks
    evidence += passed * np.log((1 - relevant) / (1 - other))[counted.place]
    likelihood = counted.total(evidence)  # log l
    known = counted.text * (last + 1) + np.minimum(counted.best, last)
    prior, odds = _share(mixture.prior).ravel(), mixture.odds.ravel()
    starts = np.flatnonzero(np.diff(counted.query, prepend=-1))
    at = counted.query
    after = np.log(odds)[known] + likelihood
    total = 1 + np.add.reduceat(odds[known], starts)
    # log(1 + Σ exp), with the largest term taken out.
    largest = np.maximum(0, np.maximum.reduceat(after, starts))
    rest = np.add.reduceat(np.exp(after - largest[at]), starts)
    reached = largest + np.log(np.exp(-largest) + rest)
    each = logit(prior)[known] + likelihood
    mixed = np.log1p(-prior)[known] + np.maximum(0, each) + np.log1p(np.exp(-np.abs(each)))
    # mixed is log(1 − π + π l): how likely the votes are, whether or not the document answers.
    # How much likelier the votes on a query are if it has one answer at most.
    ratio = reached - np.log(total) - np.add.reduceat(mixed, starts)
    of_one: Float64 = expit(logit(_share(np.array([mixture.one_answer]))) + ratio)
    one = np.exp(after - reached[at])
    return _Explained(one, expit(each), of_one[at], total[at], float(of_one.mean()))


def fit_mixture(counted: Clicked, propensities: Propensities) -> Mixture:
    """Fit α, ε, π, o and ρ by EM."""
    places = int(counted.place.max(initial=0)) + 1
    p = propensities.of(counted.place)
    looked = counted.views * p
    known, shape = counted.text * places + counted.best, (TEXTS, places)
    found = Mixture(
        _ALPHA, np.full(places, _EPSILON), np.full(shape, _PI), np.full(shape, _PI), _RHO, propensities
    )  # fmt: skip
    # An imported log of clicks alone: nothing was passed over, so all that was clicked answers.
    if (counted.clicks == counted.views).all():
        return replace(found, alpha=1.0, epsilon=np.full(places, _TINY), one_answer=0.0)
    queries = int(counted.query[-1]) + 1
    before = np.zeros(len(counted.pairs))
    for _ in range(_STEPS):
        explained = _explain(found, counted)
        gamma = explained.gamma
        if np.abs(gamma - before).max() < _TOLERANCE:
            break
        before, share = gamma, gamma[counted.pair]
        alpha = min(1.0, float((share * counted.clicks).sum() / max(_TINY, (share * looked).sum())))
        clicks = np.bincount(counted.place, (1 - share) * counted.clicks, places)
        seen = np.bincount(counted.place, (1 - share) * looked, places)
        mean = (clicks.sum() + _SMOOTH_VIEWS * _EPSILON) / (seen.sum() + _SMOOTH_VIEWS)
        epsilon = (clicks + _SMOOTH_VIEWS * mean) / (seen + _SMOOTH_VIEWS)
        of_one, of_many = explained.of_one, 1 - explained.of_one
        answering = float(gamma.mean())
        found = Mixture(
            alpha,
            np.minimum(epsilon, _MAX_EPSILON * alpha),
            _ratio(known, of_many * explained.many, of_many, answering, shape),
            _ratio(known, of_one * explained.one, of_one / explained.total, answering, shape),
            (explained.one_answer * queries + _RHO * _SMOOTH_QUERIES) / (queries + _SMOOTH_QUERIES),
            propensities,
        )  # fmt: skip
    return found


def _ratio(
    known: Int64, above: Float64, below: Float64, mean: float, shape: tuple[int, int]
) -> Float64:
    """Divide sums over the pairs of each b; a few documents at the mean are added."""
    size = shape[0] * shape[1]
    sums = [np.bincount(known, values, size).astype(np.float64) for values in (above, below)]
    found: Float64 = (sums[0] + _SMOOTH_DOCUMENTS * mean) / (sums[1] + _SMOOTH_DOCUMENTS)
    return found.reshape(shape)


def _share(values: Float64) -> Float64:
    return np.clip(values, _TINY, 1 - _TINY)


# How likely a place is looked at, p_k = k^−η, from pairs of neighbours whose order a fair coin decided.
#
# Where the coin decides which of two documents stands at place k and which at k + 1, each has stood at either place
# equally often, so by symmetry, whichever documents they are (FairPairs, Radlinski and Joachims 2006),
#
#     E[clicks at k] : E[clicks at k + 1] = p_k : p_{k+1}
#
# A click on the pair is thus at the upper place with probability π_k = 1 / (1 + (k/(k + 1))^η): a logistic regression
# on x_k = log((k + 1)/k), with the weak prior N(1, 1) on η. Clicks on both documents of a list count one each. Leaving
# such lists out would favour the upper place: a click on the lower one seldom comes alone.


_PRIOR_MEAN, _PRIOR_VARIANCE = 1.0, 1.0
_QUANTILE = 1.959964  # of the normal distribution, for 95 %
_MAX_ETA = 10.0
_NEWTON_STEPS = 50


@dataclass(frozen=True, eq=False)
class Propensities:
    """How likely each place is looked at.

    Attributes:
        eta: η of p_k = k^−η.
        interval: 95 % interval of η.
        clicks: on pairs whose order a coin decided.
        ratios: float64, log p_k/p_{k+1} for k = 1, 2, …; those of later places follow from η.
        spread: standard deviation of the free ratios around k^−η; 0 where k^−η explains the clicks.
    """

    eta: float
    interval: tuple[float, float]
    clicks: int
    ratios: Float64
    spread: float = 0.0

    @staticmethod
    def of_power(eta: float) -> Propensities:
        """Return k^−η with a known η."""
        return Propensities(eta, (eta, eta), 0, np.zeros(0))

    def of(self, places: npt.ArrayLike) -> Float64:
        """Return p of some places; place 0 is the first and has p = 1."""
        places = np.asarray(places, np.int64)
        size = max(len(self.ratios), int(places.max(initial=0)))
        ratios = max(0.0, self.eta) * log_steps(np.arange(size))
        ratios[: len(self.ratios)] = self.ratios
        log_p = np.concatenate([[0.0], -np.cumsum(ratios)])
        p: Float64 = np.exp(log_p[places])
        return p

    def as_dict(self) -> dict[str, Any]:
        """Return the figures that a report shows."""
        return {
            "eta": self.eta,
            "eta_interval": list(self.interval),
            "coin_clicks": self.clicks,
            "spread": self.spread,
            "propensities": self.of(np.arange(10)).tolist(),
        }


def log_steps(places: Int64) -> Float64:
    """Return x_k = log((k + 1)/k) of places that count from 0."""
    steps: Float64 = np.log1p(1 / (places + 1.0))
    return steps


def fit_propensities(coins: Coins) -> Propensities:
    """Fit η by Newton's method, with a 95 % interval, and free p_k where clicks suffice.

    Votes of one person depend on each other, so the interval takes the larger of Fisher's variance and one that is
    robust to it (the sandwich, clustered by person).

    The free ratio of places k and k + 1 is log(u/l) of their clicks u and l. It replaces η x_k by as much as the clicks
    warrant: the ratios have a variance τ² around η x_k, estimated by moments (DerSimonian and Laird 1986), and each is
    the mean of η x_k and log(u/l), weighted by 1/τ² and by the clicks. If the law k^−η explains the clicks, τ is 0
    and all ratios are η x_k. Ratios are never below 0, so p_k never rises.
    """
    places, at = np.unique(coins.place, return_inverse=True)
    upper = np.bincount(at, coins.upper, len(places)).astype(np.float64)
    lower = np.bincount(at, coins.lower, len(places)).astype(np.float64)
    x = log_steps(places)
    eta, information = _maximum(x, upper, lower)
    pi = expit(eta * x)[at]
    score = x[at] * (coins.upper * (1 - pi) - coins.lower * pi)
    people, member = np.unique(coins.person, return_inverse=True)
    clustered = float((np.bincount(member, score, len(people)) ** 2).sum())
    variance = max(1 / information, clustered / information**2)
    half = _QUANTILE * variance**0.5
    ratios, spread = _free(places, upper, lower, max(0.0, eta))
    interval = (eta - half, eta + half)
    return Propensities(eta, interval, int(upper.sum() + lower.sum()), ratios, spread)


def _maximum(x: Float64, upper: Float64, lower: Float64) -> tuple[float, float]:
    """Return the η of the largest posterior and its Fisher information, that of the prior included."""
    eta, information = _PRIOR_MEAN, 1 / _PRIOR_VARIANCE
    for _ in range(_NEWTON_STEPS):
        pi = expit(eta * x)
        slope = float((x * (upper * (1 - pi) - lower * pi)).sum())
        slope -= (eta - _PRIOR_MEAN) / _PRIOR_VARIANCE
        information = float((x * x * (upper + lower) * pi * (1 - pi)).sum()) + 1 / _PRIOR_VARIANCE
        step = float(np.clip(slope / information, -1, 1))
        eta = float(np.clip(eta + step, -_MAX_ETA, _MAX_ETA))
        if abs(step) < 1e-12:
            break
    return eta, information


def _free(places: Int64, upper: Float64, lower: Float64, eta: float) -> tuple[Float64, float]:
    """Return the ratios of the first places and their spread τ around η x_k."""
    ratios = eta * log_steps(np.arange(int(places.max(initial=-1)) + 1))
    free = np.log((upper + 0.5) / (lower + 0.5))
    precision = 1 / (1 / (upper + 0.5) + 1 / (lower + 0.5))
    excess = free - ratios[places]
    # One ratio alone cannot differ from its own law; the first degree of freedom is that of η.
    scatter = float((precision * excess**2).sum()) - (len(places) - 1)
    total = float(precision.sum())
    scale = total - float((precision**2).sum()) / total if total else 0.0
    variance = max(0.0, scatter / scale) if scale > 0 else 0.0
    if variance:
        share = precision / (precision + 1 / variance)
        ratios[places] = np.maximum(0.0, ratios[places] + share * excess)
    return ratios, variance**0.5
