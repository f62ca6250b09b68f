"""Language models: a document is scored by the likelihood of the query, word by word.

    P(Q|D) = Π_q P(q|D)^n(q)        P(q|D) = λ₁ P(q|C) + (1 − λ₁) [ λ₂ P_ml(q|D) + (1 − λ₂) P_x(q|D) ]

P_ml is the share of a word in the document, P(q|C) its share in the collection, and P_x smooths the document:

    none          nothing: with λ₂ = 1 the unigram model with Jelinek-Mercer smoothing
    topics        Σ_z P(q|φ^q_z) P(z|θ^D), θ^D found by folding the document in
    translation   Σ_w P(q|w) P_ml(w|D)

The score is log P(Q|D) minus its value for a document that shares nothing with the query, Σ n(q) log(λ₁ P(q|C)). That
is a constant of the query, so the order is that of P(Q|D), and a query without known words scores 0 everywhere. Words
outside the vocabulary are ignored. This is no inner product: a `LanguageScorer` computes it.

Expanded documents make it one. The score is Σ_q n(q) t_q(D) with t_q(D) = log(1 + (1 − λ₁) P'(q|D) / (λ₁ P(q|C))),
where P' is the bracket above and t_q does not depend on the query. A document then stores its `expanded` heaviest t_q:
the words that people are likely to ask for it with. Queries are as cheap as with BM25.

A damped model counts a word that a document has n times 1 + ln n times, because a page that repeats its command in each
example is not about that command alone. With `length` p below 1, P_ml is n(w, D) / (|D|^p L^(1 − p)), L the mean length
of a document, so one of twice the length loses less than half of each share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fullrank.models.contract import Known, Model, Parts, are_in, lexical_shares
from fullrank.models.corrections import Corrected, correct, split_terms
from fullrank.models.reading import DocumentReading, Reading
from fullrank.models.words import Words
from fullrank.retrieval.scoring import TermShare, WordScore
from fullrank.storage.encoding import Encoded, Float32, Float64, Int32, Int64, Mask, Rows
from fullrank.storage.strings import Lexicon
from fullrank.text.features import Counts, Vocabulary, count_corpus, damped
from fullrank.text.folding import LANGUAGES, stemmer

# The topics of a text that training did not see.


def fold_in(counts: Rows, table: Float32, *, iterations: int, prior: float) -> Float32:
    """Estimate θ of each text by EM from the uniform distribution, with fixed word distributions.

    Args:
        counts: B texts over the words of `table`; a word whose row is all zero is unknown to the topics.
        table: float32 (W, Z), P(w|φ^d_z).
        prior: α − 1 in θ_z ← Σ_w n_w p(z|w) + α − 1, divided by the sum over z.

    Returns:
        float32 (B, Z), uniform for a text without known words.
    """
    topics = table.shape[1]
    theta = np.full((len(counts), topics), 1 / max(1, topics), np.float32)
    if not topics:
        return theta
    known = np.asarray(table.any(axis=1))
    for i in range(len(counts)):
        words, values = counts.row(i)
        inside = known[words]
        if not inside.any():
            continue
        n = values[inside].astype(np.float64)
        phi = table[words[inside]].astype(np.float64)
        found = np.full(topics, 1 / topics)
        for _ in range(iterations):
            # No BLAS product: its bits may depend on its threads.
            shares = n / np.einsum("wz,z->w", phi, found)
            found = found * np.einsum("w,wz->z", shares, phi) + prior
            found /= found.sum()
        theta[i] = found
    return theta


# The rows of words in a vocabulary of stems.


@dataclass(frozen=True, eq=False)
class Stems:
    """Rows of words in a vocabulary of stems. Those of words as they are `written` may be stored."""

    language: str
    stems: Vocabulary
    written: Vocabulary
    stored: Int32 | None = None

    def __post_init__(self) -> None:
        rows = self.stored
        if rows is None:
            return
        if len(rows) != len(self.written):
            raise ValueError(f"{len(rows)} rows of stems for {len(self.written)} words")
        if len(rows) and not -1 <= rows.min() <= rows.max() < len(self.stems):
            raise ValueError("rows of stems: not every entry is a row of words")

    @cached_property
    def of_written(self) -> Int32:
        return self._search(self.written.words) if self.stored is None else self.stored

    def rows(self, words: Sequence[str]) -> Int32:
        """Return the row of the stem of each word, int32, -1 for an unknown one."""
        written = self.written.known.rows(words)
        found = np.full(len(written), -1, np.int32)
        is_written = written >= 0
        found[is_written] = self.of_written[written[is_written]]
        unknown = np.flatnonzero(~is_written)
        if len(unknown):
            found[unknown] = self._search([words[i] for i in unknown.tolist()])
        return found

    def _search(self, words: Sequence[str]) -> Int32:
        return self.stems.rows([*map(stemmer(self.language), words)])


# Score documents by the likelihood of a query, in float64, where a language model does not expand them.


# Rows of θ per block, which then stays in the processor's cache.
_BLOCK_ROWS = 1024
# Words of a query per block.
_BLOCK_WORDS = 16


class LanguageScorer:
    """log P(Q|D) for one set of documents, float64. The bits of a score depend on the query and on the document alone.

    lexical  the score with P_x left out: Σ n(q) log(1 + c λ₂ P_ml / P_C),   c = (1 − λ₁) / λ₁
    dense    the part that P_x adds, never below zero: Σ n(q) log(1 + c [λ₂ P_ml + (1 − λ₂) P_x] / P_C) − lexical
    """

    def __init__(self, model: LanguageModel, documents: Encoded) -> None:
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
        found = np.zeros(len(self.documents))
        postings = self._postings
        start, stop = postings.indptr[word], postings.indptr[word + 1]
        found[postings.indices[start:stop]] = postings.data[start:stop]
        return found

    def _latent(self, words: Int32, rows: Int64) -> Float64:
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
        _, words, counts, _ = query.row(0)
        dense, lexical = np.zeros(len(rows)), np.zeros(len(rows))
        # Add word by word: numpy sums an axis in another order for one row than for many.
        for word_dense, word_lexical in self.words_score(words, counts, rows):
            dense += word_dense
            lexical += word_lexical
        return dense, lexical

    def explain(self, terms: Sequence[TermShare], query: Encoded, row: int) -> list[WordScore]:
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


KIND = "language"
LATENT = ("none", "topics", "translation")

# Documents that are expanded at once; each may have thousands of words before the heaviest are kept.
_BLOCK_DOCUMENTS = 256


@dataclass(frozen=True, eq=False)
class LanguageModel(Model):
    """A compiled language model.

    Attributes:
        settings: JSON. `latent` says what P_x is: "none", "topics" or "translation"; `lambda1` is λ₁, above 0 and at
            most 1; `lambda2` is λ₂, from 0 to 1; `expanded` is the number of t_q that a document stores, 0 or absent
            if a scorer computes them; `damped` documents count a word 1 + ln n times; `length` is p and `mean_length`
            is L, both absent where p = 1; `iterations` of EM and `prior`, α − 1, fold a document in; `fields` are the
            source fields of a document, `query_fields` those of a document used as a query; `stem` is the language
            whose stems the words are, absent for words as they are.
        words: One vocabulary for queries and documents.
        background: float32 (W,), P(w|C).
        query: float32 (W, Z), P(w|φ^q_z); all zero for a word that no topic has in queries.
        document: float32 (W, Z), P(w|φ^d_z), likewise.
        translation: float32 (W, W), P(q|w); a row is a word of the query.
        surface: With `spelling` in a model of stems: the words whose stems it knows, as they are written.
        surface_rows: int32, the row of the stem of each; None to find them.
    """

    settings: dict[str, Any]
    words: Vocabulary
    background: Float32
    query: Float32
    document: Float32
    translation: sp.csr_array[np.float32]
    surface: Vocabulary | None = None
    surface_rows: Int32 | None = None

    @property
    def n_dense(self) -> int:
        return int(self.query.shape[1])

    @property
    def n_sparse(self) -> int:
        return len(self.words)

    @property
    def expanded(self) -> int:
        """Number of t_q that a document stores; 0 if a scorer computes them."""
        return int(self.settings.get("expanded", 0))

    @cached_property
    def config(self) -> dict[str, Any]:
        return {"kind": KIND, **self.settings}

    def rows(self, words: Sequence[str]) -> Int32:
        """Return the row of each word, -1 for an unknown word; a model of stems knows a word by its stem."""
        return self.words.rows(words) if self._stems is None else self._stems.rows(words)

    @cached_property
    def _stems(self) -> Stems | None:
        language = self.settings.get("stem", "")
        written = self.surface or Vocabulary(())
        return Stems(language, self.words, written, self.surface_rows) if language else None

    @cached_property
    def _known(self) -> Words | None:
        discount = self.settings.get("spelling", 0.0)
        if not discount:
            return None
        words = self.surface or self.words
        share = self.background[self.rows(words.words)].astype(np.float64)
        least = share[share > 0].min(initial=1.0)
        rarity = -np.log(np.maximum(share, least)).astype(np.float32)
        frequency = np.exp(float(rarity.max(initial=0.0)) - rarity)
        return Words([(words, frequency)], [_Stemmed(self)], discount)

    @property
    def known(self) -> Known:
        """The words; a model of stems tells none."""
        if self.settings.get("stem"):
            return Known(has_features=False)
        shares = self.background.astype(np.float64)
        least = shares[shares > 0].min(initial=1.0)
        return Known([(self.words, np.maximum(shares / least, 1.0))], has_features=False)

    def _corrected(self, words: Sequence[str], counts: Rows) -> Corrected | None:
        """Correct the unknown words of counted queries; None if there is nothing to correct."""
        return None if self._known is None else correct(self._known, words, counts)

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        """Encode queries: s counts the known words; u = Σ_q n(q) φ^q_q, so that u·v = Σ_q n(q) P_x(q|D) for topics."""
        counts = Reading.of(texts).counts
        return self.encode_query_counts(counts.words, counts.columns[0])

    def encode_query_counts(self, words: Sequence[str], counts: Rows) -> Encoded:
        """Encode queries from their counts; an unknown word counts as known ones that it may stand for."""
        corrected = self._corrected(words, counts)
        if corrected is not None:
            words, counts = corrected.words, corrected.lexical
        found = counts.remap_columns(self.rows(words), len(self.words))
        return Encoded.from_rows(found, found.matmul(self.query) if self.n_dense else None)

    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        """Encode documents: v is θ; t is P_ml of the known words, over the length of the whole text."""
        counts = DocumentReading.of(documents).counts([self.settings["fields"]])
        return self.encode_document_counts(counts.words, counts.columns[0])

    def encode_document_counts(self, words: Sequence[str], counts: Rows) -> Encoded:
        """Encode documents from their counts, all fields together."""
        if self.settings.get("damped", False):
            counts = counts.with_values(damped(counts.values))
        found = counts.remap_columns(self.rows(words), len(self.words))
        length = found.spread(self._lengths(counts))
        if self.expanded:
            shares = found.with_values(found.values / length)
            return Encoded.from_rows(self.expand(shares), np.zeros((len(counts), 0), np.float32))
        theta = fold_in(
            found,
            self.document,
            iterations=self.settings["iterations"],
            prior=self.settings["prior"],
        )
        return Encoded.from_rows(found.with_values(found.values / length), theta)

    def _lengths(self, counts: Rows) -> Float32:
        """Return what the counts of each document are divided by, float32 (B,)."""
        lengths, p = counts.sums(), self.settings.get("length", 1.0)
        if p == 1:
            return lengths
        return np.asarray(lengths**p * self.settings["mean_length"] ** (1 - p), np.float32)

    def expand(self, shares: Rows) -> Rows:
        """Compute the heaviest t_q of documents, given P_ml: both (B, W)."""
        lambda1, lambda2 = self.settings["lambda1"], self.settings["lambda2"]
        c, background = (1 - lambda1) / lambda1, self.background.astype(np.float64)
        parts = []
        for start in range(0, len(shares), _BLOCK_DOCUMENTS):
            own = shares.slice(start, min(start + _BLOCK_DOCUMENTS, len(shares))).csr()
            both = sp.csr_array(lambda2 * own + (1 - lambda2) * (own @ self._by_document_word))
            both.sort_indices()
            both.data = np.log(1 + c * both.data / background[both.indices]).astype(np.float32)
            parts.append(Rows.from_csr(both).top_entries(self.expanded))
        return Rows.vstack(parts) if parts else Rows.empty(0, len(self.words))

    @cached_property
    def _by_document_word(self) -> sp.csr_array[np.float32]:
        """P(q|w), a row a word of documents."""
        return sp.csr_array(self.translation.T.tocsr())

    def query_terms(self, text: str) -> list[TermShare]:
        """Split a query: each word with its share of u, its row and its count."""
        counts = count_corpus([[text]])
        corrected = self._corrected(counts.words, counts.columns[0])
        if corrected is None:
            return self._terms(counts)
        return split_terms(
            self._terms(Counts(corrected.words, [corrected.lexical])), counts, corrected
        )

    def _terms(self, counts: Counts) -> list[TermShare]:
        amounts = np.zeros(len(counts.words), np.float32)
        amounts[counts.columns[0].indices] = counts.columns[0].values
        rows = self.rows(counts.words).tolist()
        nothing = np.zeros(self.n_dense, np.float32)
        return [
            TermShare(word, self.query[row] * n, row, float(n))
            if row >= 0
            else TermShare(word, nothing, -1, 0.0)
            for word, row, n in zip(counts.words, rows, amounts, strict=True)
        ]

    def matching_words(self, text: str, words: Sequence[str]) -> Mask:
        counts = Reading.of([text]).counts
        corrected = self._corrected(counts.words, counts.columns[0])
        asked = counts.words if corrected is None else corrected.words
        rows = self.rows(words)
        return are_in(words, set(asked)) | ((rows >= 0) & np.isin(rows, self.rows(asked)))

    def word_shares(
        self,
        query: Encoded,
        documents: Sequence[Mapping[str, Any]],
        encoded: Encoded,
        words: Sequence[str],
    ) -> Float64:
        """Split the lexical part by word where it is s·t; a likelihood is no sum over the words of a document."""
        if not self.expanded:
            return np.zeros((len(encoded), len(words)))
        return lexical_shares(self.rows(words), query, encoded)

    def scorer(self, documents: Encoded) -> LanguageScorer | None:
        """Return the scorer of the query likelihood; None if documents are expanded: then it is the inner product."""
        return None if self.expanded else LanguageScorer(self, documents)

    def parts(self) -> Parts:
        arrays: dict[str, npt.NDArray[Any]] = {
            "background": self.background,
            "query.topics": self.query,
            "document.topics": self.document,
            "translation.indptr": self.translation.indptr.astype(np.int64),
            "translation.indices": self.translation.indices.astype(np.int32),
            "translation.values": self.translation.data,
        }
        strings: dict[str, Sequence[str]] = {"words": self.words.known}
        if self.surface is not None:
            strings["surface"] = self.surface.known
            arrays["surface.rows"] = self.rows(self.surface.words)
        return Parts(self.config, arrays, strings)

    @classmethod
    def from_parts(cls, parts: Parts) -> LanguageModel:
        settings = {key: value for key, value in parts.config.items() if key != "kind"}
        words = Vocabulary(Lexicon.of(parts.strings["words"]))
        arrays, size = parts.arrays, len(words)
        for name in ("background", "query.topics", "document.topics"):
            if arrays[name].shape[0] != size:
                raise ValueError(f"{name} has {arrays[name].shape[0]} rows where {size} are needed")
        if arrays["query.topics"].shape != arrays["document.topics"].shape:
            raise ValueError("query.topics and document.topics differ in width")
        if settings["latent"] not in LATENT:
            raise ValueError(f"latent is {settings['latent']!r}")
        if settings.get("expanded", 0) and settings["latent"] == "topics":
            raise ValueError("expanded documents have no topics")
        if settings.get("stem", "english") not in LANGUAGES:
            raise ValueError(f"stem is {settings['stem']!r}, which has no stemmer")
        if not 0 <= settings.get("length", 1) <= 1 or not settings.get("mean_length", 1) > 0:
            raise ValueError("length must be between 0 and 1, and mean_length above 0")
        if not 0 < settings["lambda1"] <= 1 or not 0 <= settings["lambda2"] <= 1:
            raise ValueError("lambda1 and lambda2 must be between 0 and 1")
        triple = [arrays[f"translation.{name}"] for name in ("values", "indices", "indptr")]
        translation = sp.csr_array(tuple(triple), shape=(size, size))
        translation.check_format()
        topics = (arrays["query.topics"], arrays["document.topics"])
        surface = parts.strings.get("surface")
        return cls(
            settings, words, arrays["background"], *topics, translation,
            None if surface is None else Vocabulary(Lexicon.of(surface)),
            arrays.get("surface.rows"),
        )  # fmt: skip


class _Stemmed:
    """The words that a model knows as they are, or by their stems: they are no typing errors."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    def of(self, word: str) -> Sequence[tuple[int, float]]:
        [row] = self._model.rows([word]).tolist()
        return [(row, 1.0)] if row >= 0 else ()


def no_translation(words: int) -> sp.csr_array[np.float32]:
    """Return an empty translation table."""
    nothing = np.zeros(0, np.float32)
    return sp.csr_array((nothing, ([], [])), shape=(words, words))
