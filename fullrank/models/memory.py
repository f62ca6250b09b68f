"""What people chose before: for a query, and at all.

    f(q, d) = ln(1 + n_qd / κ)        n_qd: clicks on d after the query
    b_d     = ln(1 + n_d)             n_d:  clicks on d after any query

Each query is a sparse feature, so the score is an inner product. A query is known by its words; one that is not is
looked up without its spaces, by its words in any order, and then with its typing errors corrected.

Where documents are queries, and link to others, those that link alike recommend each other's links (`LinkModel`):

    f(q, d) = ln(1 + 5 Σ_q' cos(q, q') [q' links to d])       cos of the links, weighed by idf; q' ≠ q
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from fullrank.models.contract import Model, Parts
from fullrank.retrieval.scoring import TermShare
from fullrank.storage.documents import field_text
from fullrank.storage.encoding import Encoded, Float32, Rows
from fullrank.storage.strings import Lexicon
from fullrank.text.spelling import Spelling
from fullrank.text.words import query_words

KIND, LINKS = "memory", "links"
MAX_WORDS = 16
"""Queries with more words are not remembered: they are documents or pasted text."""

_CACHED = 1 << 10


def query_key(text: str) -> str | None:
    """Return what two spellings of one query share; None for a text that is not remembered."""
    found = query_words(text)
    return " ".join(found) if 0 < len(found) <= MAX_WORDS else None


@dataclass(frozen=True, eq=False)
class MemoryModel(Model):
    """Known queries.

    Attributes:
        queries: The key of each sparse feature; empty for a model of the documents' popularity alone.
        clicks: Clicks after each query, float32 (F,).
        kappa: κ; the larger, the more clicks it takes to change an order.
        sources: Fields whose text is the query of a document.
        bias: b of a document that nobody clicked yet.
        is_of_queries: Whether it is of queries, perhaps without any yet: new clicks of a service may be the first.
    """

    queries: Lexicon
    clicks: Float32
    kappa: float
    sources: tuple[str, ...] = ()
    bias: float = 0.0
    is_of_queries: bool = False

    def __post_init__(self) -> None:
        if len(self.queries):
            object.__setattr__(self, "is_of_queries", True)

    @property
    def n_sparse(self) -> int:
        return len(self.queries)

    @property
    def config(self) -> dict[str, Any]:
        own = {"kappa": self.kappa, "sources": list(self.sources), "bias": self.bias}
        # Written only where the queries do not tell, so that the settings of older bundles do not change.
        empty = {"of": "queries"} if self.is_of_queries and not len(self.queries) else {}
        return {"kind": KIND, **own, **empty}

    def query_text(self, fields: Mapping[str, Any]) -> str:
        return field_text(fields, self.sources)

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        known = [self.find(text) for text in texts]
        if known == [-1]:
            return self._unknown
        found = np.array(known, np.int32)
        is_known = found >= 0
        indptr = np.zeros(len(found) + 1, np.int64)
        np.cumsum(is_known, out=indptr[1:])
        rows = found[is_known]
        return Encoded.from_rows(Rows(indptr, rows, np.ones(len(rows), np.float32), self.n_sparse))

    @cached_property
    def _unknown(self) -> Encoded:
        """One query that is not known, as most are."""
        return Encoded.from_rows(Rows.empty(1, self.n_sparse))

    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        """Encode new documents, which nobody chose yet."""
        bias = np.full(len(documents), self.bias, np.float32)
        return Encoded.from_rows(Rows.empty(len(documents), self.n_sparse), bias=bias)

    @cached_property
    def find(self) -> Callable[[str], int]:
        """Returns the feature of a query, given its text; -1 for an unknown one."""
        return lru_cache(_CACHED)(self._find)

    def _find(self, text: str) -> int:
        if not len(self.queries) or (key := query_key(text)) is None:
            return -1
        row = self.queries.find(key)
        if row < 0:
            words = key.split(" ")
            row = self._alike(words)
            corrected = [self._spelling.best(word) or word for word in words] if row < 0 else words
            if corrected != words:
                row = self._alike(corrected)
        return row

    def _alike(self, words: Sequence[str]) -> int:
        """Return the feature of a query that differs by spaces or by the order of its words; -1 without one."""
        return next((self._forms[form] for form in _forms(words) if form in self._forms), -1)

    @cached_property
    def _forms(self) -> dict[str, int]:
        """The forms of all queries; of queries that share one, the query that most people asked has it."""
        found: dict[str, int] = {}
        for row in np.argsort(-self.clicks, kind="stable").tolist():
            for form in _forms(self.queries[row].split(" ")):
                found.setdefault(form, row)
        return found

    @cached_property
    def _spelling(self) -> Spelling:
        counts: dict[str, float] = {}
        for key, clicks in zip(self.queries, self.clicks.tolist(), strict=True):
            for word in key.split(" "):
                counts[word] = counts.get(word, 0.0) + clicks
        return Spelling(counts, lambda words: [counts.get(word, 0.0) for word in words])

    def query_terms(self, text: str) -> list[TermShare]:
        row = self.find(text)
        nothing = np.zeros(0, np.float32)
        return [] if row < 0 else [TermShare(f"“{self.queries[row]}”", nothing, row, 1.0)]

    def parts(self) -> Parts:
        return Parts(self.config, {"clicks": self.clicks}, {"queries": self.queries})

    @classmethod
    def from_parts(cls, parts: Parts) -> MemoryModel:
        queries, clicks = Lexicon.of(parts.strings["queries"]), parts.arrays["clicks"]
        if clicks.shape != (len(queries),) or not (clicks > 0).all():
            raise ValueError(f"{len(queries)} queries, clicks of the shape {clicks.shape}")
        kappa = float(parts.config["kappa"])
        if not kappa > 0:
            raise ValueError(f"kappa {kappa}")
        bias = float(parts.config["bias"])
        if not math.isfinite(bias):
            raise ValueError(f"bias {bias}")
        is_of_queries = parts.config.get("of") == "queries"
        return cls(queries, clicks, kappa, tuple(parts.config["sources"]), bias, is_of_queries)


class LinkModel(MemoryModel):
    """Documents as queries that link to others. A document is known by its whole text, so an edited one is unknown."""

    @property
    def config(self) -> dict[str, Any]:
        return {**super().config, "kind": LINKS}

    def _find(self, text: str) -> int:
        return self.queries.find(text_key(text)) if len(self.queries) else -1

    def query_terms(self, text: str) -> list[TermShare]:
        row = self.find(text)
        nothing = np.zeros(0, np.float32)
        return [] if row < 0 else [TermShare("links of documents that link alike", nothing, row, 1)]


def text_key(text: str) -> str:
    """Return what a `LinkModel` knows a document by."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _forms(words: Sequence[str]) -> tuple[str, str]:
    """Return the words without spaces, and in order."""
    return "".join(words), " ".join(sorted(words))
