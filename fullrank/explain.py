"""Why a document was returned: its score split by part and by word of the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.encoding import Encoded, Float32, Int32
from fullrank.model import TermShare


@dataclass(frozen=True, slots=True)
class WordScore:
    """What one word (or “phrase”) of the query added to the score."""

    word: str
    learned: float
    exact: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """score = learned + exact + bias; ``words`` the strongest contributions first."""

    learned: float
    exact: float
    bias: float
    words: list[WordScore]


def explain(
    terms: Sequence[TermShare], documents: Encoded, row: int, limit: int = 8
) -> Explanation:
    """Split the score of document ``row`` for the query that ``model.query_terms(text)`` took apart.

    learned of word w is (its share of u)·v, exact is Σ_f s_wf t_f over its features f; over all words they
    add up to u·v and s·t.
    """
    v, indices, weights, bias = documents.row(row)
    held = dict(zip(indices.tolist(), weights.tolist(), strict=True))
    words = [
        WordScore(
            term.term,
            float(np.dot(term.dense.astype(np.float64), v)) if len(v) else 0.0,
            _matched(term, held, indices, weights),
        )
        for term in terms
    ]
    learned = sum(word.learned for word in words)
    exact = sum(word.exact for word in words)
    words.sort(key=lambda word: (-abs(word.learned + word.exact), word.word))
    strongest = [word for word in words[:limit] if word.learned or word.exact]
    return Explanation(learned, exact, float(bias), strongest)


def _matched(term: TermShare, held: Mapping[int, float], indices: Int32, weights: Float32) -> float:
    """Σ_f s_wf t_f: the document's weights at the features of one word."""
    if isinstance(term.feature, int):
        return float(term.weight * held.get(term.feature, 0.0))
    place = np.searchsorted(term.feature, indices)
    inside = np.flatnonzero(place < len(term.feature))
    found = inside[term.feature[place[inside]] == indices[inside]]
    shares = np.atleast_1d(term.weight)[place[found]].astype(np.float64)
    return float(shares @ weights[found])
