"""Candidates of a search, by approximate scores: of all documents, from an index, and in the fast mode."""

from __future__ import annotations

import math
import threading
from functools import cached_property

import numpy as np

from fullrank.kernels import evidence, exact, fast
from fullrank.kernels.arrays import rounding
from fullrank.kernels.compiler import direct
from fullrank.kernels.evidence import Evidence, reaching_in_order
from fullrank.kernels.fast import Buffers
from fullrank.kernels.index import CodedQuery, Limits, Reads
from fullrank.kernels.rows import largest_weights
from fullrank.kernels.scan import add_weights
from fullrank.retrieval.index import Effort, Index
from fullrank.retrieval.ranking import mask_of, remaining
from fullrank.retrieval.scoring import InnerProduct, Ranked, Scorer
from fullrank.retrieval.select import Scanned, ScoreParts, candidates
from fullrank.storage.encoding import Encoded, Float32, Float64, Int32, Int64, Mask, Rows
from fullrank.storage.floor import Floor
from fullrank.storage.records import Documents

# Buffers that each thread keeps between queries: fresh arrays of millions of numbers cost a page fault per 4 KB.


class Scratch(threading.local):
    """Buffers of n documents; each thread has its own. All are zero between queries."""

    def __init__(self, count: int) -> None:
        self.buffers = Buffers(np.zeros(count, np.float32), np.zeros(count, np.uint8))

    def clear(self) -> None:
        """Set all entries to zero, after a query that failed."""
        for buffer in self.buffers:
            buffer.fill(0)


# Approximate scores of all documents from their encoded form, in float32, with a bound on the error.
#
# The error against the float64 score is at most
#
#     ε = (N + m + 4) · 2⁻²⁴ · (‖u‖ · max‖v‖ + S + max|b| + 2⁻¹²⁶)        (standard forward error of a sum)
#
#     m = min(|s|, max|t|)        S = min(Σ|s_w| · max_d |t_wd|, ‖s‖ · max‖t‖)


# At once: float64 copies of all weights would be larger than the documents.
_BLOCK_DOCUMENTS = 512


class FullScan:
    """Scores of encoded documents.

    Args:
        scorer: Replaces u·v + s·t. Its scan is the float64 score itself, rounded to float32.
    """

    def __init__(self, documents: Documents, scorer: Scorer | None = None) -> None:
        self.documents, self.scorer = documents, scorer or InnerProduct(documents)
        self.is_inner_product = scorer is None

    @cached_property
    def _all(self) -> Encoded:
        """All documents, in memory or mapped. A scan reads them; scores of given documents do not."""
        return self.documents.whole()

    @cached_property
    def postings(self) -> Rows:
        """Feature → documents, F rows of n columns."""
        return self._all.sparse.transposed()

    @cached_property
    def _largest_weight(self) -> Float64:
        """max_d |t_wd| of each feature."""
        sparse = self._all.sparse
        return largest_weights(sparse.indices, sparse.values, sparse.width)

    @cached_property
    def _sparse_limits(self) -> tuple[int, float]:
        """max_d |t_d|, the most sparse entries of a document, and max_d ‖t_d‖."""
        sparse = self._all.sparse
        sizes = np.diff(sparse.indptr)
        largest = 0.0
        for start in range(0, len(sizes), _BLOCK_DOCUMENTS):
            part = sparse.slice(start, min(start + _BLOCK_DOCUMENTS, len(sizes)))
            owner = np.repeat(np.arange(len(part)), np.diff(part.indptr))
            squares = np.bincount(owner, part.values.astype(np.float64) ** 2)
            largest = max(largest, float(squares.max(initial=0.0)))
        return int(sizes.max(initial=0)), math.sqrt(largest)

    @cached_property
    def _largest_norm(self) -> float:
        """max_d ‖v_d‖."""
        dense = self._all.dense
        if not dense.size:
            return 0.0
        return float(np.sqrt(np.einsum("ij,ij->i", dense, dense, dtype=np.float64).max()))

    @cached_property
    def _largest_bias(self) -> float:
        """max_d |b_d|."""
        return float(np.abs(self.documents.bias).max(initial=0.0))

    def warm(self) -> None:
        """Build the matrices and bounds that the first scan would build."""
        if self.is_inner_product:
            _ = self.postings, self._largest_weight, self._sparse_limits, self._largest_norm

    def score_parts(self, query: Encoded, rows: Int64) -> tuple[Float64, Float64, Float64]:
        """Return (dense, lexical, bias) of one query for the given documents, float64 (rows,) each."""
        bias = self.documents.bias.take(rows).astype(np.float64)
        return *self.scorer.score(query, rows), bias

    def rank(
        self,
        query: Encoded,
        rows: Int64,
        evidence: Evidence,
        offset: int,
        limit: int,
        is_counted: bool = False,
    ) -> tuple[Ranked, int]:
        """Score rows in float64, and order those that have evidence; see ``InnerProduct.rank``."""
        if isinstance(self.scorer, InnerProduct):
            return self.scorer.rank(query, rows, evidence, offset, limit, is_counted)
        dense, lexical, bias = self.score_parts(query, rows)
        page = offset, limit, int(is_counted)
        return reaching_in_order(rows, dense, lexical, bias, evidence, *page)

    @np.errstate(over="ignore", invalid="ignore")
    def scores(self, queries: Encoded) -> Float32:
        """Return the scores of all documents, float32 (B, n), each within ε of the float64 score."""
        if not self.is_inner_product:
            everything = np.arange(len(self.documents))
            scanned = np.zeros((len(queries), len(self.documents)), np.float32)
            for i, line in enumerate(scanned):
                dense, lexical, bias = self.score_parts(queries.slice(i, i + 1), everything)
                line[:] = dense + lexical + bias
            return scanned
        if queries.dense.shape[1]:
            scanned = queries.dense @ self._all.dense.T
        else:
            scanned = np.zeros((len(queries), len(self.documents)), np.float32)
        scanned += self.documents.bias
        postings = self.postings
        for i, scores in enumerate(scanned):
            words, weights = queries.sparse.row(i)
            add_weights(postings.indptr, postings.indices, postings.values, words, weights, scores)
        return scanned

    def error(self, queries: Encoded, i: int, scanned: Float32) -> float:
        """Return ε of query i. The scan of a scorer is off by its rounding to float32 only."""
        if not self.is_inner_product:
            return rounding(1, float(np.abs(scanned).max(initial=0.0)))
        u, indices, weights, _ = queries.row(i)
        size = float(np.linalg.norm(u.astype(np.float64))) * self._largest_norm
        longest, largest = self._sparse_limits
        # No np.dot: BLAS would start threads for the many features of an expanded query.
        by_word = float(np.sum(np.abs(weights) * self._largest_weight[indices]))
        by_norm = float(np.sqrt(np.sum(np.square(weights, dtype=np.float64)))) * largest
        size += min(by_word, by_norm) + self._largest_bias
        return rounding(len(u) + min(len(indices), longest) + 4, size)


_NO_FEATURES: Int32 = np.zeros(0, np.int32)


def limits_of(floor: Floor | None, wanted: int, least: float) -> Limits:
    """Return what kernels take; −∞ for a part of a score where any will do."""
    if floor is None or floor.score is not None:
        return Limits(_NO_FEATURES, -math.inf, -math.inf, wanted, float(least))
    features = np.array(floor.words, np.int32)
    dense, lexical = float(floor.dense), float(floor.lexical)
    return Limits(features, dense, lexical, wanted, float(least))


# Candidates of the exact mode, by approximate scores from an index and bounds on their error.
#
# The outlines bound every score from above; the codes of the documents that may still be among the best give g = û·v̂
# + Σ s_w t̂_w + b, with a bound on both sides. Words are added in the order of their plan, until the remaining words
# could contribute less than the error of the codes, or less than a fiftieth of what all words could, and further
# while the lists are short. If too many candidates remain, the scan is repeated with more words. Documents without
# the evidence that a floor asks for are no candidates, as far as the bounds can tell.


rows_in_reach = direct(exact.rows_in_reach)
# The largest contribution of words left out, as a share of the largest contribution of all words.
_MAX_LEFT_OUT = 0.02
# So few candidates are ranked faster than reduced further.
_FEW = 192


def index_candidates(
    index: Index,
    query: CodedQuery,
    words: Int32,
    weights: Float32,
    wanted: int,
    score_parts: ScoreParts,
    deleted: Mask | None,
    least: float,
    floor: Floor | None = None,
) -> Int64:
    """Return the rows that may be among the top `wanted` and reach `least`, in no order; no other row can be.

    Args:
        least: A score that every wanted document reaches; −∞ if none is known.
        floor: Only documents that reach it are wanted.
    """
    if floor is not None and floor.score is not None:
        least, floor = max(least, floor.score), None
    has_bounds, rows, scores, below, above = rows_in_reach(
        index.tables, query, words, weights, mask_of(deleted), limits_of(floor, wanted, least),
        _MAX_LEFT_OUT,
    )  # fmt: skip
    if not has_bounds:
        return remaining(len(index.cells.rows), deleted)
    # The best by g may lack evidence, so with a floor their scores say nothing about the others.
    if floor is not None or len(rows) <= max(_FEW, 2 * wanted):
        return rows
    scanned = Scanned(scores, below, above)
    return rows[candidates(scanned, wanted, lambda places: score_parts(rows[places]), None)]


rows_reaching_score = direct(exact.rows_reaching_score)


def rows_from_score(
    index: Index,
    scratch: Scratch,
    query: CodedQuery,
    words: Int32,
    weights: Float32,
    wanted: int,
    deleted: Mask | None,
    floor: Floor | None,
    least: float,
) -> Int64 | None:
    """Find the rows that may be among the top `wanted` and reach `least`, from the lists of few words.

    Arguments are those of ``index_candidates``.

    Returns:
        The rows, in no order; None where only a scan of all documents tells: the score is not known, or the words of
        the query decide too little.
    """
    if least == -math.inf:
        return None
    try:
        is_found, rows = rows_reaching_score(
            index.tables, query, words, weights, mask_of(deleted), limits_of(floor, wanted, least),
            max(_FEW, 2 * wanted), scratch.buffers.scores,
        )  # fmt: skip
    except BaseException:  # a MemoryError, too, can come after sums were written
        scratch.clear()
        raise
    return rows if is_found else None


# Candidates of the fast mode: documents that a cheap estimate puts among the best, to be scored in float64.
#
#     read        the posting lists of the query's words, of frequent words the heads
#     estimated   û·v̂ + Σ impacts read + Σ of its signature's words + b:
#                 the best effort.sparse of the documents read, by Σ impacts read + ½ · u · (centre of their cell)
#                 every document of the effort.nprobe cells nearest to u
#                 every other document that may reach the k-th best of these, and the score asked for:
#                 u · centre + mean b of the cell + effort.margin · ‖u‖ · ‖v − centre‖ + Σ impacts read
#     returned    the best effort.rescored of those estimated
#
# Documents that lack the evidence that a floor asks for, by these estimates, are left out. A document of the other
# cells is estimated only if it has a word of the query, or if u·v may reach the floor: u · centre + effort.margin ·
# ‖u‖ · ‖v − centre‖.
#
# So a query with good matches estimates few documents, and one without many. The fast mode misses a document that its
# cell makes unlikely. How often that happens is measured when a bundle is made, and stored in its manifest.
#
# A filter that leaves a share p of the documents leaves that share of each list and cell, so more of them are read.
# Where it leaves fewer documents than the cells of a search have, all of these are estimated.

best_estimated = direct(fast.best_estimated)
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
        share: How many of the documents are not deleted.
    """
    cells, mask, asked = index.cells, mask_of(deleted), _NO_SLOTS
    nprobe = min(effort.nprobe, cells.n_cells) if query.length else 0
    if deleted is not None and share < 1:
        nprobe = min(round(nprobe * share**-0.5), cells.n_cells)
        if share * len(mask) <= max(_ESTIMATED, effort.nprobe * len(mask) / cells.n_cells):
            asked = cells.slots[remaining(len(mask), mask)].astype(np.int64)
    limits = limits_of(floor, wanted, least)
    limits = limits._replace(dense=limits.dense - query.error)
    reads = Reads(
        effort.depth, float(effort.floor), nprobe, effort.margin * query.length, effort.sparse,
        effort.rescored, index.rest(effort.depth), asked,
    )  # fmt: skip
    try:
        slots = best_estimated(
            index.tables, query, words, weights, mask, limits, reads, scratch.buffers
        )
    except BaseException:  # a MemoryError, too, can come after sums were written
        scratch.clear()
        raise
    rows: Int64 = cells.rows[slots].astype(np.int64)
    return rows


# Count the documents that reach a floor, by an index.
#
# An index gives both parts of all scores within bounds on the error; the few documents that may lie on either side of
# a floor are scored in float64, as hits are.

COUNTED = 10_000
"""Answers count exactly up to here."""
slots_with_evidence = direct(evidence.slots_with_evidence)


@np.errstate(over="ignore", invalid="ignore")
def rows_reaching(
    index: Index,
    query: CodedQuery,
    words: Int32,
    weights: Float32,
    floor: Floor,
    score_parts: ScoreParts,
    deleted: Mask | None,
    most: int,
) -> Int64:
    """Return the rows that reach the floor, in no order; of more than ``most``, more than ``most``."""
    rows = index.cells.rows
    certain: Int64 = np.zeros(0, np.int64)
    if floor.score is not None:
        may_be = index_candidates(
            index, query, words, weights, len(rows), score_parts, deleted, floor.score
        )
    else:
        slots, open_slots = slots_with_evidence(
            index.tables, query, words, weights, mask_of(deleted), limits_of(floor, 1, -math.inf), most
        )  # fmt: skip
        certain = rows[slots].astype(np.int64)
        if len(certain) > most:
            return certain
        may_be = rows[open_slots].astype(np.int64)
    return np.concatenate([certain, may_be[floor.reached(*score_parts(may_be))]])
