"""Why a document was returned: its score split by part and by word of the query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.encoding import Encoded
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

    learned of word w is (its share of u)·v, exact is s_w t_w; over all words they add up to u·v and s·t.
    """
    v, indices, weights, bias = documents.row(row)
    held = dict(zip(indices.tolist(), weights.tolist(), strict=True))
    words = [
        WordScore(
            term.term,
            float(np.dot(term.dense.astype(np.float64), v)) if len(v) else 0.0,
            term.weight * held.get(term.feature, 0.0),
        )
        for term in terms
    ]
    learned = sum(word.learned for word in words)
    exact = sum(word.exact for word in words)
    words.sort(key=lambda word: (-abs(word.learned + word.exact), word.word))
    strongest = [word for word in words[:limit] if word.learned or word.exact]
    return Explanation(learned, exact, float(bias), strongest)
