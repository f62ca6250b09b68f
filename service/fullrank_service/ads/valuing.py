"""Rank ads by value: price × probability of a click.

The best values need not have the best scores. So the ranking by score is read from its top until no document below can
have a larger value: its price is at most that of the dearest ad, its probability at most that of the last score.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from fullrank.ads import Ad
from fullrank.ads.calibration import Calibration
from fullrank.live.hits import LiveHit
from fullrank.rerank.stage import DEPTH

# Documents that are read first, by which factor more each time, and most.
FIRST, FACTOR, MOST = DEPTH, 4, 10_000


class Valued(NamedTuple):
    """A document, its ad, and its value; without an ad all numbers are 0."""

    hit: LiveHit
    ad: Ad | None
    price: float
    probability: float
    value: float

    def json(self) -> dict[str, float]:
        """Return the numbers, for the reply."""
        return {"price": self.price, "probability": self.probability, "value": self.value}


@dataclass(frozen=True, slots=True)
class Valuation:
    """Values of documents for pages that one model scores."""

    calibration: Calibration

    def ranked(self, hits: Iterable[tuple[LiveHit, Ad | None]], placement: str) -> list[Valued]:
        """Return hits, given with their ads, by descending value, ties by score, then id."""
        found = [self._valued(hit, ad, placement) for hit, ad in hits]
        found.sort(key=lambda one: (-one.value, -one.hit.score, one.hit.id))
        return found

    def bound(self, price: float, score: float, placement: str) -> float:
        """Return the largest value of an ad with at most this price and this score."""
        return price * self.calibration.most(score, placement)

    def _valued(self, hit: LiveHit, ad: Ad | None, placement: str) -> Valued:
        if ad is None:
            return Valued(hit, None, 0.0, 0.0, 0.0)
        probability = self.calibration.probability(hit.score, placement)
        return Valued(hit, ad, ad.price, probability, ad.price * probability)
