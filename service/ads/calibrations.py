"""Calibrated click probabilities of the models of a worker, fitted and followed by a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from logging import getLogger

from fullrank.ads.calibration import Calibration, fit
from service.ads.counts import Counts, CountsError
from service.ads.outcomes import Fitted, Scorer

# Fewer clicks say too little.
MIN_CLICKS = 1000
POLL_S = 10.0
# A calibration is fitted again after this time.
REFRESH_S = 300.0
_log = getLogger(__name__)


class Calibrations:
    """Fits what nobody has fitted lately, and reads what other workers have fitted.

    Args:
        open_counts: Opens the file.
        poll_s: Pause between two looks at it.
    """

    def __init__(self, open_counts: Callable[[], Counts], poll_s: float | None = None) -> None:
        self._open, self._poll_s = open_counts, POLL_S if poll_s is None else poll_s
        self._fitted: dict[Scorer, Fitted] = {}
        self._clicks: dict[Scorer, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="calibrations", daemon=True)
        self._thread.start()

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
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        counts, logged = self._open(), False
        while True:
            try:
                self._follow(counts)
                logged = False
            except CountsError as error:
                if not logged:
                    _log.error("clicks are not calibrated: %s", error)
                logged = True
            if self._stop.wait(self._poll_s):
                counts.close()
                return

    def _follow(self, counts: Counts) -> None:
        self._clicks = counts.clicks()
        enough = {scorer for scorer, clicks in self._clicks.items() if clicks >= MIN_CLICKS}
        fitted, now = counts.calibrations(), time.time()
        for scorer in enough:
            old = fitted.get(scorer)
            if old is None or now - old.at > REFRESH_S:
                fitted[scorer] = Fitted(now, fit(*counts.outcomes(scorer)))
                counts.keep_calibration(scorer, fitted[scorer])
        self._fitted = {scorer: fitted[scorer] for scorer in enough}
