"""Candidates of the fast mode: documents that a cheap estimate puts among the best, to be scored in float64.

The sparse side reads the heads of the query words' posting lists; the dense side searches the cells nearest to u. Each
candidate gets a cheap estimate of its other score part:

    found on the sparse side    Σ impacts read + ½ · u · (centre of its cell)               the best effort.sparse
    found on either side        û·v̂ + Σ impacts read + Σ of its signature's words + b       the best effort.rescored

The fast mode misses a document that is good on both sides without being among the best on either. How often that
happens is measured when a bundle is made, and stored in its manifest.
"""

from __future__ import annotations

import numpy as np

from fullrank.encoding import Float32, Int32, Int64
from fullrank.kernels.fast import best_estimated, best_read
from fullrank.retrieval.index import Effort, Index
from fullrank.retrieval.index.codes import encode
from fullrank.retrieval.ranking import NONE_DELETED, Mask
from fullrank.retrieval.scratch import Scratch

# The weight of a cell's centre as an estimate of u·v. Recall hardly changes between a quarter and one.
_CENTRE_WEIGHT = np.float32(0.5)
_NO_CELLS = np.zeros(0, np.uint16)
_NO_ROWS, _NO_VALUES = np.zeros(0, np.int64), np.zeros(0, np.float32)


def fast_candidates(
    index: Index,
    scratch: Scratch,
    u: Float32,
    words: Int32,
    weights: Float32,
    effort: Effort,
    deleted: Mask | None,
) -> Int64:
    """Return the rows to score in float64, distinct, in no order."""
    lists, codes = index.shortlists, index.codes
    assert lists is not None
    mask = NONE_DELETED if deleted is None else deleted
    scores = scratch.scores
    heads = lists.read(index.postings, words, weights, effort.depth, effort.floor, scratch)
    try:
        cells = index.cells if u.any() else None
        near = _NO_VALUES if cells is None else cells.near(u)
        cell_of = _NO_CELLS if cells is None else cells.of
        best = best_read(heads.rows, scores, near, cell_of, _CENTRE_WEIGHT, mask, effort.sparse)
        dense = _NO_ROWS
        if cells is not None:
            dense = cells.search(u, near, effort.dense, effort.nprobe, effort.margin)
        code, scale, _, _ = encode(u[None])
        return best_estimated(
            best, dense, mask, scratch.marks, scratch.next_mark(),
            code[0], scale[0], codes.codes, codes.scales,
            scores, index.bias, lists.signatures, heads.bits, heads.values, effort.rescored,
        )  # fmt: skip
    finally:
        scores[heads.rows] = 0
