"""Query expansion by blind feedback: search, add the words of the results to the query, search again.

    r₁, r₂, …  documents by s·t                        s: the query's weights, t: a document's
    f(q, d) = (s + β/E Σ_{i ≤ E} t_{r_i}) · t_d         the mean vector of the E best, β times

The first search is over all documents of the scorer, so the expanded query does not depend on which documents are
scored. Documents that share no word with the query are never used: if fewer than E share one, the mean is over those. A
query that is itself a document of the collection finds itself first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from fullrank.models.contract import Known, Parts, Wrapper
from fullrank.models.linear import LinearModel
from fullrank.retrieval.scoring import InnerProduct, TermShare, WordScore
from fullrank.storage.encoding import Encoded, Float64, Int64

KIND = "expansion"


@dataclass(frozen=True, eq=False)
class ExpansionModel(Wrapper):
    """A linear model without a dense part, whose queries are expanded; beta ≥ 0, feedback E ≥ 1."""

    model: LinearModel
    beta: float
    feedback: int

    @property
    def config(self) -> dict[str, Any]:
        own = {"kind": KIND, "beta": self.beta, "feedback": self.feedback}
        return {**self.model.config, **own}

    @property
    def known(self) -> Known:
        return self.model.known._replace(forms=None, idf=None)

    def scorer(self, documents: Encoded) -> ExpansionScorer:
        return ExpansionScorer(self, documents)

    def feature_name(self, feature: int) -> str:
        words, phrases = self.model.sparse.words.words, self.model.sparse.phrases.phrases
        if feature < len(words):
            return words[feature]
        return f"“{phrases[feature - len(words)]}”"

    def parts(self) -> Parts:
        parts = self.model.parts()
        return Parts(self.config, parts.arrays, parts.strings)

    @classmethod
    def from_parts(cls, parts: Parts) -> ExpansionModel:
        config = dict(parts.config)
        beta, feedback = config.pop("beta"), config.pop("feedback")
        base = LinearModel.from_parts(Parts(config, parts.arrays, parts.strings))
        if base.n_dense or base.sparse.words.buckets:
            raise ValueError(
                "expansion needs a model without a dense part and without hash buckets"
            )
        if not beta >= 0 or feedback < 1:
            raise ValueError(f"beta {beta} or feedback {feedback} is out of range")
        return cls(base, beta, feedback)


class ExpansionScorer:
    """Scores of expanded queries: lexical is s·t of the query's own words, dense is s·t of the added ones."""

    def __init__(self, model: ExpansionModel, documents: Encoded) -> None:
        self.model, self.documents = model, documents

    @cached_property
    def _rows(self) -> sp.csr_array[np.float64]:
        return sp.csr_array(self.documents.sparse.csr().astype(np.float64))

    def _own(self, query: Encoded) -> Float64:
        _, indices, weights, _ = query.row(0)
        dense = np.zeros(self.documents.sparse.width)
        dense[indices] = weights
        return dense

    def _added(self, first: Float64) -> Float64:
        """Return β/E Σ t of the E best documents of the first search, float64 (F,); ties by row."""
        count = min(self.model.feedback, len(first))
        if count == 0:
            return np.zeros(self.documents.sparse.width)
        least = np.partition(first, len(first) - count)[len(first) - count]
        rows = np.flatnonzero((first >= least) & (first > 0))
        rows = rows[np.lexsort((rows, -first[rows]))[:count]]
        total: Float64 = np.asarray(self._rows[rows].sum(axis=0)).ravel()
        return total * (self.model.beta / max(1, len(rows)))

    def score(self, query: Encoded, rows: Int64) -> tuple[Float64, Float64]:
        """Return (dense, lexical) of one encoded query for the given documents, float64 (rows,) each."""
        # A sparse product sums each row in the order of its entries, so its bits do not depend on other rows.
        lexical = np.asarray(self._rows @ self._own(query))
        dense = np.asarray(self._rows @ self._added(lexical))
        return dense[rows], lexical[rows]

    def explain(self, terms: Sequence[TermShare], query: Encoded, row: int) -> list[WordScore]:
        """Return the query's own words, then the words of the added documents that this document has too."""
        added = self._added(np.asarray(self._rows @ self._own(query)))
        _, indices, weights, _ = self.documents.row(row)
        added_shares = {
            feature: added[feature] * weight
            for feature, weight in zip(indices.tolist(), weights.tolist(), strict=True)
        }
        found = []
        own = InnerProduct(self.documents).explain(terms, query, row)
        for term, (word, _, lexical) in zip(terms, own, strict=True):
            # The first word with a feature gets all that is added for it.
            features = np.atleast_1d(term.feature).tolist()
            dense = sum(added_shares.pop(feature, 0.0) for feature in features)
            found.append(WordScore(word, float(dense), lexical))
        name = self.model.feature_name
        found += [WordScore(name(f), float(x), 0.0) for f, x in added_shares.items() if x]
        return found
