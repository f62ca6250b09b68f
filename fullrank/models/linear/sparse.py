"""The exact-match part: s of queries, t of documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.encoding import Float32
from fullrank.features import (
    Rows,
    Vocabulary,
    beside,
    bm25,
    moved,
    saturate,
    strongest,
    summed,
    tfidf,
)
from fullrank.text.phrases import Phrases


@dataclass(frozen=True, eq=False)
class SparseSide:
    """The exact-match part: term weights of queries, and of documents per field with D folded in.

    words     the documents' vocabulary, hash buckets included: the only words both sides share
    idf       float32 (W,)
    D         float32 (fields, W): the diagonals
    phrases   titles as features, after the words
    P         float32 (phrases,): their weights, idf and diagonal in one
    scheme    "bm25", "tfidf" or "none"
    terms     keep the so many words of a query that weigh most (weight times idf); 0 keeps all
    """

    words: Vocabulary
    idf: Float32
    D: Float32
    phrases: Phrases
    P: Float32
    scheme: str
    k1: float = 1.2
    b: float = 0.75
    k3: float = 1.0
    terms: int = 0
    mean_lengths: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """F."""
        return len(self.words) + len(self.phrases)

    def query(self, words: Sequence[str], counts: Rows, phrases: Rows) -> Rows:
        """s of each query; ``counts`` over ``words``, ``phrases`` over the known phrases."""
        found = moved(counts, self.words.rows(words), len(self.words))
        if self.scheme == "none":
            return beside(_empty_like(found), _empty_like(phrases))
        rows = saturate(found, self.k3) if self.scheme == "bm25" else tfidf(found, self.idf)
        if self.terms:
            kept = strongest(rows.with_values(rows.values * self.idf[rows.indices]), self.terms)
            rows = kept.with_values(kept.values / self.idf[kept.indices])
        return beside(rows, saturate(phrases, self.k3))

    def field(self, words: Sequence[str], counts: Rows, index: int) -> Rows:
        """z_f: the weights of field ``index``, before its diagonal, over the words alone."""
        found = moved(counts, self.words.rows(words), len(self.words))
        if self.scheme == "none":
            return _empty_like(found)
        if self.scheme == "tfidf":
            return tfidf(found, self.idf)
        mean = self.mean_lengths[index]
        return bm25(found, self.idf, k1=self.k1, b=self.b, mean_length=mean)

    def document(self, fields: Sequence[Rows], own: Rows) -> Rows:
        """t = Σ_f D_f z_f, then the phrase each document's title is."""
        parts = [z.with_values(z.values * self.D[f, z.indices]) for f, z in enumerate(fields)]
        return beside(summed(parts), own.with_values(own.values * self.P[own.indices]))


def _empty_like(rows: Rows) -> Rows:
    return Rows(
        np.zeros_like(rows.indptr), np.zeros(0, np.int32), np.zeros(0, np.float32), rows.width
    )
