"""Score documents by the likelihood of a query, in float64, where a language model does not expand them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from fullrank.encoding import Encoded, Float32, Float64, Int32, Int64
from fullrank.scoring import TermShare, WordScore

# Rows of θ per block, which then stays in the processor's cache.
_BLOCK_ROWS = 1024
# Words of a query per block.
_BLOCK_WORDS = 16


class Distributions(Protocol):
    """The parts of a `LanguageModel` that a likelihood needs."""

    @property
    def settings(self) -> dict[str, Any]: ...
    @property
    def background(self) -> Float32: ...
    @property
    def query(self) -> Float32: ...
    @property
    def translation(self) -> sp.csr_array[np.float32]: ...


class LanguageScorer:
    """log P(Q|D) for one set of documents, float64. The bits of a score depend on the query and on the document alone.

    lexical  the score with P_x left out: Σ n(q) log(1 + c λ₂ P_ml / P_C),   c = (1 − λ₁) / λ₁
    dense    the part that P_x adds, never below zero: Σ n(q) log(1 + c [λ₂ P_ml + (1 − λ₂) P_x] / P_C) − lexical
    """

    def __init__(self, model: Distributions, documents: Encoded) -> None:
        self.model, self.documents = model, documents
        self._background = model.background.astype(np.float64)

    @cached_property
    def _rows(self) -> sp.csr_array[np.float64]:
        """P_ml: document → words, (n, W)."""
        return self.documents.sparse.csr().astype(np.float64)

    @cached_property
    def _postings(self) -> sp.csr_array[np.float32]:
        """P_ml: word → documents, (W, n)."""
        return sp.csr_array(self.documents.sparse.csr().T.tocsr())

    def ratios(self, words: Int32, rows: Int64) -> Iterator[tuple[Float64, Float64]]:
        """Yield P_ml / P_C and P_x / P_C of each word in the given documents, float64 (rows,) each."""
        for start in range(0, len(words), _BLOCK_WORDS):
            block = words[start : start + _BLOCK_WORDS]
            background = self._background[block]
            smoothed = self._latent(block, rows)
            for word, share, line in zip(block.tolist(), background, smoothed, strict=True):
                yield self._matched(word)[rows] / share, line / share

    def _matched(self, word: int) -> Float64:
        """Return P_ml(word | document) of every document, float64 (n,)."""
        found = np.zeros(len(self.documents))
        postings = self._postings
        start, stop = postings.indptr[word], postings.indptr[word + 1]
        found[postings.indices[start:stop]] = postings.data[start:stop]
        return found

    def _latent(self, words: Int32, rows: Int64) -> Float64:
        """Return P_x(word | document), float64 (words, rows)."""
        kind = self.model.settings["latent"]
        out = np.zeros((len(words), len(rows)))
        if kind == "topics":
            phi = self.model.query[words].astype(np.float64)
            for start in range(0, len(rows), _BLOCK_ROWS):
                part = rows[start : start + _BLOCK_ROWS]
                theta = self.documents.dense[part].astype(np.float64)
                for line, row in zip(out, phi, strict=True):
                    # einsum sums each row in the same order for any other rows; BLAS does not guarantee that.
                    np.einsum("nz,z->n", theta, row, out=line[start : start + len(part)])
        elif kind == "translation":
            everything = len(rows) == len(self.documents) and bool((np.diff(rows) == 1).all())
            matrix = self._rows if everything else self._rows[rows]
            out[:] = np.asarray(matrix @ self._translations(words)).T
        return out

    def _translations(self, words: Int32) -> Float64:
        """Return P(word | t), float64 (W, words)."""
        table = self.model.translation
        found = np.zeros((table.shape[1], len(words)))
        for column, word in enumerate(words.tolist()):
            start, stop = table.indptr[word], table.indptr[word + 1]
            found[table.indices[start:stop], column] = table.data[start:stop]
        return found

    def words_score(
        self, words: Int32, counts: Float32, rows: Int64
    ) -> Iterator[tuple[Float64, Float64]]:
        """Yield (dense, lexical) of each word of a query, float64 (rows,) each."""
        lambda1, lambda2 = self.model.settings["lambda1"], self.model.settings["lambda2"]
        c = (1 - lambda1) / lambda1
        for n, (matched, smoothed) in zip(counts.tolist(), self.ratios(words, rows), strict=True):
            # No log1p: it takes eight times as long for digits that no ranking depends on.
            lexical = n * np.log(1 + c * lambda2 * matched)
            both = n * np.log(1 + c * (lambda2 * matched + (1 - lambda2) * smoothed))
            yield both - lexical, lexical

    def score(self, query: Encoded, rows: Int64) -> tuple[Float64, Float64]:
        """Return (dense, lexical) of one encoded query for the given documents, float64 (rows,) each."""
        _, words, counts, _ = query.row(0)
        dense, lexical = np.zeros(len(rows)), np.zeros(len(rows))
        # Add word by word: numpy sums an axis in another order for one row than for many.
        for word_dense, word_lexical in self.words_score(words, counts, rows):
            dense += word_dense
            lexical += word_lexical
        return dense, lexical

    def explain(self, terms: Sequence[TermShare], query: Encoded, row: int) -> list[WordScore]:
        """Return the contribution of each word to one document's score; they add up to dense and lexical."""
        _, words, counts, _ = query.row(0)
        parts = self.words_score(words, counts, np.array([row]))
        found = dict(zip(words.tolist(), parts, strict=True))
        scores = []
        for term in terms:
            own = [
                found[feature]
                for feature in np.atleast_1d(term.feature).tolist()
                if feature in found
            ]
            dense, lexical = (sum(float(part[i][0]) for part in own) for i in range(2))
            scores.append(WordScore(term.term, dense, lexical))
        return scores
