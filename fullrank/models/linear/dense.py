"""The learned part of one side: u = U φ(q) or v = V φ(d), under a tower where the model has one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fullrank.encoding import Float32
from fullrank.features import (
    Rows,
    Vocabulary,
    moved,
    strongest,
    summed,
    tfidf,
    times,
    trigram_rows,
    unit,
)
from fullrank.models.linear.towers import Tower


@dataclass(frozen=True, eq=False)
class DenseSide:
    """One tower: φ and the table that multiplies it.

    words          the vocabulary of this side
    idf            float32 (W + 1,): of each word, and last of unseen words
    table          float32 (W, N): U or V with the trigrams of each word added
    trigrams       known letter trigrams; none leaves unseen words out
    trigram_table  float32 (G, N)
    terms          keep the strongest so many words of a text; 0 keeps all
    counted        φ is not a tf-idf unit vector but counts: tf of a word times the root of its number
                   of trigrams, so that every trigram counts as often as it occurs
    tower          the layers above the table; a text without features stays at zero under them
    """

    words: Vocabulary
    idf: Float32
    table: Float32
    trigrams: Vocabulary = field(default_factory=lambda: Vocabulary([]))
    trigram_table: Float32 = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    terms: int = 0
    counted: bool = False
    tower: Tower = field(default_factory=Tower)

    @property
    def width(self) -> int:
        """N."""
        return self.tower.width(self.table.shape[1])

    def features(
        self, words: Sequence[str], columns: Sequence[Rows], weights: Sequence[float]
    ) -> tuple[Rows, list[str]]:
        """φ of texts given as counts over ``words``, one matrix and weight per field.

        Returns unit rows over the vocabulary followed by the unseen words, and those words, ascending.
        A field of weight 0 is left out.
        """
        known = len(self.words)
        target = self.words.rows(words)
        unseen: list[str] = []
        if len(self.trigrams):
            missing = np.flatnonzero(target < 0)
            unseen = [words[i] for i in missing.tolist()]
            target[missing] = known + np.arange(len(missing), dtype=np.int32)
        factor = self._factor(unseen)
        weigh = _times if self.counted else tfidf
        parts = []
        for rows, weight in zip(columns, weights, strict=True):
            if not weight:
                continue
            part = weigh(moved(rows, target, len(factor)), factor)
            parts.append(part.with_values(part.values * np.float32(weight)))
        found = strongest(summed(parts), self.terms)
        return found if self.counted else unit(found), unseen

    def _factor(self, unseen: Sequence[str]) -> Float32:
        """idf, or the factors that make counts of trigrams, of the vocabulary and of unseen words."""
        known = len(self.words)
        if not self.counted:
            if not unseen:
                return self.idf[:known]
            more = np.full(len(unseen), self.idf[known], np.float32)
            return np.concatenate([self.idf[:known], more])
        if not len(self.trigrams):
            return np.ones(known, np.float32)
        return np.concatenate([self._roots, _trigram_roots(unseen)])

    @cached_property
    def _roots(self) -> Float32:
        return _trigram_roots(self.words.words)

    def rows_for(self, unseen: Sequence[str]) -> Float32:
        """The vectors of unseen words, made of their trigrams, float32 (len(unseen), N)."""
        return np.asarray(trigram_rows(unseen, self.trigrams).csr() @ self.trigram_table)

    def embed(
        self, words: Sequence[str], columns: Sequence[Rows], weights: Sequence[float]
    ) -> Float32:
        """U φ, or what the tower makes of it, float32 (B, N)."""
        x, unseen = self.features(words, columns, weights)
        if unseen:
            matrix = x.csr()
            dense = np.asarray(matrix[:, : len(self.words)] @ self.table)
            dense = dense + np.asarray(matrix[:, len(self.words) :] @ self.rows_for(unseen))
        else:
            dense = times(x, self.table)
        if self.tower:
            dense = self.tower.apply(np.asarray(dense, np.float32))
            dense[np.diff(x.indptr) == 0] = 0
        return np.ascontiguousarray(dense, np.float32)


def _times(counts: Rows, factor: Float32) -> Rows:
    return counts.with_values(counts.values * factor[counts.indices])


def _trigram_roots(words: Sequence[str]) -> Float32:
    """√ of the number of trigrams of ``#word#``, which is the word's number of letters."""
    return np.sqrt(np.array([len(word) for word in words], np.float32))
