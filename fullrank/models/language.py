"""Language models: a document is scored by the likelihood of the query, word by word.

    P(Q|D) = Π_q P(q|D)^n(q)        P(q|D) = λ₁ P(q|C) + (1 − λ₁) [ λ₂ P_ml(q|D) + (1 − λ₂) P_x(q|D) ]

P_ml is the share of a word in the document, P(q|C) its share in the collection, and P_x what smooths the document:

    none          nothing: with λ₂ = 1 the unigram model with Jelinek-Mercer smoothing
    topics        Σ_z P(q|φ^q_z) P(z|θ^D), θ^D found by folding the document in
    translation   Σ_w P(q|w) P_ml(w|D)

The score is log P(Q|D) less what it is for a document that shares nothing with the query, Σ n(q) log(λ₁ P(q|C)). That
is a constant of the query, so the order is that of P(Q|D), and a query without known words scores 0 everywhere. Words
outside of the vocabulary say nothing. This is no inner product: a ``LanguageScorer`` computes it exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fullrank.encoding import Encoded, Float32, Float64, Int32, Int64
from fullrank.features import Rows, Vocabulary, count_corpus, moved, row_sums
from fullrank.model import Parts, TermShare, WordScore, field_text

KIND = "language"
LATENT = ("none", "topics", "translation")

# Rows of θ looked at together: they stay in the processor's cache.
_BLOCK_ROWS = 1024
# Words of a query looked at together.
_BLOCK_WORDS = 16


def fold_in(counts: Rows, table: Float32, *, iterations: int, prior: float) -> Float32:
    """θ of each text by EM from uniform, with the word distributions fixed, float32 (B, Z).

    counts  over the words of ``table``; words whose row is all zero are unknown to the topics
    table   float32 (W, Z): P(w|φ^d_z)
    prior   α − 1:  θ_z ← Σ_w n_w p(z|w) + α − 1, over its sum; a text without known words is uniform
    """
    topics = table.shape[1]
    theta = np.full((len(counts), topics), 1 / max(1, topics), np.float32)
    if not topics:
        return theta
    known = np.asarray(table.any(axis=1))
    for i in range(len(counts)):
        start, stop = counts.indptr[i], counts.indptr[i + 1]
        inside = known[counts.indices[start:stop]]
        if not inside.any():
            continue
        n = counts.values[start:stop][inside].astype(np.float64)
        phi = table[counts.indices[start:stop][inside]].astype(np.float64)
        found = np.full(topics, 1 / topics)
        for _ in range(iterations):
            # Not a product of BLAS, whose bits may depend on its threads.
            shares = n / np.einsum("wz,z->w", phi, found)
            found = found * np.einsum("w,wz->z", shares, phi) + prior
            found /= found.sum()
        theta[i] = found
    return theta


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A compiled language model. ``settings`` is JSON:

    latent        "none", "topics" or "translation": what P_x is
    lambda1       λ₁, above 0 and at most 1
    lambda2       λ₂, from 0 to 1
    iterations    of EM when a document is folded in
    prior         α − 1 of θ
    fields        the source fields of a document, joined
    query_fields  how a document reads as a query

    words        one vocabulary for queries and documents
    background   float32 (W,): P(w|C)
    query        float32 (W, Z): P(w|φ^q_z); a word that no topic knows from queries is all zero
    document     float32 (W, Z): P(w|φ^d_z), likewise
    translation  float32 (W, W): P(q|w), the row is the query's word
    """

    settings: dict[str, Any]
    words: Vocabulary
    background: Float32
    query: Float32
    document: Float32
    translation: sp.csr_array[np.float32]

    @property
    def n_dense(self) -> int:
        """Z."""
        return int(self.query.shape[1])

    @property
    def n_sparse(self) -> int:
        """W."""
        return len(self.words)

    @cached_property
    def config(self) -> dict[str, Any]:
        """JSON settings of the whole model."""
        return {"kind": KIND, **self.settings}

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        """s: how often each known word occurs; u = Σ_q n(q) φ^q_q, so that u·v = Σ_q n(q) P_x(q|D) of a topic model."""
        counts = count_corpus([texts])
        return self.encode_query_counts(counts.words, counts.columns[0])

    def encode_query_counts(self, words: Sequence[str], counts: Rows) -> Encoded:
        """As ``encode_queries``, from texts already counted."""
        found = moved(counts, self.words.rows(words), len(self.words))
        return _encoded(np.asarray(found.csr() @ self.query), found)

    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        """v: θ of each document; t: P_ml of its known words, over the length of the whole text."""
        texts = [field_text(document, self.settings["fields"]) for document in documents]
        counts = count_corpus([texts])
        return self.encode_document_counts(counts.words, counts.columns[0])

    def encode_document_counts(self, words: Sequence[str], counts: Rows) -> Encoded:
        """As ``encode_documents``, from texts already counted, all fields together."""
        found = moved(counts, self.words.rows(words), len(self.words))
        length = np.repeat(row_sums(counts), np.diff(found.indptr))
        theta = fold_in(
            found,
            self.document,
            iterations=self.settings["iterations"],
            prior=self.settings["prior"],
        )
        return _encoded(theta, found.with_values(found.values / length))

    def query_text(self, fields: Mapping[str, Any]) -> str:
        """A document read as a query."""
        return field_text(fields, self.settings["query_fields"])

    def query_terms(self, text: str) -> list[TermShare]:
        """Each word with its share of u, its row and how often it occurs."""
        counts = count_corpus([[text]])
        rows = self.words.rows(counts.words).tolist()
        nothing = np.zeros(self.n_dense, np.float32)
        return [
            TermShare(word, self.query[row] * n, row, float(n))
            if row >= 0
            else TermShare(word, nothing, -1, 0.0)
            for word, row, n in zip(counts.words, rows, counts.columns[0].values, strict=True)
        ]

    def scorer(self, documents: Encoded) -> LanguageScorer:
        """The likelihood of a query under these documents."""
        return LanguageScorer(self, documents)

    def parts(self) -> Parts:
        """What a bundle stores."""
        arrays: dict[str, npt.NDArray[Any]] = {
            "background": self.background,
            "query.topics": self.query,
            "document.topics": self.document,
            "translation.indptr": self.translation.indptr.astype(np.int64),
            "translation.indices": self.translation.indices.astype(np.int32),
            "translation.values": self.translation.data,
        }
        return Parts(self.config, arrays, {"words": self.words.words})

    @classmethod
    def from_parts(cls, parts: Parts) -> LanguageModel:
        """The inverse of ``parts``. Raises ValueError when shapes do not fit together."""
        settings = {key: value for key, value in parts.config.items() if key != "kind"}
        words = Vocabulary(list(parts.strings["words"]))
        arrays, size = parts.arrays, len(words)
        for name in ("background", "query.topics", "document.topics"):
            if arrays[name].shape[0] != size:
                raise ValueError(f"{name} has {arrays[name].shape[0]} rows where {size} are needed")
        if arrays["query.topics"].shape != arrays["document.topics"].shape:
            raise ValueError("query.topics and document.topics differ in width")
        if settings["latent"] not in LATENT:
            raise ValueError(f"latent is {settings['latent']!r}")
        if not 0 < settings["lambda1"] <= 1 or not 0 <= settings["lambda2"] <= 1:
            raise ValueError("lambda1 or lambda2 is no share")
        triple = [arrays[f"translation.{name}"] for name in ("values", "indices", "indptr")]
        translation = sp.csr_array(tuple(triple), shape=(size, size))
        translation.check_format()
        topics = (arrays["query.topics"], arrays["document.topics"])
        return cls(settings, words, arrays["background"], *topics, translation)


def no_translation(words: int) -> sp.csr_array[np.float32]:
    """A translation table that says nothing."""
    nothing = np.zeros(0, np.float32)
    return sp.csr_array((nothing, ([], [])), shape=(words, words))


def _encoded(dense: Float32, rows: Rows) -> Encoded:
    dense = np.ascontiguousarray(dense, np.float32)
    nothing = np.zeros(len(rows), np.float32)
    return Encoded(dense, rows.indptr, rows.indices, rows.values, rows.width, nothing)


class LanguageScorer:
    """log P(Q|D) for one set of documents, float64; a document's bits depend on the query and on it alone.

    exact    the score with P_x left out: Σ n(q) log(1 + c λ₂ P_ml / P_C),   c = (1 − λ₁) / λ₁
    learned  what P_x adds to it, never below zero: Σ n(q) log(1 + c [λ₂ P_ml + (1 − λ₂) P_x] / P_C) − exact
    """

    def __init__(self, model: LanguageModel, documents: Encoded) -> None:
        self.model, self.documents = model, documents
        self._background = model.background.astype(np.float64)

    @cached_property
    def _rows(self) -> sp.csr_array[np.float64]:
        """P_ml: document → words, (n, W)."""
        return self.documents.csr().astype(np.float64)

    @cached_property
    def _postings(self) -> sp.csr_array[np.float32]:
        """P_ml: word → documents, (W, n)."""
        return sp.csr_array(self.documents.csr().T.tocsr())

    def ratios(self, words: Int32, rows: Int64) -> Iterator[tuple[Float64, Float64]]:
        """Of each word in turn: P_ml / P_C and P_x / P_C in the given documents, float64 (rows,) each."""
        for start in range(0, len(words), _BLOCK_WORDS):
            block = words[start : start + _BLOCK_WORDS]
            background = self._background[block]
            smoothed = self._latent(block, rows)
            for word, share, line in zip(block.tolist(), background, smoothed, strict=True):
                yield self._matched(word)[rows] / share, line / share

    def _matched(self, word: int) -> Float64:
        """P_ml(word | every document)."""
        found = np.zeros(len(self.documents))
        postings = self._postings
        start, stop = postings.indptr[word], postings.indptr[word + 1]
        found[postings.indices[start:stop]] = postings.data[start:stop]
        return found

    def _latent(self, words: Int32, rows: Int64) -> Float64:
        """P_x(word | document), (words, rows)."""
        kind = self.model.settings["latent"]
        out = np.zeros((len(words), len(rows)))
        if kind == "topics":
            phi = self.model.query[words].astype(np.float64)
            for start in range(0, len(rows), _BLOCK_ROWS):
                part = rows[start : start + _BLOCK_ROWS]
                theta = self.documents.dense[part].astype(np.float64)
                for line, row in zip(out, phi, strict=True):
                    # Row by row the same sum whichever rows stand beside it, which BLAS does not promise.
                    np.einsum("nz,z->n", theta, row, out=line[start : start + len(part)])
        elif kind == "translation":
            table = self.model.translation[words].astype(np.float64).toarray()
            everything = np.array_equal(rows, np.arange(len(self.documents)))
            held = self._rows if everything else self._rows[rows]
            out[:] = np.asarray(held @ table.T).T
        return out

    def words_score(
        self, words: Int32, counts: Float32, rows: Int64
    ) -> Iterator[tuple[Float64, Float64]]:
        """(learned, exact) of each word of a query in turn, float64 (rows,) each."""
        lambda1, lambda2 = self.model.settings["lambda1"], self.model.settings["lambda2"]
        c = (1 - lambda1) / lambda1
        for n, (matched, smoothed) in zip(counts.tolist(), self.ratios(words, rows), strict=True):
            # Not log1p: its eight times the cost buys digits that no ranking sees.
            exact = n * np.log(1 + c * lambda2 * matched)
            both = n * np.log(1 + c * (lambda2 * matched + (1 - lambda2) * smoothed))
            yield both - exact, exact

    def score(self, query: Encoded, rows: Int64) -> tuple[Float64, Float64]:
        """(learned, exact) of one encoded query for the given documents, float64 (rows,) each."""
        _, words, counts, _ = query.row(0)
        learned, exact = np.zeros(len(rows)), np.zeros(len(rows))
        # Word by word: a sum over an axis of a matrix takes another order for one row than for many.
        for word_learned, word_exact in self.words_score(words, counts, rows):
            learned += word_learned
            exact += word_exact
        return learned, exact

    def explain(self, terms: Sequence[TermShare], query: Encoded, row: int) -> list[WordScore]:
        """What each word brought to one document's score; they add up to learned and to exact."""
        _, words, counts, _ = query.row(0)
        parts = self.words_score(words, counts, np.array([row]))
        found = dict(zip(words.tolist(), parts, strict=True))
        nothing = (np.zeros(1), np.zeros(1))
        scores = [(term.term, *found.get(int(term.feature), nothing)) for term in terms]
        return [WordScore(word, float(new[0]), float(old[0])) for word, new, old in scores]
