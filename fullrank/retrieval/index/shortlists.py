"""Short lists of frequent words, and a signature of each document: one bit per frequent word.

A list of half of all documents is slow to read and says little. The fast mode reads only its head, the documents in
which the word weighs most. For a document found in another way, the signature says whether the word is in it. If so,
the estimate adds the mean contribution of the word to the documents behind the head:

    rest_w = (Σ all impacts − Σ impacts read) / (documents − documents read)

A word has a list here if it is in the signatures, or in more than MAX_LIST_LENGTH documents. The signatures hold the
MAX_SIGNED_WORDS most frequent of the words that are in more than MIN_SIGNED_DOCUMENTS documents. The lists of all other
words are short enough to be read from the postings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float32, Float64, Int32, Int64
from fullrank.kernels.arrays import UInt8
from fullrank.kernels.fast import read_heads
from fullrank.retrieval.index.codes import Create
from fullrank.retrieval.index.postings import Postings
from fullrank.retrieval.scratch import Scratch

MAX_LIST_LENGTH = 8192
MAX_SIGNED_WORDS = 512
MIN_SIGNED_DOCUMENTS = 1024
_LEVELS = 255


class Heads(NamedTuple):
    """What was read of the lists of a query's words.

    Attributes:
        rows: int64, each row once.
        bits: int64, the places among the words of the signatures of the words that were read in part.
        values: float32, what each bit adds to an estimate. The scores leave that out, so that a document gets the sum
            of both.
    """

    rows: Int64
    bits: Int64
    values: Float32


@dataclass(frozen=True, eq=False)
class Shortlists:
    """Lists by impact, descending, then by row, and signatures.

    Attributes:
        indptr: int64 (F + 1,).
        rows: int32 (entries,).
        impacts: uint8 (entries,).
        signed: int32 (m,), ascending, the words of the signatures.
        means: float32 (m,), the mean impact of each over all its documents.
        signatures: uint8 (n, ⌈m / 8⌉); bit i & 7 of byte i >> 3 says whether a document has the word signed[i].
    """

    indptr: Int64
    rows: Int32
    impacts: UInt8
    signed: Int32
    means: Float32
    signatures: UInt8
    _rests: dict[int, Float64] = field(default_factory=dict, init=False, repr=False)

    def read(
        self,
        postings: Postings,
        words: Int32,
        weights: Float32,
        depth: int,
        floor: float,
        scratch: Scratch,
    ) -> Heads:
        """Add the heads of the lists of a query's words to `scratch.scores`.

        Args:
            postings: The lists of the other words.
            words: int32 (m,).
            weights: float32 (m,).
            depth: Entries to read of a word of the signatures, at least 1; other lists are read in full.
            floor: Stop where the word contributes less than this share of the largest contribution of any word.
            scratch: Its scores are zero before.
        """
        found = read_heads(
            words, weights, depth, floor,
            self.indptr, self.rows, self.impacts,
            postings.indptr, postings.rows, postings.impacts, postings.limits,
            self.signed, self._rest(postings, depth),
            scratch.scores, scratch.marks, scratch.next_mark(),
        )  # fmt: skip
        return Heads(*found)

    def _rest(self, postings: Postings, depth: int) -> Float64:
        """Return rest_w of the words of the signatures."""
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
    rows = create("champions.rows", (int(kept.sum()),), np.int32)
    impacts = create("champions.impacts", (int(kept.sum()),), np.uint8)
    for word in listed.tolist():
        every = slice(postings.indptr[word], postings.indptr[word + 1])
        at = slice(indptr[word], indptr[word + 1])
        impact = np.asarray(postings.impacts[every])
        # Weights may all be negative: order by absolute value.
        size = impact.astype(np.int16) * (1 if postings.limits[word, 1] > 0 else -1)
        order = np.argsort(-size, kind="stable")[: at.stop - at.start]
        rows[at], impacts[at] = postings.rows[every][order], impact[order]

    words = create("signatures.words", (len(signed),), np.int32)
    words[:] = signed
    means = create("signatures.means", (len(signed),), np.float32)
    signatures = create("signatures", (documents, -(-len(signed) // 8)), np.uint8)
    for i, word in enumerate(signed.tolist()):
        every = slice(postings.indptr[word], postings.indptr[word + 1])
        means[i] = postings.impacts[every].mean(dtype=np.float64)
        signatures[postings.rows[every], i >> 3] |= np.uint8(1 << (i & 7))
    return Shortlists(indptr, rows, impacts, words, means, signatures)


def shapes(
    lists: Shortlists, width: int, documents: int
) -> list[tuple[str, npt.NDArray[Any], str, tuple[int, ...]]]:
    """Return name, array, dtype and shape of each part, for an index of `width` words."""
    kept, signed = len(lists.rows), len(lists.signed)
    return [
        ("champions.indptr", lists.indptr, "<i8", (width + 1,)),
        ("champions.rows", lists.rows, "<i4", (kept,)),
        ("champions.impacts", lists.impacts, "|u1", (kept,)),
        ("signatures.words", lists.signed, "<i4", (signed,)),
        ("signatures.means", lists.means, "<f4", (signed,)),
        ("signatures", lists.signatures, "|u1", (documents, -(-signed // 8))),
    ]
