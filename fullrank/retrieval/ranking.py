"""One query's answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float64, Int64

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Ranking:
    """One query's answer, best first. score = learned + exact + bias, all float64 (k,).

    rows       int64 (k,) document rows
    learned    u·v
    exact      s·t
    bias       b
    certified  the ranking is proven equal to that of all documents' exact scores
    total      how many documents could have been returned
    """

    rows: Int64
    scores: Float64
    learned: Float64
    exact: Float64
    bias: Float64
    certified: bool
    total: int
