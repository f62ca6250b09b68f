"""The probability of a click on an ad, calibrated on the impressions and clicks of the log of events: Platt scaling.

    P(click) = σ(b + a z + c_p),    z = (score − mean) / deviation

with an offset c_p for each placement p (J. Platt, Probabilistic outputs for support vector machines, 1999). Clicks are
not 1 but t₊ = (n₊ + 1) / (n₊ + 2), other impressions not 0 but t₋ = 1 / (n₋ + 2), as Platt proposes. The fit minimises

    Σ_i n_i (log(1 + exp f_i) − y_i f_i) + (a² + Σ_p c_p²) / 2

over groups i of n_i impressions with the mean target y_i. The function is convex, and strictly so where there are
clicks and other impressions, so Newton's method finds the one minimum, the same on every machine.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fullrank.errors import FullrankError

Float64 = npt.NDArray[np.float64]

# Placements with an offset of their own, the most shown ones; the offset of others is 0.
MAX_PLACEMENTS = 100
_MAX_STEPS = 100
# Largest component of the gradient at the minimum, for each impression.
_TOLERANCE = 1e-10
MIN_CLICKS = 1000
"""The fewest clicks of a calibration."""


class NotCalibrated(FullrankError):
    """There are no impressions to fit."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted function from scores to probabilities: b is the intercept, a the slope, c_p the offset of a placement.

    Scores are scaled by their mean and standard deviation over all impressions; 1 if all are equal.
    """

    mean: float
    deviation: float
    intercept: float
    slope: float
    offsets: Mapping[str, float]
    impressions: int
    clicks: int

    def probability(self, score: float, placement: str) -> float:
        """Return the probability of a click on an ad with a score in a placement."""
        z = (score - self.mean) / self.deviation
        logit = self.intercept + self.slope * z + self.offsets.get(placement, 0.0)
        return 1 / (1 + math.exp(-max(logit, -700.0)))  # e^710 is too large for a float

    def most(self, score: float, placement: str) -> float:
        """Return a bound on the probability of ads whose score is at most this one."""
        return self.probability(score, placement) if self.slope >= 0 else 1.0

    def json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


def fit(
    placements: Sequence[str], scores: Float64, impressions: Float64, clicks: Float64
) -> Calibration:
    """Fit the probability of a click to m groups of impressions, arrays of float64 (m,). Raises NotCalibrated."""
    n, n_clicks = float(impressions.sum()), float(clicks.sum())
    if not n > 0:
        raise NotCalibrated("there are no impressions")
    mean = float((impressions * scores).sum() / n)
    deviation = math.sqrt(float((impressions * (scores - mean) ** 2).sum() / n)) or 1.0
    names, of = _numbered(placements, impressions)
    # Targets of clicks and of other impressions.
    high, low = (n_clicks + 1) / (n_clicks + 2), 1 / (n - n_clicks + 2)
    y = (clicks * high + (impressions - clicks) * low) / impressions
    problem = _Problem((scores - mean) / deviation, of, len(names), impressions, y)
    found = problem.minimum()
    offsets = dict(zip(names, found[2:].tolist(), strict=True))
    intercept, slope = found[:2].tolist()
    return Calibration(mean, deviation, intercept, slope, offsets, round(n), round(n_clicks))


def _numbered(placements: Sequence[str], impressions: Float64) -> tuple[list[str], Any]:
    """Return the placements that get an offset, and the number of each group's; the number after the last: none."""
    shown: dict[str, float] = {}
    for name, count in zip(placements, impressions.tolist(), strict=True):
        shown[name] = shown.get(name, 0.0) + count
    names = sorted(sorted(shown, key=lambda name: (-shown[name], name))[:MAX_PLACEMENTS])
    number = {name: i for i, name in enumerate(names)}
    return names, np.array([number.get(name, len(names)) for name in placements], np.int64)


class _Problem:
    def __init__(self, z: Float64, of: Any, k: int, n: Float64, y: Float64) -> None:
        self._z, self._of, self._k, self._n, self._y = z, of, k, n, y

    def minimum(self) -> Float64:
        w = np.zeros(2 + self._k)
        w[0] = self._logit(float((self._n * self._y).sum() / self._n.sum()))
        value = self._value(w)
        for _ in range(_MAX_STEPS):
            gradient, hessian = self._derivatives(w)
            if np.abs(gradient).max() <= _TOLERANCE * self._n.sum():
                break
            step = np.linalg.solve(hessian, gradient)
            size = 1.0
            # A full step can overshoot far from the minimum; a small one never does.
            while (new := self._value(w - size * step)) > value and size > 1e-10:
                size /= 2
            if new >= value:
                break
            w, value = w - size * step, new
        return w

    @staticmethod
    def _logit(p: float) -> float:
        return math.log(p / (1 - p))

    def _f(self, w: Float64) -> Float64:
        offsets = np.append(w[2:], 0.0)
        found: Float64 = w[0] + w[1] * self._z + offsets[self._of]
        return found

    def _value(self, w: Float64) -> float:
        f = self._f(w)
        return float((self._n * (np.logaddexp(0, f) - self._y * f)).sum() + (w[1:] ** 2).sum() / 2)

    def _derivatives(self, w: Float64) -> tuple[Float64, Float64]:
        """Return gradient and Hessian; with p = σ(f):  ∂/∂f_i = n_i (p_i − y_i),  ∂²/∂f_i² = n_i p_i (1 − p_i)."""
        k, z = self._k, self._z
        p = 0.5 * (1 + np.tanh(self._f(w) / 2))
        first, second = self._n * (p - self._y), self._n * p * (1 - p)
        gradient = np.concatenate([[first.sum(), first @ z], self._of_placements(first)])
        gradient[1:] += w[1:]
        hessian = np.zeros((2 + k, 2 + k))
        hessian[0, 0], hessian[1, 1] = second.sum(), second @ z**2
        hessian[0, 1] = hessian[1, 0] = second @ z
        own = self._of_placements(second)
        hessian[0, 2:] = hessian[2:, 0] = own
        hessian[1, 2:] = hessian[2:, 1] = self._of_placements(second * z)
        places = np.arange(2, 2 + k)
        hessian[places, places] = own
        hessian[1:, 1:] += np.eye(1 + k)
        return gradient, hessian

    def _of_placements(self, values: Float64) -> Float64:
        found: Float64 = np.bincount(self._of, values, self._k + 1)[: self._k].astype(np.float64)
        return found


class Calibrated(NamedTuple):
    """The counted clicks on the ads that a model placed, and the calibration; None below ``MIN_CLICKS``."""

    clicks: int = 0
    calibration: Calibration | None = None


class AdCounts:
    """Impressions and clicks by model, placement and score, added up over the days of a log.

    Scores of different models cannot be compared, so each model has counts of its own.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], dict[tuple[str, float], list[int]]] = defaultdict(dict)

    def add(self, rows: Iterable[tuple[str, str, str, float, int, int]]) -> None:
        """Add a day; rows: as ``DayDigest.ads``."""
        for name, model_id, placement, score, impressions, clicks in rows:
            counts = self._counts[name, model_id].setdefault((placement, score), [0, 0])
            counts[0] += impressions
            counts[1] += clicks

    def calibrated(self) -> dict[str, dict[str, Calibrated]]:
        """Fit each model that has enough clicks; return them by bundle name and model id."""
        found: dict[str, dict[str, Calibrated]] = defaultdict(dict)
        for (name, model_id), counts in self._counts.items():
            keys = sorted(counts)  # so that the order of the days changes no bit
            impressions, clicks = np.array([counts[key] for key in keys], np.float64).T
            calibration = None
            if clicks.sum() >= MIN_CLICKS:
                scores = np.array([score for _, score in keys])
                calibration = fit([place for place, _ in keys], scores, impressions, clicks)
            found[name][model_id] = Calibrated(int(clicks.sum()), calibration)
        return dict(found)
