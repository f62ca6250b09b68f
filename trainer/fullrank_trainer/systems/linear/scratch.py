"""Scratch buffers that steps use again.

A new block of several megabytes costs a step more than its use: the system clears each of its pages.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

# A larger buffer than asked for, since the next step asks for a little more or less. Pages that no step reaches take
# no memory.
_SPARE = 8


class Scratch:
    """Buffers by name.

    Example:
        >>> scratch = Scratch()
        >>> for step in steps:
        ...     scores = np.matmul(u, v.T, out=scratch.array("scores", len(u), len(v)))
    """

    def __init__(self) -> None:
        self._buffers: dict[str, npt.NDArray[Any]] = {}
        self._sides: dict[str, Scratch] = {}

    def of(self, side: str) -> Scratch:
        """Return the buffers of one side, apart from all others."""
        return self._sides.setdefault(side, Scratch())

    def array(self, name: str, *shape: int, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
        """Return an array with any values; it is valid until the next call with this name, always of this dtype."""
        size = math.prod(shape)
        if name not in self._buffers or len(self._buffers[name]) < size:
            self._buffers.pop(name, None)  # before the larger one is made
            self._buffers[name] = np.empty(size + size // _SPARE, dtype)
        return self._buffers[name][:size].reshape(shape)
