"""The lexical part: s of queries, t of documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.encoding import Float32, Int32, Rows
from fullrank.text.features import Vocabulary, bm25, saturate, tfidf
from fullrank.text.phrases import Phrases
from fullrank.text.variants import Variants, share_table, spread


@dataclass(frozen=True, eq=False)
class SparseSide:
    """The lexical part: word weights of queries, and of documents per field with D folded in.

    Attributes:
        words: The documents' vocabulary, hash buckets included; only these words can match.
        idf: float32 (W,).
        D: float32 (fields, W), the diagonals.
        phrases: Titles as features, after the words.
        P: float32 (phrases,), their weights: idf times diagonal.
        scheme: "bm25", "tfidf" or "none".
        terms: The number of words to keep of a query, those of the largest weight times idf; 0 keeps all.
        variants: Sources of the known words that a query's word may stand for, the first one first.
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
    variants: Sequence[Variants] = ()

    @property
    def width(self) -> int:
        """F, the number of sparse features."""
        return len(self.words) + len(self.phrases)

    def query(self, words: Sequence[str], counts: Rows, phrases: Rows) -> Rows:
        """Compute s of queries from counts over `words` and counts of the known phrases."""
        target = self.words.rows(words)
        found = counts.remap_columns(target, len(self.words))
        if self.scheme == "none":
            return Rows.empty(len(found), found.width + phrases.width)
        shares = share_table(words, counts, self.variants, len(self.words))
        if self.scheme == "bm25":
            rows = self._top(saturate(found, self.k3))
            if shares is not None:
                # A variant gets its share of the weight that the word itself has, or would have.
                weights = self._kept(saturate(counts, self.k3), target, rows)
                rows = Rows.add([rows, spread(weights, shares)])
        else:
            if shares is not None:
                found = Rows.add([found, spread(counts, shares)])
            rows = self._top(tfidf(found, self.idf))
        return Rows.hstack(rows, saturate(phrases, self.k3))

    def _top(self, rows: Rows) -> Rows:
        """Keep the top words of queries."""
        if not self.terms:
            return rows
        weighted = rows.with_values(rows.values * self.idf[rows.indices])
        kept = weighted.top_entries(self.terms)
        return kept.with_values(kept.values / self.idf[kept.indices])

    def _kept(self, weights: Rows, target: Int32, rows: Rows) -> Rows:
        """Zero the known words that are not in `rows`, so that a query does not get their variants either."""
        if not self.terms:
            return weights
        width = np.int64(len(self.words))
        owner = np.repeat(np.arange(len(weights)), np.diff(weights.indptr))
        of_rows = np.repeat(np.arange(len(rows)), np.diff(rows.indptr)) * width + rows.indices
        place = target[weights.indices]
        is_kept = (place < 0) | np.isin(owner * width + place, of_rows)
        return weights.with_values(np.where(is_kept, weights.values, 0))

    def field(self, words: Sequence[str], counts: Rows, index: int) -> Rows:
        """Compute z_f: the weights of field `index` over the words, before its diagonal."""
        found = counts.remap_columns(self.words.rows(words), len(self.words))
        if self.scheme == "none":
            return Rows.empty(len(found), found.width)
        if self.scheme == "tfidf":
            return tfidf(found, self.idf)
        mean = self.mean_lengths[index]
        return bm25(found, self.idf, k1=self.k1, b=self.b, mean_length=mean)

    def document(self, fields: Sequence[Rows], own: Rows) -> Rows:
        """Compute t = Σ_f D_f z_f, then the phrase that each title is."""
        parts = [z.with_values(z.values * self.D[f, z.indices]) for f, z in enumerate(fields)]
        return Rows.hstack(Rows.add(parts), own.with_values(own.values * self.P[own.indices]))
