"""Explain a score: split it by part and by word of the query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fullrank.encoding import Encoded
from fullrank.retrieval import Retriever
from fullrank.scoring import TermShare, WordScore


@dataclass(frozen=True, slots=True)
class Explanation:
    """score = dense + lexical + bias, and the words with the largest contributions, largest first."""

    dense: float
    lexical: float
    bias: float
    words: list[WordScore]


def explain(
    terms: Sequence[TermShare], retriever: Retriever, query: Encoded, row: int, limit: int = 8
) -> Explanation:
    """Split the score of one document for a query.

    The contributions of all words add up to the dense and the lexical part.

    Args:
        terms: The query as `model.query_terms(text)` splits it.
        retriever: Over the document.
        query: The same query, encoded.
        row: The document.
        limit: The number of words to return at most; words without a contribution are left out.
    """
    words = retriever.scorer.explain(terms, query, row)
    dense = sum(word.dense for word in words)
    lexical = sum(word.lexical for word in words)
    bias = float(retriever.documents.bias[row])
    return Explanation(dense, lexical, bias, largest(words, limit))


def largest(words: Sequence[WordScore], limit: int = 8) -> list[WordScore]:
    """Return the words with the largest contributions, largest first; those without one are left out."""
    ordered = sorted(words, key=lambda word: (-abs(word.dense + word.lexical), word.word))
    return [word for word in ordered[:limit] if word.dense or word.lexical]
