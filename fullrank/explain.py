"""Why a document was returned: its score split by part and by word of the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.encoding import Encoded, Float32, Int32
from fullrank.model import TermShare, WordScore
from fullrank.retrieval import Retriever


@dataclass(frozen=True, slots=True)
class Explanation:
    """score = learned + exact + bias; ``words`` the strongest contributions first."""

    learned: float
    exact: float
    bias: float
    words: list[WordScore]


def explain(
    terms: Sequence[TermShare], retriever: Retriever, query: Encoded, row: int, limit: int = 8
) -> Explanation:
    """Split the score of document ``row`` for a query.

    terms  the query as ``model.query_terms(text)`` took it apart
    query  the same query, encoded

    Where the score is an inner product, learned of word w is (its share of u)·v and exact is Σ_f s_wf t_f over its
    features f; else the model's scorer says. Over all words they add up to the learned and the exact part.
    """
    words = word_scores(terms, retriever, query, row)
    learned = sum(word.learned for word in words)
    exact = sum(word.exact for word in words)
    words.sort(key=lambda word: (-abs(word.learned + word.exact), word.word))
    strongest = [word for word in words[:limit] if word.learned or word.exact]
    return Explanation(learned, exact, float(retriever.documents.bias[row]), strongest)


def word_scores(
    terms: Sequence[TermShare], retriever: Retriever, query: Encoded, row: int
) -> list[WordScore]:
    """What each term brought to one document's score, in the order of the terms."""
    if retriever.scorer is None:
        return _of_inner_product(terms, retriever.documents, row)
    return retriever.scorer.explain(terms, query, row)


def _of_inner_product(terms: Sequence[TermShare], documents: Encoded, row: int) -> list[WordScore]:
    v, indices, weights, _ = documents.row(row)
    held = dict(zip(indices.tolist(), weights.tolist(), strict=True))
    return [
        WordScore(
            term.term,
            float(np.dot(term.dense.astype(np.float64), v)) if len(v) else 0.0,
            _matched(term, held, indices, weights),
        )
        for term in terms
    ]


def _matched(term: TermShare, held: Mapping[int, float], indices: Int32, weights: Float32) -> float:
    """Σ_f s_wf t_f: the document's weights at the features of one word."""
    if isinstance(term.feature, int):
        return float(term.weight * held.get(term.feature, 0.0))
    place = np.searchsorted(term.feature, indices)
    inside = np.flatnonzero(place < len(term.feature))
    found = inside[term.feature[place[inside]] == indices[inside]]
    shares = np.atleast_1d(term.weight)[place[found]].astype(np.float64)
    return float(shares @ weights[found])
