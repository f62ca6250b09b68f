"""Calibrated click probabilities of the models of a worker, fitted and followed by a thread."""

from __future__ import annotations

import time
from collections.abc import Callable

from fullrank.ads.calibration import Calibration, fit
from fullrank_service.ads.counts import Counts, CountsError
from fullrank_service.ads.outcomes import Fitted, Scorer
from fullrank_service.repeating import Failed, Repeater, uncounted

# Fewer clicks say too little.
MIN_CLICKS = 1000
POLL_S = 10.0
# A calibration is fitted again after this time.
REFRESH_S = 300.0


class Calibrations:
    """Fits what nobody has fitted lately, and reads what other workers have fitted.

    Args:
        open_counts: Opens the file.
        poll_s: Pause between two looks at it.
        failed: Counts failures to fit.
    """

    def __init__(
        self,
        open_counts: Callable[[], Counts],
        poll_s: float | None = None,
        failed: Failed = uncounted,
    ) -> None:
        self._open = open_counts
        self._counts: Counts | None = None
        self._fitted: dict[Scorer, Fitted] = {}
        self._clicks: dict[Scorer, int] = {}
        self._repeater = Repeater(
            "calibrations",
            self._follow,
            POLL_S if poll_s is None else poll_s,
            failure="clicks are not calibrated",
            failed=failed,
            expected=(CountsError,),
            ended=self._end,
        )
        self._repeater.start()
        self._repeater.nudge()

    def of(self, collection: str, model: str) -> Calibration | None:
        """Return the calibration of a model; None below ``MIN_CLICKS``, or if it is not fitted yet.

        Args:
            collection: Name of the bundle.
            model: Id of its model.
        """
        found = self._fitted.get((collection, model))
        return None if found is None else found.calibration

    def clicks(self, collection: str, model: str) -> int:
        """Return how many clicks on ads that a model placed were counted lately."""
        return self._clicks.get((collection, model), 0)

    def close(self) -> None:
        """Stop."""
        self._repeater.close()

    def _end(self) -> None:
        if self._counts is not None:
            self._counts.close()

    def _follow(self) -> None:
        if self._counts is None:
            self._counts = self._open()
        counts = self._counts
        self._clicks = counts.clicks()
        enough = {scorer for scorer, clicks in self._clicks.items() if clicks >= MIN_CLICKS}
        fitted, now = counts.calibrations(), time.time()
        for scorer in enough:
            old = fitted.get(scorer)
            if old is None or now - old.at > REFRESH_S:
                fitted[scorer] = Fitted(now, fit(*counts.outcomes(scorer)))
                counts.keep_calibration(scorer, fitted[scorer])
        self._fitted = {scorer: fitted[scorer] for scorer in enough}
