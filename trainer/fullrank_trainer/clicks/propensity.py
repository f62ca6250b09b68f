"""How likely a place is looked at, p_k = k^−η, from pairs of neighbours whose order a fair coin decided.

Where the coin decides which of two documents stands at place k and which at k + 1, each has stood at either place
equally often, so by symmetry, whichever documents they are (FairPairs, Radlinski and Joachims 2006),

    E[clicks at k] : E[clicks at k + 1] = p_k : p_{k+1}

A click on the pair is thus at the upper place with probability π_k = 1 / (1 + (k/(k + 1))^η): a logistic regression on
x_k = log((k + 1)/k), with the weak prior N(1, 1) on η. Clicks on both documents of a list count one each. Leaving such
lists out would favour the upper place: a click on the lower one seldom comes alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from fullrank.encoding import Float64, Int64
from fullrank_trainer.clicks.join import Coins

_PRIOR_MEAN, _PRIOR_VARIANCE = 1.0, 1.0
_QUANTILE = 1.959964  # of the normal distribution, for 95 %
_MAX_ETA = 10.0
_STEPS = 50


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
    for _ in range(_STEPS):
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
