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
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fullrank.encoding import Float32, Float64, Int32, Int64, Rows
from fullrank.kernels.arrays import UInt8
from fullrank.kernels.lists import count_entries, fill_lists, with_entries
from fullrank.kernels.scan import plan_words
from fullrank.progress import Progress, silent
from fullrank.retrieval.index.codes import Create

# Between two reports of progress.
_CHUNK, _DOCUMENTS = 1 << 22, 1 << 16


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

    def slots_of(self, word: int) -> Int32:
        """Return the slots of the documents that have a word."""
        return self.slots[self.indptr[word] : self.indptr[word + 1]]

    def present(self, words: Int32, weights: Float32) -> tuple[Int32, Float32]:
        """Return the words of a query that documents have, and their weights."""
        if self._all_have_documents:
            return words, weights
        return with_entries(self.indptr, words, weights)

    @cached_property
    def _all_have_documents(self) -> bool:
        return bool((self.indptr[1:] > self.indptr[:-1]).all())

    def plan(self, words: Int32, weights: Float32) -> Plan:
        """Order a query's words by the width of their possible contribution per posting, widest first."""
        return Plan(*plan_words(self.indptr, self.limits, words, weights))


def build_postings(
    documents: Rows, order: Int32, create: Create, progress: Progress = silent
) -> Postings:
    """Transpose documents → words in two passes: the first finds the limits, the second the impacts.

    Args:
        documents: n rows.
        order: int32 (n,), the document of each slot.
        create: Makes each array.
        progress: Receives the number of entries done.
    """
    width, entries = documents.width, len(documents.indices)
    indices, values = np.asarray(documents.indices), np.asarray(documents.values)
    counts, limits = np.zeros(width, np.int64), create("limits", (width, 2), np.float32)
    for first in range(0, entries, _CHUNK):
        part = slice(first, first + _CHUNK)
        count_entries(indices[part], values[part], counts, np.asarray(limits))
        progress("postings", min(first + _CHUNK, entries), 2 * entries)
    indptr = create("postings.indptr", (width + 1,), np.int64)
    np.cumsum(counts, out=indptr[1:])
    slots = create("postings.slots", (entries,), np.int32)
    impacts = create("postings.impacts", (entries,), np.uint8)
    following = np.array(indptr[:-1])
    for start in range(0, len(order), _DOCUMENTS):
        stop = min(start + _DOCUMENTS, len(order))
        fill_lists(
            np.asarray(documents.indptr), indices, values, np.asarray(order), start, stop,
            np.asarray(limits), following, np.asarray(slots), np.asarray(impacts),
        )  # fmt: skip
        progress("postings", entries + entries * stop // len(order), 2 * entries)
    return Postings(indptr, slots, impacts, limits)
