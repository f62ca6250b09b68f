"""Posting lists: word → slots of documents, each with an 8-bit impact.

    slots     ascending inside a word
    t̂_wd     = low_w + step_w · impact        step_w = (high_w − low_w) / 255

low and high are the smallest and the largest weight of a word among its documents. A word with equal weights is
therefore stored without error, and otherwise |s_w t_wd − s_w t̂_wd| ≤ |s_w| step_w / 2.

A word with a long list costs much to add and, if its weight is low, changes little. `Postings.plan` puts such words
last; a word that is never added contributes between min(0, s_w low_w) and max(0, s_w high_w).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fullrank.encoding import Float32, Float64, Int32, Int64, Rows
from fullrank.kernels.arrays import UInt8
from fullrank.kernels.scan import LEVELS, add_impacts, plan_words
from fullrank.progress import Progress, silent
from fullrank.retrieval.index.codes import Create

# Entries per chunk while building; each takes several times 12 bytes.
_CHUNK = 1 << 22


class Plan(NamedTuple):
    """The words of one query that have postings, in the order to add them.

    Attributes:
        words: int32 (m,).
        weights: float64 (m,), s_w.
        below: float64 (m + 1,), the least that the words from i on can contribute; 0 at m.
        above: float64 (m + 1,), the most.
        errors: float64 (m + 1,), Σ |s_w| step_w / 2 of the first i words: the largest error of what they contribute.
    """

    words: Int32
    weights: Float64
    below: Float64
    above: Float64
    errors: Float64


@dataclass(frozen=True, eq=False)
class Postings:
    """The posting lists of F words.

    Attributes:
        indptr: int64 (F + 1,).
        slots: int32 (entries,).
        impacts: uint8 (entries,).
        limits: float32 (F, 2), low and high.
    """

    indptr: Int64
    slots: Int32
    impacts: UInt8
    limits: Float32

    def plan(self, words: Int32, weights: Float32) -> Plan:
        """Order a query's words by the width of their possible contribution per posting, widest first."""
        return Plan(*plan_words(self.indptr, self.limits, words, weights))

    def add(self, words: Int32, weights: Float64, scores: Float32) -> None:
        """Add s_w t̂_wd to the scores of the slots of each word."""
        add_impacts(self.indptr, self.slots, self.impacts, self.limits, words, weights, scores)


def build_postings(
    documents: Rows, order: Int32, create: Create, progress: Progress = silent
) -> Postings:
    """Transpose documents → words, a chunk of documents at a time.

    Each chunk appends its entries to the lists of its words, so slots ascend without a sort of all entries. There are
    two passes over the documents, because the limits must be known before the first impact is written.

    Args:
        documents: n rows.
        order: int32 (n,), the document of each slot.
        create: Makes each array.
        progress: Receives the number of entries done.
    """
    width, entries = documents.width, len(documents.indices)
    counts = np.zeros(width, np.int64)
    limits = create("limits", (width, 2), np.float32)
    low, high = np.full(width, np.inf, np.float32), np.full(width, -np.inf, np.float32)
    for first, last in _chunks(documents.indptr):
        words, weights = np.asarray(documents.indices[first:last]), documents.values[first:last]
        counts += np.bincount(words, minlength=width)
        np.minimum.at(low, words, weights)
        np.maximum.at(high, words, weights)
        progress("postings", last, 2 * entries)
    limits[:, 0] = np.where(counts > 0, low, 0)
    limits[:, 1] = np.where(counts > 0, high, 0)
    indptr = create("postings.indptr", (width + 1,), np.int64)
    np.cumsum(counts, out=indptr[1:])

    slots = create("postings.slots", (entries,), np.int32)
    impacts = create("postings.impacts", (entries,), np.uint8)
    step = np.maximum(limits[:, 1].astype(np.float64) - limits[:, 0], 0) / LEVELS
    following = np.array(indptr[:-1])
    sizes = np.diff(documents.indptr)[order]
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    for first, last in _chunks(ends):
        start, stop = np.searchsorted(ends, (first, last), side="right") - 1
        part = documents.take(order[start:stop].astype(np.int64))
        words, weights = part.indices, part.values
        owner = np.repeat(np.arange(start, stop, dtype=np.int32), np.diff(part.indptr))
        by_word = np.argsort(words, kind="stable")
        words = words[by_word]
        found, begin, many = np.unique(words, return_index=True, return_counts=True)
        place = following[words] + np.arange(len(words)) - np.repeat(begin, many)
        slots[place] = owner[by_word]
        above = weights[by_word].astype(np.float64) - limits[words, 0]
        share = np.divide(above, step[words], out=np.zeros(len(words)), where=step[words] > 0)
        impacts[place] = np.clip(np.rint(share), 0, LEVELS).astype(np.uint8)
        following[found] += many
        progress("postings", entries + last, 2 * entries)
    return Postings(indptr, slots, impacts, limits)


def _chunks(indptr: Int64) -> list[tuple[int, int]]:
    """Cut the entries into chunks of whole documents, about _CHUNK entries each."""
    ends = np.searchsorted(indptr, np.arange(_CHUNK, indptr[-1] + _CHUNK, _CHUNK), side="left")
    bounds = np.unique(np.concatenate([[0], indptr[np.minimum(ends, len(indptr) - 1)]]))
    return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
