"""The dense part of one side: u = U φ(q) or v = V φ(d), through a tower if the model has one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fullrank.encoding import Float32, Int32, Int64, Rows
from fullrank.kernels import encode as kernels
from fullrank.models.linear.towers import Tower
from fullrank.text.bigrams import is_bigram
from fullrank.text.features import Vocabulary, damped, tfidf, trigram_rows, unit


@dataclass(frozen=True, eq=False)
class DenseSide:
    """φ, the table that multiplies it, and the layers above.

    Attributes:
        words: The vocabulary of this side.
        idf: float32 (W + 1,), of each word, and last of unknown words.
        table: float32 (W, N), U or V with the trigrams of each word added.
        trigrams: Known letter trigrams; without any, unknown words are ignored.
        trigram_table: float32 (G, N).
        terms: The number of top words to keep of a text; 0 keeps all.
        counted: φ is not a tf-idf unit vector but counts: tf of a word times the root of its number of trigrams, so
            that each trigram counts as often as it occurs.
        tower: The layers above the table; a text without features stays at zero.
    """

    words: Vocabulary
    idf: Float32
    table: Float32
    trigrams: Vocabulary = field(default_factory=lambda: Vocabulary([]))
    trigram_table: Float32 = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    terms: int = 0
    counted: bool = False
    tower: Tower = field(default_factory=Tower)

    @cached_property
    def width(self) -> int:
        """N, the number of dense dimensions."""
        return self.tower.width(self.table.shape[1])

    @cached_property
    def has_bigrams(self) -> bool:
        """Whether φ counts 2-grams."""
        return any(map(is_bigram, self.words.words))

    def features(
        self, words: Sequence[str], columns: Sequence[Rows], weights: Sequence[float]
    ) -> tuple[Rows, list[str]]:
        """Compute φ of texts.

        Args:
            words: The words of the columns of each matrix.
            columns: Counts, one matrix per field.
            weights: One weight per field; 0 leaves a field out.

        Returns:
            Unit rows over the vocabulary followed by the unknown words, and the unknown words, ascending.
        """
        target, unseen = self._rows(words)
        factor = self._factor
        if unseen:
            factor = np.concatenate([factor, self._late_factor(unseen)])
        weigh = _scale if self.counted else tfidf
        parts = []
        for rows, weight in zip(columns, weights, strict=True):
            if not weight:
                continue
            part = weigh(rows.remap_columns(target, len(factor)), factor)
            parts.append(part.with_values(part.values * np.float32(weight)))
        found = Rows.add(parts).top_entries(self.terms)
        return found if self.counted else unit(found), unseen

    def _rows(self, words: Sequence[str]) -> tuple[Int32, list[str]]:
        """Return the row of each word, -1 where it has none, and the unknown words; those come after the vocabulary."""
        target = self.words.rows(words)
        unseen: list[str] = []
        if len(self.trigrams) and target.min(initial=0) < 0:
            missing = np.flatnonzero(target < 0)
            unseen, target = [words[i] for i in missing.tolist()], target.copy()
            target[missing] = len(self.words) + np.arange(len(missing), dtype=np.int32)
        return target, unseen

    @cached_property
    def _factor(self) -> Float32:
        """The factor of the count of each word of the vocabulary: idf, or the root of its number of trigrams."""
        known = len(self.words)
        if not self.counted:
            return self.idf[:known]
        return (
            _trigram_roots(self.words.words) if len(self.trigrams) else np.ones(known, np.float32)
        )

    def _late_factor(self, unseen: Sequence[str]) -> Float32:
        """Return the factors of unknown words."""
        if self.counted:
            return _trigram_roots(unseen)
        return np.full(len(unseen), self.idf[len(self.words)], np.float32)

    def rows_for(self, unseen: Sequence[str]) -> Float32:
        """Return the vectors of unknown words, the sums of their trigrams, float32 (len(unseen), N)."""
        return trigram_rows(unseen, self.trigrams).matmul(self.trigram_table)

    def embed(
        self, words: Sequence[str], columns: Sequence[Rows], weights: Sequence[float]
    ) -> Float32:
        """Compute U φ, or the tower over it, float32 (B, N)."""
        x, unseen = self.features(words, columns, weights)
        known = len(self.words)
        dense = x.columns(0, known).matmul(self.table)
        if unseen:
            dense = dense + x.columns(known, x.width).matmul(self.rows_for(unseen))
        return self._finish(dense, np.diff(x.indptr))

    def embed_queries(self, words: Sequence[str], counts: Rows) -> Float32:
        """Compute U φ of queries, or the tower over it, float32 (B, N); `embed` with one field, in one pass."""
        target, unseen = self._rows(words)
        weights = counts.values if self.counted else damped(counts.values)
        late_factor, late = self.idf[:0], self.table[:0]
        if unseen:
            late_factor, late = self._late_factor(unseen), self.rows_for(unseen)
        dense, sizes = kernels.embed(
            counts.indptr,
            counts.indices,
            weights,
            target,
            self._factor,
            late_factor,
            self.table,
            late,
            self.terms,
            int(not self.counted),
        )
        return self._finish(dense, sizes)

    def _finish(self, dense: Float32, sizes: Int64) -> Float32:
        """Apply the tower; a text without features, whose size is 0, stays at zero."""
        if self.tower:
            dense = self.tower.apply(np.asarray(dense, np.float32))
            dense[sizes == 0] = 0
        return np.ascontiguousarray(dense, np.float32)


def _scale(counts: Rows, factor: Float32) -> Rows:
    return counts.with_values(counts.values * factor[counts.indices])


def _trigram_roots(words: Sequence[str]) -> Float32:
    """Return √ of the number of trigrams of `#word#`, which is the number of letters of the word."""
    return np.sqrt(np.array([len(word) for word in words], np.float32))
