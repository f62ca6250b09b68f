"""Candidates of the fast mode: documents that a cheap estimate puts among the best, to be scored in float64.

    read        the posting lists of the query's words, of frequent words the heads
    estimated   û·v̂ + Σ impacts read + Σ of its signature's words + b:
                the best effort.sparse of the documents read, by Σ impacts read + ½ · u · (centre of their cell)
                every document of the effort.nprobe cells nearest to u
                every other document that may reach the k-th best of these, and the score asked for:
                u · centre + mean b of the cell + effort.margin · ‖u‖ · ‖v − centre‖ + Σ impacts read
    returned    the best effort.rescored of those estimated

Documents that lack the evidence that a floor asks for, by these estimates, are left out. A document of the other cells
is estimated only if it has a word of the query, or if u·v may reach the floor:
u · centre + effort.margin · ‖u‖ · ‖v − centre‖.

So a query with good matches estimates few documents, and one without many. The fast mode misses a document that its
cell makes unlikely. How often that happens is measured when a bundle is made, and stored in its manifest.

A filter that leaves a share p of the documents leaves that share of each list and cell, so more of them are read. Where
it leaves fewer documents than the cells of a search have, all of these are estimated.
"""

from __future__ import annotations

import math

import numpy as np

from fullrank.encoding import Float32, Int32, Int64
from fullrank.kernels.fast import best_estimated
from fullrank.retrieval.floor import Floor, floors_of
from fullrank.retrieval.index import Effort, Index
from fullrank.retrieval.index.query import CodedQuery
from fullrank.retrieval.ranking import NONE_DELETED, Mask, remaining
from fullrank.retrieval.scratch import Scratch

_NO_SLOTS = np.zeros(0, np.int64)
# Estimating so many documents one by one takes as long as the rest of a search.
_ESTIMATED = 16_384


def fast_candidates(
    index: Index,
    scratch: Scratch,
    query: CodedQuery,
    words: Int32,
    weights: Float32,
    wanted: int,
    effort: Effort,
    deleted: Mask | None,
    share: float,
    least: float = -math.inf,
    floor: Floor | None = None,
) -> Int64:
    """Return the rows to score in float64, distinct, in no order.

    Args:
        index, scratch, effort: Of the documents.
        query, words, weights: u, coded, and s.
        wanted: k.
        deleted: bool (n,), rows that must not be returned.
        share: How many of the documents are not deleted.
        least: A score that every wanted document reaches; −∞ if none is known.
        floor: Only documents that reach it are wanted.
    """
    features, dense, lexical = floors_of(floor)
    lists, codes, cells, postings = index.shortlists, index.codes, index.cells, index.postings
    mask, asked = NONE_DELETED if deleted is None else deleted, _NO_SLOTS
    nprobe = min(effort.nprobe, cells.count) if query.length else 0
    if deleted is not None and share < 1:
        nprobe = min(round(nprobe * share**-0.5), cells.count)
        if share * len(mask) <= max(_ESTIMATED, effort.nprobe * len(mask) / cells.count):
            asked = cells.slots[remaining(len(mask), mask)].astype(np.int64)
    try:
        slots = best_estimated(
            words, weights, effort.depth, effort.floor,
            nprobe, effort.margin * query.length, effort.sparse, effort.rescored, wanted, least,
            lists.indptr, lists.slots, lists.impacts,
            postings.indptr, postings.slots, postings.impacts, postings.limits,
            lists.signed, lists.rest(postings, effort.depth), lists.signatures,
            query.code, query.scale, codes.codes, codes.scales, codes.bias,
            cells.centres, cells.scales, cells.bias, cells.longest, cells.starts, cells.of, cells.distances,
            cells.rows, mask, asked, features, dense - query.error, lexical,
            scratch.marked, scratch.scores,
        )  # fmt: skip
    except BaseException:  # a MemoryError, too, can come after sums were written
        scratch.clear()
        raise
    rows: Int64 = cells.rows[slots].astype(np.int64)
    return rows
