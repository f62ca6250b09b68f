"""Candidates of the exact mode, by approximate scores from an index and bounds on their error.

The outlines bound every score from above; the codes of the documents that may still be among the best give
g = û·v̂ + Σ s_w t̂_w + b, with a bound on both sides. Words are added in the order of their plan, until the remaining
words could contribute less than the error of the codes, or less than a fiftieth of what all words could. If too many
candidates remain, the scan is repeated with more words. Documents without the evidence that a floor asks for are no
candidates, as far as the bounds can tell.
"""

from __future__ import annotations

import numpy as np

from fullrank.encoding import Float32, Int32, Int64
from fullrank.kernels.scan import scan_slots
from fullrank.retrieval.floor import Floor, floors_of
from fullrank.retrieval.full_scan import rounding
from fullrank.retrieval.index import Index
from fullrank.retrieval.index.query import CodedQuery
from fullrank.retrieval.ranking import NONE_DELETED, Mask, remaining
from fullrank.retrieval.select import Scanned, ScoreParts, candidates

# The largest contribution of words left out, as a share of the largest contribution of all words.
_MAX_LEFT_OUT = 0.02
# The scan is repeated with more words while there are more candidates than this per wanted hit, and more than
# _MIN_REFINED.
MAX_CANDIDATES_PER_HIT = 8
_MIN_REFINED = 1024
# So few candidates are ranked faster than reduced further.
_FEW = 64


@np.errstate(over="ignore", invalid="ignore")
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
    counted: int | None = None,
) -> tuple[Int64, int | None]:
    """Find the rows that may be among the top `wanted` and reach `least`; no other row can be.

    Args:
        index: The index.
        query: Its u, coded.
        words: The query's words, int32 (m,).
        weights: float32 (m,).
        wanted: k.
        score_parts: Scores given rows in float64.
        deleted: bool (n,), rows that must not be returned.
        least: A score that every wanted document reaches; −∞ if none is known.
        floor: Only documents that reach it are wanted.
        counted: Count the documents that reach the floor, up to one more than this; None: do not.

    Returns:
        The rows, in no order, and how many documents reach the floor; None where they were not counted.
    """
    if floor is not None and floor.score is not None:
        least, floor = max(least, floor.score), None
    if floor is None:
        counted = None
    features, dense, lexical = floors_of(floor)
    codes, postings, cells, outline = index.codes, index.postings, index.cells, index.outline
    mask = NONE_DELETED if deleted is None else deleted
    plan = postings.plan(words, weights)
    width = plan.above - plan.below
    size = query.size + float(width[0]) + codes.largest_bias
    rounded = rounding(len(plan.words) + 8, size)
    error, outline_error = query.error + rounded, query.outline_error + rounded
    if not max(error, outline_error) < np.inf:
        return remaining(len(cells.rows), deleted), None
    added = int(np.argmax(width <= max(2 * query.error, _MAX_LEFT_OUT * float(width[0]))))
    if counted is not None:
        added = len(plan.words)
    too_many = True
    while too_many:
        off = float(plan.errors[added]) + rounded
        left_below, left_above = float(plan.below[added]), float(plan.above[added])
        is_last = added == len(plan.words)
        most = len(cells.rows) if is_last else max(_MIN_REFINED, MAX_CANDIDATES_PER_HIT * wanted)
        slots, scores, too_many, n_certain, open_slots = scan_slots(
            query.outline, query.outline_scale, outline.codes, outline.scales, query.left, outline.rest,
            query.code, query.scale, codes.codes, codes.scales, codes.bias,
            postings.indptr, postings.slots, postings.impacts, postings.limits,
            plan.words[:added], plan.weights[:added], cells.rows, mask, features, dense, lexical,
            wanted, least, outline_error, error, off, left_below, left_above, most,
            -1 if counted is None else counted,
        )  # fmt: skip
        if too_many:
            added = max(min(added + 1, len(plan.words)), int(np.argmax(width <= width[added] / 2)))
    rows = cells.rows[slots].astype(np.int64)
    found = None
    if floor is not None and counted is not None:
        found = int(n_certain)
        if found <= counted:
            found += int(
                np.count_nonzero(
                    floor.reached(*score_parts(cells.rows[open_slots].astype(np.int64)))
                )
            )
        found = min(found, counted + 1)
    # The best by g may lack evidence, so with a floor their scores say nothing about the others.
    if floor is not None or len(rows) <= max(_FEW, 2 * wanted):
        return rows, found
    scanned = Scanned(scores, error + off - left_below, error + off + left_above)
    return rows[candidates(scanned, wanted, lambda places: score_parts(rows[places]), None)], None
