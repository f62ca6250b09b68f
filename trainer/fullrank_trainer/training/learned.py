"""Where a fit ended, so that a later fit goes on from there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from fullrank_trainer.training.checkpoint import stored_arrays

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Learned:
    """Parameters and state of a fit; they fit any learner with the same matrices.

    Attributes:
        parameters: those of the best epoch.
        state: what the next epoch needs besides.
        epochs: how many were taken.
    """

    parameters: Mapping[str, npt.NDArray[Any]]
    state: Mapping[str, npt.NDArray[Any]]
    epochs: int

    @staticmethod
    def stored(path: Path, epochs: int) -> Learned:
        """Return where a finished run ended; the arrays stay in its checkpoint until they are read."""
        arrays = stored_arrays(path)
        return Learned(arrays.group("now."), arrays.group("state."), epochs)
