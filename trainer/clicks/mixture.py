"""Which documents answer a query: clicks as a mixture of documents that do and documents that do not.

    P(click on d at place k) = α p_k    if d answers the query, a priori with probability π_b
                               ε_k p_k  otherwise: by mistake, or out of trust in the first places

p_k is how likely place k is looked at (`propensity`), b the best place at which d was shown for the query. EM fits α, ε
and π: the E step gives γ = P(d answers | its votes), the M step

    α = Σ γ c / Σ γ p,    ε_k = Σ_k (1 − γ) c / Σ_k (1 − γ) p,    π_b = mean of γ over the documents of b

with c = 1 for a click. That maximises the likelihood of Poisson clicks, and of ours where clicks are rare (Dempster,
Laird, Rubin 1977; the regression EM of Wang et al. 2018 with known p). Sums start with a few votes at the mean, so that
a small log gives sensible values. Ten votes tell most documents apart: one that answers is clicked far more often.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import expit, logit

from fullrank.encoding import Float64, Int64
from trainer.clicks.join import Votes
from trainer.clicks.propensity import Propensities

# Where EM begins: one document in ten answers, and is clicked ten times as often.
_ALPHA, _EPSILON, _PI = 0.5, 0.05, 0.1
# Votes that agree with the mean, for each place.
_SMOOTH_VIEWS, _SMOOTH_DOCUMENTS = 50.0, 5.0
# A document that answers is clicked at least twice as often as another.
_MAX_EPSILON = 0.5
_STEPS, _TOLERANCE = 200, 1e-4
_TINY = 1e-9


@dataclass(frozen=True, eq=False)
class Clicked:
    """Votes by query, document and place: a row each.

    Attributes:
        pairs: int64, query · width + document, ascending and without repetition.
        pair: int64, of each row, place in ``pairs``.
        place: int64, of each row; 0 is the first.
        views: float64, of each row, votes.
        clicks: float64, of each row, votes with a click; fractions where dwell time counts.
        of_votes: int64, of each vote, place in ``pairs``.
    """

    pairs: Int64
    pair: Int64
    place: Int64
    views: Float64
    clicks: Float64
    of_votes: Int64

    @staticmethod
    def of(votes: Votes, c: Float64) -> Clicked:
        """Count votes.

        Args:
            votes: to count.
            c: float64, of each vote, from 0 to 1: whether it is a click.
        """
        pairs, at = np.unique(
            votes.query * max(1, len(votes.documents)) + votes.document, return_inverse=True
        )
        places = int(votes.place.max(initial=-1)) + 1
        rows, row = np.unique(at * places + votes.place, return_inverse=True)
        pair, place = np.divmod(rows, max(1, places))
        views = np.bincount(row, minlength=len(rows)).astype(np.float64)
        return Clicked(
            pairs, pair, place, views, np.bincount(row, c, len(rows)).astype(np.float64), at
        )

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
        alpha: α.
        epsilon: ε_k, float64, of each place that was seen.
        prior: π_b, float64, of each place that was seen.
        propensities: p_k.
    """

    alpha: float
    epsilon: Float64
    prior: Float64
    propensities: Propensities

    def posterior(self, counted: Clicked) -> Float64:
        """Return γ of each pair, float64. Places that were not seen in the fit are like the last one that was."""
        last = len(self.epsilon) - 1
        p = self.propensities.of(counted.place)
        relevant, other = (
            _share(self.alpha * p),
            _share(self.epsilon[_upto(counted.place, last)] * p),
        )
        evidence = counted.clicks * np.log(relevant / other)
        evidence += (counted.views - counted.clicks) * np.log((1 - relevant) / (1 - other))
        odds = counted.total(evidence)
        found: Float64 = expit(odds + logit(_share(self.prior[_upto(counted.best, last)])))
        return found

    def noticed(self, counted: Clicked) -> Float64:
        """Return how likely each pair would have been clicked at least once if it were relevant, float64."""
        missed = counted.views * np.log1p(-_share(self.alpha * self.propensities.of(counted.place)))
        found: Float64 = -np.expm1(counted.total(missed))
        return found


def fit_mixture(counted: Clicked, propensities: Propensities) -> Mixture:
    """Fit α, ε and π by EM.

    Args:
        counted: of all queries.
        propensities: p_k.
    """
    places = int(counted.place.max(initial=0)) + 1
    p = propensities.of(counted.place)
    looked = counted.views * p
    best = counted.best
    documents = np.bincount(best, minlength=places)
    found = Mixture(_ALPHA, np.full(places, _EPSILON), np.full(places, _PI), propensities)
    if (
        counted.clicks == counted.views
    ).all():  # an imported log of clicks alone: nothing was passed over
        return replace(found, alpha=1.0, epsilon=np.full(places, _TINY))
    before = np.zeros(len(counted.pairs))
    for _ in range(_STEPS):
        gamma = found.posterior(counted)
        if np.abs(gamma - before).max() < _TOLERANCE:
            break
        before, share = gamma, gamma[counted.pair]
        alpha = min(1.0, float((share * counted.clicks).sum() / max(_TINY, (share * looked).sum())))
        clicks = np.bincount(counted.place, (1 - share) * counted.clicks, places)
        seen = np.bincount(counted.place, (1 - share) * looked, places)
        mean = (clicks.sum() + _SMOOTH_VIEWS * _EPSILON) / (seen.sum() + _SMOOTH_VIEWS)
        epsilon = (clicks + _SMOOTH_VIEWS * mean) / (seen + _SMOOTH_VIEWS)
        prior = np.bincount(best, gamma, places) + _SMOOTH_DOCUMENTS * gamma.mean()
        prior /= documents + _SMOOTH_DOCUMENTS
        found = Mixture(alpha, np.minimum(epsilon, _MAX_EPSILON * alpha), prior, propensities)
    return found


def _share(values: Float64) -> Float64:
    return np.clip(values, _TINY, 1 - _TINY)


def _upto(places: Int64, last: int) -> Int64:
    return np.minimum(places, last)
