"""Count the documents that reach a floor, by an index.

An index gives both parts of all scores within bounds on the error; the few documents that may lie on either side of a
floor are scored in float64, as hits are.
"""

from __future__ import annotations

import numpy as np

from fullrank.encoding import Float32, Int32, Int64
from fullrank.kernels.evidence import slots_with_evidence
from fullrank.kernels.rounding import rounding
from fullrank.retrieval.floor import Floor
from fullrank.retrieval.index import Index
from fullrank.retrieval.index.query import CodedQuery
from fullrank.retrieval.index_scan import index_candidates
from fullrank.retrieval.ranking import NONE_DELETED, Mask, remaining
from fullrank.retrieval.select import ScoreParts

COUNTED = 10_000
"""Answers count exactly up to here."""
# Of a part of a score, and of its threshold in float32.
_ROUNDINGS = 12


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
    """Return the rows that reach the floor without a look at their words, in no order.

    If these are more than ``most``, more than ``most`` of them.

    Args:
        index: The index.
        query: Its u, coded.
        words: The query's words, int32 (m,).
        weights: float32 (m,).
        floor: The floor.
        score_parts: Scores given rows in float64.
        deleted: bool (n,), rows to leave out.
        most: Stop beyond this number.
    """
    codes, postings, outline, rows = index.codes, index.postings, index.outline, index.cells.rows
    count = len(rows)
    plan = postings.plan(words, weights)
    width = float(plan.above[0] - plan.below[0])
    off = rounding(len(plan.words) + _ROUNDINGS, width) + float(plan.errors[-1])
    rounded = rounding(_ROUNDINGS, query.size)
    certain: Int64 = np.zeros(0, np.int64)
    if not max(off, query.error + rounded, query.outline_error + rounded) < np.inf:
        may_be = remaining(count, deleted)
    elif floor.score is not None:
        may_be, _ = index_candidates(
            index, query, words, weights, count, score_parts, deleted, floor.score
        )
    else:
        slots, open_slots = slots_with_evidence(
            query.outline, query.outline_scale, outline.codes, outline.scales, query.left, outline.rest,
            query.code, query.scale, codes.codes, codes.scales,
            postings.indptr, postings.slots, postings.impacts, postings.limits,
            plan.words, plan.weights, rows, NONE_DELETED if deleted is None else deleted,
            floor.dense, floor.lexical, query.outline_error + rounded, query.error + rounded, off,
            most,
        )  # fmt: skip
        certain = rows[slots].astype(np.int64)
        if len(certain) > most:
            return certain
        may_be = rows[open_slots].astype(np.int64)
    return np.concatenate([certain, may_be[floor.reached(*score_parts(may_be))]])
