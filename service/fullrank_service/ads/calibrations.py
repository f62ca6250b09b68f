"""The probability of a click on the ads that a model places, calibrated on the impressions and clicks of the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fullrank.ads.calibration import Calibration, fit

MIN_CLICKS = 1000
"""Fewer clicks say too little."""


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
