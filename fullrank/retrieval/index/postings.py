"""Posting lists: word → slots of documents, each with an 8-bit impact.

    slots     ascending inside a word
    t̂_wd     = low_w + step_w · impact        step_w = (high_w − low_w) / 255

low and high are the smallest and the largest weight of a word among its documents. A word with equal weights is
therefore stored without error, and otherwise |s_w t_wd − s_w t̂_wd| ≤ |s_w| step_w / 2.

A word with a long list costs much to add and, if its weight is low, changes little. `Postings.plan` puts such words
last; a word that is never added contributes between min(0, s_w low_w) and max(0, s_w high_w).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float32, Float64, Int32, Int64, Rows
from fullrank.kernels.arrays import UInt8
from fullrank.kernels.rows import count_entries, fill_lists, with_entries
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


# Short lists of frequent words, and a signature of each document: one bit per frequent word.
#
# A list of half of all documents is slow to read and says little. The fast mode reads only its head, the documents in
# which the word weighs most. For a document found in another way, the signature says whether the word is in it. If
# so, the estimate adds the mean contribution of the word to the documents behind the head:
#
#     rest_w = (Σ all impacts − Σ impacts read) / (documents − documents read)
#
# A word has a list here if it is in the signatures, or in more than MAX_LIST_LENGTH documents. The signatures hold
# the MAX_SIGNED_WORDS most frequent of the words that are in more than MIN_SIGNED_DOCUMENTS documents. The lists of
# all other words are short enough to be read from the postings.

MAX_LIST_LENGTH = 8192
MAX_SIGNED_WORDS = 512
MIN_SIGNED_DOCUMENTS = 1024


@dataclass(frozen=True, eq=False)
class Shortlists:
    """Lists by impact, descending, then by slot, and signatures by slot.

    Attributes:
        indptr: int64 (F + 1,).
        slots: int32 (entries,).
        impacts: uint8 (entries,).
        signed: int32 (m,), ascending, the words of the signatures.
        means: float32 (m,), the mean impact of each over all its documents.
        signatures: uint8 (n, ⌈m / 8⌉); bit i & 7 of byte i >> 3 says whether a document has the word signed[i].
    """

    indptr: Int64
    slots: Int32
    impacts: UInt8
    signed: Int32
    means: Float32
    signatures: UInt8
    _rests: dict[int, Float64] = field(default_factory=dict, init=False, repr=False)

    def rest(self, postings: Postings, depth: int) -> Float64:
        """Return rest_w of the words of the signatures, where `depth` entries of a list are read."""
        known = self._rests.get(depth)
        if known is None:
            known = self.means.astype(np.float64)
            count = postings.indptr[self.signed + 1] - postings.indptr[self.signed]
            for i, word in enumerate(self.signed.tolist()):
                start, stop = self.indptr[word], self.indptr[word + 1]
                read = self.impacts[start : min(stop, start + depth)]
                left = int(count[i]) - len(read)
                if left > 0:
                    known[i] = (known[i] * count[i] - read.sum(dtype=np.float64)) / left
            self._rests[depth] = known
        return known


def build_shortlists(postings: Postings, documents: int, create: Create) -> Shortlists:
    """Build the lists and the signatures."""
    counts = np.diff(postings.indptr)
    most = np.argsort(-counts, kind="stable")[:MAX_SIGNED_WORDS]
    signed = np.sort(most[counts[most] > MIN_SIGNED_DOCUMENTS])
    listed = np.union1d(signed, np.flatnonzero(counts > MAX_LIST_LENGTH))
    kept = np.zeros(len(counts), np.int64)
    kept[listed] = np.minimum(counts[listed], MAX_LIST_LENGTH)
    indptr = create("champions.indptr", (len(counts) + 1,), np.int64)
    np.cumsum(kept, out=indptr[1:])
    slots = create("champions.slots", (int(kept.sum()),), np.int32)
    impacts = create("champions.impacts", (int(kept.sum()),), np.uint8)
    for word in listed.tolist():
        every = slice(postings.indptr[word], postings.indptr[word + 1])
        at = slice(indptr[word], indptr[word + 1])
        impact = np.asarray(postings.impacts[every])
        # Weights may all be negative: order by absolute value.
        size = impact.astype(np.int16) * (1 if postings.limits[word, 1] > 0 else -1)
        order = np.argsort(-size, kind="stable")[: at.stop - at.start]
        slots[at], impacts[at] = postings.slots[every][order], impact[order]

    words = create("signatures.words", (len(signed),), np.int32)
    words[:] = signed
    means = create("signatures.means", (len(signed),), np.float32)
    signatures = create("signatures", (documents, -(-len(signed) // 8)), np.uint8)
    for i, word in enumerate(signed.tolist()):
        every = slice(postings.indptr[word], postings.indptr[word + 1])
        means[i] = postings.impacts[every].mean(dtype=np.float64)
        signatures[postings.slots[every], i >> 3] |= np.uint8(1 << (i & 7))
    return Shortlists(indptr, slots, impacts, words, means, signatures)


def no_shortlists(width: int) -> Shortlists:
    """Return the lists of an index without a fast mode, for `width` words."""
    nothing, no_impacts = np.zeros(0, np.int32), np.zeros(0, np.uint8)
    ends, no_means = np.zeros(width + 1, np.int64), np.zeros(0, np.float32)
    return Shortlists(ends, nothing, no_impacts, nothing, no_means, np.zeros((0, 0), np.uint8))


def shapes(
    lists: Shortlists, width: int, documents: int
) -> list[tuple[str, npt.NDArray[Any], str, tuple[int, ...]]]:
    """Return name, array, dtype and shape of each part, for an index of `width` words."""
    kept, signed = len(lists.slots), len(lists.signed)
    return [
        ("champions.indptr", lists.indptr, "<i8", (width + 1,)),
        ("champions.slots", lists.slots, "<i4", (kept,)),
        ("champions.impacts", lists.impacts, "|u1", (kept,)),
        ("signatures.words", lists.signed, "<i4", (signed,)),
        ("signatures.means", lists.means, "<f4", (signed,)),
        ("signatures", lists.signatures, "|u1", (documents, -(-signed // 8))),
    ]
