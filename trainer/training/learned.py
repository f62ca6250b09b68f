"""Where a fit ended, so that a later fit goes on from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Learned:
    """Parameters and state of a fit; they fit any learner with the same matrices.

    Attributes:
        parameters: those of the best epoch.
        state: what the next epoch needs besides.
        epochs: how many were taken.
    """

    parameters: Arrays
    state: Arrays
    epochs: int
