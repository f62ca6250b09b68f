"""Buffers that each thread keeps between queries: fresh arrays of millions of numbers cost a page fault per 4 KB."""

from __future__ import annotations

import threading

import numpy as np

from fullrank.encoding import Float32


class Scratch(threading.local):
    """A buffer of one number per document; each thread has its own.

    Attributes:
        scores: float32 (n,), zero between queries.
    """

    def __init__(self, count: int) -> None:
        self.scores: Float32 = np.zeros(count, np.float32)
