"""Candidates of the exact mode, by approximate scores û·v̂ + Σ s_w t̂_w + b from an index and a bound on their error.

Words are added in the order of their plan, until the remaining words could contribute less than the error of the
codes, or less than a fiftieth of what all words could. If too many candidates remain, the scan is repeated with more
words.
"""

from __future__ import annotations

import numpy as np

from fullrank.encoding import Float32, Int32, Int64
from fullrank.kernels.scan import scan_slots
from fullrank.retrieval.full_scan import rounding
from fullrank.retrieval.index import Index
from fullrank.retrieval.ranking import NONE_DELETED, Mask
from fullrank.retrieval.select import Scanned, ScoreParts, candidates

# The largest contribution of words left out, as a share of the largest contribution of all words.
_MAX_LEFT_OUT = 0.02
# The scan is repeated with more words while there are more candidates than this per wanted hit, and more than
# _MIN_REFINED.
MAX_CANDIDATES_PER_HIT = 8
_MIN_REFINED = 1024


@np.errstate(over="ignore", invalid="ignore")
def index_candidates(
    index: Index,
    u: Float32,
    words: Int32,
    weights: Float32,
    wanted: int,
    score_parts: ScoreParts,
    deleted: Mask | None,
) -> Int64:
    """Return the rows that may be among the top `wanted`, in no order; no other row can be.

    Args:
        index: The index.
        u: float32 (N,).
        words: The query's words, int32 (m,).
        weights: float32 (m,).
        wanted: k.
        score_parts: Scores given rows in float64.
        deleted: bool (n,), rows that must not be returned.
    """
    codes, postings, cells = index.codes, index.postings, index.cells
    mask = NONE_DELETED if deleted is None else deleted
    plan = postings.plan(words, weights)
    query = codes.code(u)
    width = plan.above - plan.below
    dense = float(np.linalg.norm(u.astype(np.float64))) * (codes.length + codes.error)
    size = dense + float(width[0]) + codes.largest_bias
    error = query.error + rounding(len(plan.words) + 8, size)
    if not error < np.inf:
        return np.arange(len(cells.rows)) if deleted is None else np.flatnonzero(~deleted)
    added = int(np.argmax(width <= max(2 * query.error, _MAX_LEFT_OUT * float(width[0]))))
    too_many = True
    while too_many:
        off = error + float(plan.errors[added])
        below, above = off - float(plan.below[added]), off + float(plan.above[added])
        is_last = added == len(plan.words)
        most = len(cells.rows) if is_last else max(_MIN_REFINED, MAX_CANDIDATES_PER_HIT * wanted)
        slots, scores, too_many = scan_slots(
            query.code, query.scale, codes.codes, codes.scales, codes.bias,
            postings.indptr, postings.slots, postings.impacts, postings.limits,
            plan.words[:added], plan.weights[:added],
            cells.rows, mask, wanted, below + above, most,
        )  # fmt: skip
        added = max(min(added + 1, len(plan.words)), int(np.argmax(width <= width[added] / 2)))
    rows = cells.rows[slots].astype(np.int64)
    found = Scanned(scores, below, above)
    return rows[candidates(found, wanted, lambda places: score_parts(rows[places]), None)]
