"""Bounds on what float32 rounds."""

from __future__ import annotations

import math

import numpy as np

from fullrank.kernels.compiler import helper

UNIT_ROUNDOFF = 2.0**-24
_LARGEST, _LEAST = float(np.finfo(np.float32).max), float(np.finfo(np.float32).tiny)


def rounding(steps: int, size: float) -> float:
    """Bound the rounding error of a float32 result.

    Args:
        steps: How many operations made it.
        size: The sum of the absolute values of its parts.

    Returns:
        The bound, infinite where the result may overflow. A step that underflows is as far off as one at the smallest
        normal number.
    """
    if not size < _LARGEST / 4:
        return math.inf
    return steps * UNIT_ROUNDOFF * (size + _LEAST)


rounding_in_kernel = helper(rounding)
"""The same, for kernels."""
