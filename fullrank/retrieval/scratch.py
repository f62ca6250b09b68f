"""Buffers that each thread keeps between queries: fresh arrays of millions of numbers cost a page fault per 4 KB."""

from __future__ import annotations

import threading

import numpy as np

from fullrank.encoding import Float32
from fullrank.kernels.arrays import UInt8


class Scratch(threading.local):
    """Buffers with an entry per document; each thread has its own. All are zero between queries.

    Attributes:
        scores: float32 (n,).
        marked: uint8 (n,).
    """

    def __init__(self, count: int) -> None:
        self.scores: Float32 = np.zeros(count, np.float32)
        self.marked: UInt8 = np.zeros(count, np.uint8)

    def clear(self) -> None:
        """Set all entries to zero, after a query that failed."""
        self.scores.fill(0)
        self.marked.fill(0)
