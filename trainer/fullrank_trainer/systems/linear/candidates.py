"""The candidates of a softmax step: the judged documents of its queries, those that people passed over, and a sample.

A training repeats the step thousands of times, so nothing here allocates an array with an entry for every document of
the collection: rows are sorted, and a small hash table gives the place of each. One list is longer than the candidates:
numpy shuffles all rows of a pool of which it draws more than a fiftieth.
"""

from __future__ import annotations

import numpy as np

from fullrank.encoding import Int32, Int64
from fullrank_trainer.compiled import compiled
from fullrank_trainer.features.pairs import Pairs


def choose_candidates(
    pairs: Pairs,
    queries: Int64,
    positives: Int64,
    pool: int | Int64,
    count: int,
    rng: np.random.Generator,
) -> Int64:
    """Choose the candidates of a step.

    Args:
        pairs: the judged pairs.
        queries: rows of the queries of the step.
        positives: rows of the documents that the queries learn from; all of them become candidates.
        pool: rows of the documents to sample from; a number stands for all rows below it.
        count: sample this many candidates less those that are chosen without a sample, as far as the pool allows.
        rng: draws the sample, which can contain documents that are candidates already.

    Returns:
        int64 (candidates,), rows of documents, ascending.
    """
    chosen = _distinct(np.concatenate([positives, *_passed_over(pairs, queries)]))
    missing = min(count, pool if isinstance(pool, int) else len(pool)) - len(chosen)
    if missing <= 0:
        return chosen
    # Given a number, numpy draws the same rows as from a list of all rows.
    return _distinct(np.concatenate([chosen, rng.choice(pool, missing, replace=False)]))


def places_of(candidates: Int64, documents: Int64) -> Int64:
    """Return the place of each document among the candidates; -1 if it is no candidate.

    Args:
        candidates: distinct rows of documents.
        documents: rows of documents, in any order; -1 is no candidate.

    Example:
        >>> places_of(np.array([2, 5, 7]), np.array([7, 3, -1, 2]))
        array([ 2, -1, -1,  0])
    """
    bits = 1 + len(candidates).bit_length()  # at most half of the slots are in use
    places = np.empty(len(documents), np.int64)
    _look_up(candidates, documents, np.full(1 << bits, -1, np.int32), 64 - bits, places)
    return places


def _passed_over(pairs: Pairs, queries: Int64) -> list[Int64]:
    """Return the judged documents that people passed over after some queries: negatives that are hard to tell apart."""
    if not pairs.passed_over:
        return []
    rows = pairs.passed_over.of_rows(queries).entries
    judged = pairs.documents
    places = np.searchsorted(judged, rows)
    places[places == len(judged)] = 0
    return [rows[judged[places] == rows]]


def _distinct(rows: Int64) -> Int64:
    """Return the distinct rows, ascending; for a few thousand ten times as fast as np.unique."""
    rows = np.sort(rows)
    first = np.ones(len(rows), np.bool_)
    np.not_equal(rows[1:], rows[:-1], out=first[1:])
    return rows[first]


@compiled()
def _slot(row: int, shift: int) -> np.int64:
    """Return where to start looking for a row: the upper bits of its product with 2⁶⁴ / golden ratio."""
    return np.int64((np.uint64(row) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(shift))


@compiled()
def _look_up(candidates: Int64, documents: Int64, table: Int32, shift: int, places: Int64) -> None:
    """Write the place of each document; ``table`` has 2^(64 − shift) slots of -1, more than there are candidates."""
    last = len(table) - 1
    for place in range(len(candidates)):
        slot = _slot(candidates[place], shift)
        while table[slot] >= 0:
            slot = (slot + 1) & last
        table[slot] = place
    for i in range(len(documents)):
        slot = _slot(documents[i], shift)
        while table[slot] >= 0 and candidates[table[slot]] != documents[i]:
            slot = (slot + 1) & last
        places[i] = table[slot]
