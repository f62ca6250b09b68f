"""Room for one query over millions of documents, kept: fresh arrays of that size cost a page fault every 4 KB."""

from __future__ import annotations

import threading

import numpy as np

from fullrank.encoding import Float32, Int32


class Scratch(threading.local):
    """Two rows of n numbers that belong to the thread.

    scores  float32 (n,), zero between queries
    work    float32 (n,), and the same memory as places, int32 (n,); anything may stand in it
    """

    def __init__(self, count: int) -> None:
        self.scores: Float32 = np.zeros(count, np.float32)
        self.work: Float32 = np.zeros(count, np.float32)

    @property
    def places(self) -> Int32:
        return self.work.view(np.int32)
