"""Word pairs: f(q, d) = qᵀWd with a full matrix W, so that any word of a query may vote for any word of a document.

    s = Wᵀq      the query expanded: a weight for every word that its words vote for
    t = d        q and d: unit tf-idf vectors of the top words of a text

W is D × D and is stored in one of two ways:

    PairRows    sparse rows      W learned pair by pair, or sparse
    PairTable   a hash table     W_ij = w[(iP + j) mod H] + α [i = j]: pairs of one slot share a weight

Bai et al. 2009, eq. 1 and 5. These hash kernels hash pairs of known words to weights of W. They have nothing to do with
the hash buckets of unknown words (fullrank.text.features.Vocabulary), which give each such word a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from fullrank.models.contract import Known, Model, Parts, are_in, lexical_shares
from fullrank.models.linear import DenseSide
from fullrank.models.reading import DocumentReading, Reading
from fullrank.retrieval.scoring import TermShare
from fullrank.storage.encoding import Encoded, Float32, Float64, Int64, Mask, Rows
from fullrank.storage.strings import Lexicon
from fullrank.text.features import Counts, Vocabulary

KIND = "pairs"
PRIME = 2_654_435_761  # P: its bits are mixed, so rows of W start anywhere in a table of any size


@dataclass(frozen=True, eq=False)
class PairRows:
    """W as D sparse rows over D words."""

    rows: Rows

    @cached_property
    def _matrix(self) -> sp.csr_array[np.float32]:
        return self.rows.csr()

    def expand(self, x: Rows) -> Rows:
        """Return Wᵀx of every row x, over D words. A sparse product sums each row in the order of its entries."""
        return Rows.from_csr(sp.csr_array(x.csr() @ self._matrix))


def window_starts(width: int, prime: int, slots: int) -> Int64:
    """Return iP mod H, int64 (width,): the slot of W_i0 in a table of H slots; W_ij is j slots further, modulo H."""
    return np.arange(width, dtype=np.int64) * (prime % slots) % slots


@dataclass(frozen=True, eq=False)
class PairTable:
    """W_ij = w[(iP + j) mod H] + α [i = j], over `width` D words; weights float32 (H,), prime P."""

    weights: Float32
    prime: int
    alpha: float
    width: int

    @cached_property
    def _starts(self) -> Int64:
        return window_starts(self.width, self.prime, len(self.weights))

    def expand(self, x: Rows) -> Rows:
        """Return Wᵀx of every row x, over D words. Row i of W is one window, so no pair is hashed by itself."""
        found = [self._one(x, i) for i in range(len(x))]
        indices = [np.flatnonzero(s).astype(np.int32) for s in found]
        indptr = np.zeros(len(x) + 1, np.int64)
        np.cumsum([len(kept) for kept in indices], out=indptr[1:])
        values = [s[kept] for s, kept in zip(found, indices, strict=True)]
        nothing = np.zeros(0, np.float32)
        return Rows(
            indptr,
            np.concatenate([nothing.astype(np.int32), *indices]),
            np.concatenate([nothing, *values]),
            self.width,
        )

    def _one(self, x: Rows, i: int) -> Float32:
        s = np.zeros(self.width, np.float32)
        words, values = x.row(i)
        for word, value in zip(words.tolist(), values, strict=True):
            start, done = int(self._starts[word]), 0
            while done < self.width:
                part = self.weights[start : start + self.width - done]
                s[done : done + len(part)] += value * part
                start, done = 0, done + len(part)
        s[words] += np.float32(self.alpha) * values
        return s


@dataclass(frozen=True, eq=False)
class PairModel(Model):
    """A compiled model of word pairs.

    Attributes:
        settings: JSON. `fields` is [["all", [source fields]]]: a document is all its text fields together.
            `match_terms` is the number of top words of s = Wᵀq to keep; 0 keeps all and so the unchanged score.
        texts: φ, the same for both sides; its table is empty.
        store: W.
    """

    settings: dict[str, Any]
    texts: DenseSide
    store: PairRows | PairTable

    @property
    def n_sparse(self) -> int:
        return len(self.texts.words)

    @property
    def known(self) -> Known:
        words = self.texts.words
        idf = self.texts.idf[: len(words)].astype(np.float64)
        return Known([(words, np.exp(idf.max(initial=0.0) - idf))])

    @cached_property
    def config(self) -> dict[str, Any]:
        table = None
        if isinstance(self.store, PairTable):
            table = {"prime": self.store.prime, "alpha": self.store.alpha}
        return {"kind": KIND, **self.settings, "terms": self.texts.terms, "table": table}

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        return self.encode_query_rows(self._features(Reading.of(texts).counts))

    def encode_query_rows(self, x: Rows) -> Encoded:
        """Encode queries from their vectors q."""
        return Encoded.from_rows(self.store.expand(x).top_entries(self.settings["match_terms"]))

    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        [[_, sources]] = self.settings["fields"]
        return Encoded.from_rows(self._features(DocumentReading.of(documents).counts([sources])))

    def _features(self, counts: Counts) -> Rows:
        return self.texts.features(counts.words, counts.columns, [1.0])[0]

    def query_terms(self, text: str) -> list[TermShare]:
        """Split s by word: the word's row of W times its weight."""
        x = self._features(Reading.of([text]).counts)
        kept = self.encode_query_rows(x).sparse.indices
        entries = np.arange(len(x.indices) + 1, dtype=np.int64)
        shares = self.store.expand(Rows(entries, x.indices, x.values, x.width))
        nothing = np.zeros(0, np.float32)
        terms = []
        for i, word in enumerate(x.indices.tolist()):
            features, weights = shares.row(i)
            if self.settings["match_terms"]:
                is_kept = np.isin(features, kept, assume_unique=True)
                features, weights = features[is_kept], weights[is_kept]
            terms.append(TermShare(self.texts.words.words[word], nothing, features, weights))
        return terms

    def matching_words(self, text: str, words: Sequence[str]) -> Mask:
        """Return which words a query asks for; those that they vote for are learned."""
        return are_in(words, set(Reading.of([text]).counts.words))

    def word_shares(
        self,
        query: Encoded,
        documents: Sequence[Mapping[str, Any]],
        encoded: Encoded,
        words: Sequence[str],
    ) -> Float64:
        return lexical_shares(self.texts.words.rows(words), query, encoded)

    def parts(self) -> Parts:
        if isinstance(self.store, PairTable):
            arrays: dict[str, Any] = {"W.table": self.store.weights}
        else:
            rows = self.store.rows
            arrays = {"W.indptr": rows.indptr, "W.indices": rows.indices, "W.values": rows.values}
        arrays["idf"] = self.texts.idf
        return Parts(self.config, arrays, {"words": self.texts.words.known})

    @classmethod
    def from_parts(cls, parts: Parts) -> PairModel:
        own = ("kind", "terms", "table")
        settings = {name: value for name, value in parts.config.items() if name not in own}
        words = Vocabulary(Lexicon.of(parts.strings["words"]))
        texts = text_side(words, parts.arrays["idf"], parts.config["terms"])
        if len(texts.idf) != len(words) + 1:
            raise ValueError(f"idf has {len(texts.idf)} entries where {len(words) + 1} are needed")
        table = parts.config["table"]
        if table is not None:
            weights = parts.arrays["W.table"]
            if weights.ndim != 1 or not len(weights):
                raise ValueError("W.table is not a list of weights")
            return cls(settings, texts, PairTable(weights, width=len(words), **table))
        indptr, indices = parts.arrays["W.indptr"], parts.arrays["W.indices"]
        values = parts.arrays["W.values"]
        if len(indptr) != len(words) + 1 or not len(indices) == len(values) == indptr[-1]:
            raise ValueError("W.indptr, W.indices and W.values do not fit the words")
        if len(indices) and not 0 <= indices.min() <= indices.max() < len(words):
            raise ValueError("W.indices has a column that is not a word")
        return cls(settings, texts, PairRows(Rows(indptr, indices, values, len(words))))


def text_side(words: Vocabulary, idf: Float32, terms: int) -> DenseSide:
    """Return φ: unit tf-idf vectors of the `terms` top words of a text (0: all); idf float32 (D + 1,)."""
    return DenseSide(words, idf, np.zeros((len(words), 0), np.float32), terms=terms)
