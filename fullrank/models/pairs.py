"""Word pairs: f(q, d) = qᵀWd with a whole matrix W, so that any word of a query may vote for any word of a document.

    s = Wᵀq      the query expanded: a weight for every word that its words vote for
    t = d        q and d: unit tf-idf vectors, of the strongest words of a text

W is D × D and is stored in one of two ways:

    its rows, without zeros      W learned pair by pair, or sparse
    a hash table                 W_ij = w[(iP + j) mod H] + α [i = j]: pairs that meet share a weight

Bai et al. 2009, eq. 1 and 5. Retrieval is the inner product s·t, as for every other model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from fullrank.encoding import Encoded, Float32, Int64
from fullrank.features import Rows, Vocabulary, count_corpus, rows_of, strongest
from fullrank.linear import DenseSide
from fullrank.model import Parts, TermShare, field_text

KIND = "pairs"
PRIME = 2_654_435_761  # P: its bits are mixed, so rows of W start anywhere in a table of any size


class PairStore(Protocol):
    """W, however it is stored."""

    def expand(self, x: Rows) -> Rows:
        """Wᵀx of every row x, over D words; a row's bits depend on that row alone."""


@dataclass(frozen=True, eq=False)
class PairRows:
    """W by rows: D rows over D words."""

    rows: Rows

    @cached_property
    def _matrix(self) -> sp.csr_array[np.float32]:
        return self.rows.csr()

    def expand(self, x: Rows) -> Rows:
        """One row of a sparse product is a sum over its own entries in their order."""
        return rows_of(sp.csr_array(x.csr() @ self._matrix))


def window_starts(width: int, prime: int, slots: int) -> Int64:
    """iP mod H: where row i of W lies in a table of H slots, int64 (width,); W_ij is j slots on, round the end."""
    return np.arange(width, dtype=np.int64) * (prime % slots) % slots


@dataclass(frozen=True, eq=False)
class PairTable:
    """W_ij = w[(iP + j) mod H] + α [i = j].

    weights  float32 (H,)
    prime    P
    alpha    α
    width    D
    """

    weights: Float32
    prime: int
    alpha: float
    width: int

    @cached_property
    def _starts(self) -> Int64:
        return window_starts(self.width, self.prime, len(self.weights))

    def expand(self, x: Rows) -> Rows:
        """Row i of W is one window of the table, so no pair has to be hashed by itself."""
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
        here = slice(x.indptr[i], x.indptr[i + 1])
        words, values = x.indices[here], x.values[here]
        for word, value in zip(words.tolist(), values, strict=True):
            start, done = int(self._starts[word]), 0
            while done < self.width:
                part = self.weights[start : start + self.width - done]
                s[done : done + len(part)] += value * part
                start, done = 0, done + len(part)
        s[words] += np.float32(self.alpha) * values
        return s


@dataclass(frozen=True, eq=False)
class PairModel:
    """A compiled model of word pairs. ``settings`` is JSON:

    fields        [["all", [source fields]]]: a document is all its text fields together
    query_fields  how a document reads as a query
    match_terms   keep the so many strongest words of s = Wᵀq; 0 keeps all, and so the exact score

    ``texts`` is φ, the same for both sides; its table is empty.
    """

    settings: dict[str, Any]
    texts: DenseSide
    store: PairRows | PairTable

    @property
    def n_dense(self) -> int:
        """No dense part."""
        return 0

    @property
    def n_sparse(self) -> int:
        """D."""
        return len(self.texts.words)

    @cached_property
    def config(self) -> dict[str, Any]:
        """JSON settings of the whole model."""
        table = None
        if isinstance(self.store, PairTable):
            table = {"prime": self.store.prime, "alpha": self.store.alpha}
        return {"kind": KIND, **self.settings, "terms": self.texts.terms, "table": table}

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        """s of each text."""
        return self.encode_query_rows(self._features(texts))

    def encode_query_rows(self, x: Rows) -> Encoded:
        """As ``encode_queries``, from the vectors of the texts."""
        return encoded(strongest(self.store.expand(x), self.settings["match_terms"]))

    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        """t of each document."""
        [[_, sources]] = self.settings["fields"]
        return encoded(self._features([field_text(d, sources) for d in documents]))

    def _features(self, texts: Sequence[str]) -> Rows:
        counts = count_corpus([texts])
        return self.texts.features(counts.words, counts.columns, [1.0])[0]

    def query_text(self, fields: Mapping[str, Any]) -> str:
        """A document read as a query."""
        return field_text(fields, self.settings["query_fields"])

    def query_terms(self, text: str) -> list[TermShare]:
        """Each word's row of W times its weight; together they are s."""
        x = self._features([text])
        kept = self.encode_query_rows(x).indices
        entries = np.arange(len(x.indices) + 1, dtype=np.int64)
        shares = self.store.expand(Rows(entries, x.indices, x.values, x.width))
        nothing = np.zeros(0, np.float32)
        terms = []
        for i, word in enumerate(x.indices.tolist()):
            here = slice(shares.indptr[i], shares.indptr[i + 1])
            features, weights = shares.indices[here], shares.values[here]
            if self.settings["match_terms"]:
                held = np.isin(features, kept, assume_unique=True)
                features, weights = features[held], weights[held]
            terms.append(TermShare(self.texts.words.words[word], nothing, features, weights))
        return terms

    def scorer(self, documents: Encoded) -> None:
        """None: the score is s·t."""

    def parts(self) -> Parts:
        """What a bundle stores."""
        if isinstance(self.store, PairTable):
            arrays: dict[str, Any] = {"W.table": self.store.weights}
        else:
            rows = self.store.rows
            arrays = {"W.indptr": rows.indptr, "W.indices": rows.indices, "W.values": rows.values}
        arrays["idf"] = self.texts.idf
        return Parts(self.config, arrays, {"words": self.texts.words.words})

    @classmethod
    def from_parts(cls, parts: Parts) -> PairModel:
        """The inverse of ``parts``. Raises ValueError when shapes do not fit together."""
        own = ("kind", "terms", "table")
        settings = {name: value for name, value in parts.config.items() if name not in own}
        words = Vocabulary(list(parts.strings["words"]))
        texts = text_side(words, parts.arrays["idf"], parts.config["terms"])
        if len(texts.idf) != len(words) + 1:
            raise ValueError(f"idf has {len(texts.idf)} entries where {len(words) + 1} are needed")
        table = parts.config["table"]
        if table is not None:
            weights = parts.arrays["W.table"]
            if weights.ndim != 1 or not len(weights):
                raise ValueError("W.table is no list of weights")
            return cls(settings, texts, PairTable(weights, width=len(words), **table))
        indptr, indices = parts.arrays["W.indptr"], parts.arrays["W.indices"]
        values = parts.arrays["W.values"]
        if len(indptr) != len(words) + 1 or not len(indices) == len(values) == indptr[-1]:
            raise ValueError("W.indptr, W.indices and W.values do not fit the words")
        if len(indices) and not 0 <= indices.min() <= indices.max() < len(words):
            raise ValueError("W.indices has a column that is no word")
        return cls(settings, texts, PairRows(Rows(indptr, indices, values, len(words))))


def text_side(words: Vocabulary, idf: Float32, terms: int) -> DenseSide:
    """φ: unit tf-idf vectors of the ``terms`` strongest words of a text (0: all); idf float32 (D + 1,)."""
    return DenseSide(words, idf, np.zeros((len(words), 0), np.float32), terms=terms)


def encoded(rows: Rows) -> Encoded:
    """Rows as encoded texts without a dense part or a bias."""
    nothing = np.zeros(len(rows), np.float32)
    dense = np.zeros((len(rows), 0), np.float32)
    return Encoded(dense, rows.indptr, rows.indices, rows.values, rows.width, nothing)
