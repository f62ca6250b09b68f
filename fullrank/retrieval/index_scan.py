"""Candidates of the exact mode, by approximate scores from an index and bounds on their error.

The outlines bound every score from above; the codes of the documents that may still be among the best give
g = û·v̂ + Σ s_w t̂_w + b, with a bound on both sides. Words are added in the order of their plan, until the remaining
words could contribute less than the error of the codes, or less than a fiftieth of what all words could, and further
while the lists are short. If too many candidates remain, the scan is repeated with more words. Documents without the
evidence that a floor asks for are no candidates, as far as the bounds can tell.
"""

from __future__ import annotations

import numpy as np

from fullrank.encoding import Float32, Int32, Int64
from fullrank.kernels.exact import rows_in_reach
from fullrank.retrieval.floor import Floor, floors_of
from fullrank.retrieval.index import Index
from fullrank.retrieval.index.query import CodedQuery
from fullrank.retrieval.ranking import NONE_DELETED, Mask, remaining
from fullrank.retrieval.select import Scanned, ScoreParts, candidates

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
    codes, lists, cells, outline = index.codes, index.postings, index.cells, index.outline
    has_bounds, rows, scores, below, above, n_certain, open_rows = rows_in_reach(
        query.outline, query.outline_scale, outline.codes, outline.scales, query.left, outline.rest,
        query.code, query.scale, codes.codes, codes.scales, codes.bias,
        lists.indptr, lists.slots, lists.impacts, lists.limits, words, weights,
        cells.rows, NONE_DELETED if deleted is None else deleted, features, dense, lexical,
        wanted, least, query.error, query.outline_error, query.size + codes.largest_bias,
        _MAX_LEFT_OUT, -1 if counted is None else counted,
    )  # fmt: skip
    if not has_bounds:
        return remaining(len(cells.rows), deleted), None
    found = None
    if floor is not None and counted is not None:
        found = n_certain
        if found <= counted:
            found += int(np.count_nonzero(floor.reached(*score_parts(open_rows))))
        found = min(found, counted + 1)
    # The best by g may lack evidence, so with a floor their scores say nothing about the others.
    if floor is not None or len(rows) <= max(_FEW, 2 * wanted):
        return rows, found
    scanned = Scanned(scores, below, above)
    return rows[candidates(scanned, wanted, lambda places: score_parts(rows[places]), None)], None
