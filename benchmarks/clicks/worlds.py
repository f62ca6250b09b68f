"""Click models: who looks at which place, and what they click there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float64

Bool = npt.NDArray[np.bool_]

PLACES = 10
# Clicks on a document that answers the query, and on another, once it is looked at.
_RELEVANT, _OTHER = 0.8, 0.05
# Position-based examination as the ULTRA toolkit ships it, from an eye-tracking study.
_ULTRA = (0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06)


@dataclass(frozen=True)
class World:
    """How people click.

    Attributes:
        examined: Of each place, how likely it is looked at, float64 (PLACES,); all ones in a cascade.
        relevant, other: Of each place, how likely a document there is clicked once it is looked at.
        cascade: People read from the top and stop at their first click.
        eta: The η of p_k = k^−η, None if the world has no such number.
    """

    examined: Float64
    relevant: Float64
    other: Float64
    cascade: bool = False
    eta: float | None = None

    def clicks(self, answers: Bool, rng: np.random.Generator) -> Bool:
        """Draw the clicks on some lists.

        Args:
            answers: bool (lists, PLACES), which documents answer the query.
            rng: Random numbers.

        Returns:
            bool (lists, PLACES).
        """
        looked = rng.random(answers.shape) < self.examined
        clicked = looked & (
            rng.random(answers.shape) < np.where(answers, self.relevant, self.other)
        )
        if self.cascade:
            clicked &= np.cumsum(clicked, axis=1) == 1
        return clicked


def _world(examined: Float64, **changes: object) -> World:
    ones = np.ones(PLACES)
    given = {"relevant": _RELEVANT * ones, "other": _OTHER * ones, **changes}
    return World(examined, **given)  # type: ignore[arg-type]


def _power(eta: float) -> Float64:
    found: Float64 = np.power(np.arange(1.0, PLACES + 1), -eta)
    return found


WORLDS: dict[str, Callable[[], World]] = {
    "eta=1": lambda: _world(_power(1.0), eta=1.0),
    "eta=0": lambda: _world(_power(0.0), eta=0.0),
    "eta=2": lambda: _world(_power(2.0), eta=2.0),
    "ultra": lambda: _world(np.array(_ULTRA)),
    "cascade": lambda: _world(np.ones(PLACES), cascade=True),
    "trust": lambda: _world(_power(1.0), other=0.1 + 0.3 * _power(1.0), eta=1.0),
    "clean": lambda: _world(np.ones(PLACES), relevant=np.ones(PLACES), other=np.zeros(PLACES)),
}
"""`clean` has no bias and no noise: what is left is what the list did not show."""
