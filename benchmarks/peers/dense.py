"""Rank documents by the cosine between the vectors of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.peers.ranking import Float32, Scores
from fullrank.measures import Int64

Encode = Callable[[Sequence[str]], Float32]
"""Texts → float32 (texts, N), rows of length one."""


def unit_rows(vectors: npt.NDArray[np.floating]) -> Float32:
    """Divide each row by its length; a zero row stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def passage_scores(encode: Encode, vectors: Float32, rows: Int64) -> Scores:
    """Score a document by its best passage.

    Args:
        encode: encodes queries.
        vectors: (passages, N), of length one.
        rows: (passages,) ascending; every document has a passage.
    """
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    columns = np.ascontiguousarray(vectors.T)

    def score(texts: Sequence[str]) -> Float32:
        cosines = encode(texts) @ columns
        if len(starts) == len(rows):
            return cosines
        return np.maximum.reduceat(cosines, starts, axis=1)

    return score
