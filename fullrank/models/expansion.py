"""Query expansion by blind feedback: search, add what was found to the query, search again.

    r₁, r₂, …  documents by s·t                        s: the query's weights, t: a document's
    f(q, d) = (s + β/E Σ_{i ≤ E} t_{r_i}) · t_d         the mean vector of the E best, β times

The first search is over all documents that the scorer was made with, so the expanded query does not depend on which of
them are asked for. Documents that share nothing with the query are never taken: where fewer than E share something, the
mean is over those. A query that is itself a document of the collection finds itself first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from fullrank.encoding import Encoded, Float64, Int64
from fullrank.linear import LinearModel
from fullrank.model import Parts, TermShare, WordScore

KIND = "expansion"


@dataclass(frozen=True, eq=False)
class ExpansionModel:
    """A linear model without a latent part, its queries expanded.

    beta      β, not negative; 0 leaves the query as it is
    feedback  E, the documents that are added
    """

    base: LinearModel
    beta: float
    feedback: int

    @property
    def config(self) -> dict[str, Any]:
        """JSON settings of the whole model."""
        own = {"kind": KIND, "beta": self.beta, "feedback": self.feedback}
        return {**self.base.config, **own}

    @property
    def n_dense(self) -> int:
        """0."""
        return self.base.n_dense

    @property
    def n_sparse(self) -> int:
        """F."""
        return self.base.n_sparse

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        """s of each text, before it is expanded."""
        return self.base.encode_queries(texts)

    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        """t of each document."""
        return self.base.encode_documents(documents)

    def query_text(self, fields: Mapping[str, Any]) -> str:
        """A document read as a query."""
        return self.base.query_text(fields)

    def query_terms(self, text: str) -> list[TermShare]:
        """The query's own words; what was added to it is the scorer's to explain."""
        return self.base.query_terms(text)

    def scorer(self, documents: Encoded) -> ExpansionScorer:
        """Both searches over these documents."""
        return ExpansionScorer(self, documents)

    def feature_name(self, feature: int) -> str:
        """The word or “phrase” of a feature."""
        words, phrases = self.base.sparse.words.words, self.base.sparse.phrases.phrases
        if feature < len(words):
            return words[feature]
        return f"“{phrases[feature - len(words)]}”"

    def parts(self) -> Parts:
        """What a bundle stores."""
        parts = self.base.parts()
        return Parts(self.config, parts.arrays, parts.strings)

    @classmethod
    def from_parts(cls, parts: Parts) -> ExpansionModel:
        """The inverse of ``parts``. Raises ValueError when the parts do not fit together."""
        config = dict(parts.config)
        beta, feedback = config.pop("beta"), config.pop("feedback")
        base = LinearModel.from_parts(Parts(config, parts.arrays, parts.strings))
        if base.n_dense or base.sparse.words.buckets:
            raise ValueError("queries are expanded by words; a latent part or buckets have none")
        if not beta >= 0 or feedback < 1:
            raise ValueError(f"beta {beta} or feedback {feedback} is out of range")
        return cls(base, beta, feedback)


class ExpansionScorer:
    """Scores of expanded queries: exact is s·t of the query's own words, learned what was added to it."""

    def __init__(self, model: ExpansionModel, documents: Encoded) -> None:
        self.model, self.documents = model, documents

    @cached_property
    def _rows(self) -> sp.csr_array[np.float64]:
        """t: document → words, (n, F)."""
        return sp.csr_array(self.documents.csr().astype(np.float64))

    def _own(self, query: Encoded) -> Float64:
        """s, float64 (F,)."""
        _, indices, weights, _ = query.row(0)
        dense = np.zeros(self.documents.width)
        dense[indices] = weights
        return dense

    def _added(self, first: Float64) -> Float64:
        """β/E Σ t of the E best of the first search, float64 (F,); ties by row."""
        count = min(self.model.feedback, len(first))
        if count == 0:
            return np.zeros(self.documents.width)
        least = np.partition(first, len(first) - count)[len(first) - count]
        rows = np.flatnonzero((first >= least) & (first > 0))
        rows = rows[np.lexsort((rows, -first[rows]))[:count]]
        total: Float64 = np.asarray(self._rows[rows].sum(axis=0)).ravel()
        return total * (self.model.beta / max(1, len(rows)))

    def score(self, query: Encoded, rows: Int64) -> tuple[Float64, Float64]:
        """(learned, exact) of one encoded query for the given documents, float64 (rows,) each."""
        # A row of a sparse product is a sum in the order of its own entries, whatever stands beside it.
        exact = np.asarray(self._rows @ self._own(query))
        learned = np.asarray(self._rows @ self._added(exact))
        return learned[rows], exact[rows]

    def explain(self, terms: Sequence[TermShare], query: Encoded, row: int) -> list[WordScore]:
        """The query's own words, then the words that both the added documents and this one hold."""
        own = self._own(query)
        added = self._added(np.asarray(self._rows @ own))
        _, indices, weights, _ = self.documents.row(row)
        brought = {
            feature: added[feature] * weight
            for feature, weight in zip(indices.tolist(), weights.tolist(), strict=True)
        }
        held = dict(zip(indices.tolist(), weights.tolist(), strict=True))
        found = []
        for term in terms:
            feature = int(term.feature)
            learned = float(brought.pop(feature, 0.0))
            exact = float(own[feature] * held.get(feature, 0.0)) if feature >= 0 else 0.0
            found.append(WordScore(term.term, learned, exact))
        name = self.model.feature_name
        found += [WordScore(name(f), float(x), 0.0) for f, x in brought.items() if x]
        return found
