"""Measures of a ranking, as trec_eval defines them, and the papers' rank loss.

Of one query: g_i is the grade of the document at rank i (1, 2, …; zero where it is not judged or
judged not relevant), R the number of relevant candidates, [·] one or zero.

    ap         1/R Σ_i [g_i > 0] · (relevant among the first i) / i
    p@k        1/k Σ_{i ≤ k} [g_i > 0]
    ndcg@k     Σ_{i ≤ k} g_i / log2(i + 1), over the same sum for the best possible order
    mrr        1 / the first rank with g_i > 0; zero where there is none
    recall@k   1/R Σ_{i ≤ k} [g_i > 0]
    rank_loss  the share of (relevant, not relevant) candidate pairs in the wrong order, ties half

Everything but rank_loss sees the ranking's first `depth` documents only (1000 by TREC's
convention); a relevant document below them counts as not found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

RANKING_MEASURES = ("map", "p@10", "ndcg@1", "ndcg@3", "ndcg@10", "mrr", "recall@100")
MEASURES = (*RANKING_MEASURES, "rank_loss")


def average_precision(grades: npt.NDArray[np.integer], relevant: int) -> float:
    """AP of one ranking; grades in rank order, relevant = R > 0. trec_eval's `map`."""
    ranks = np.flatnonzero(grades > 0) + 1.0
    return float(np.sum(np.arange(1, len(ranks) + 1) / ranks) / relevant)


def precision(grades: npt.NDArray[np.integer], k: int) -> float:
    """Relevant documents among the first k, over k even where fewer were ranked."""
    return float(np.count_nonzero(grades[:k] > 0) / k)


def recall(grades: npt.NDArray[np.integer], relevant: int, k: int) -> float:
    """Relevant documents among the first k, over R > 0."""
    return float(np.count_nonzero(grades[:k] > 0) / relevant)


def reciprocal_rank(grades: npt.NDArray[np.integer]) -> float:
    """One over the first relevant rank; zero where none was ranked."""
    ranks = np.flatnonzero(grades > 0)
    return float(1.0 / (ranks[0] + 1)) if len(ranks) else 0.0


def dcg(grades: npt.NDArray[np.integer], k: int) -> float:
    """Discounted gain of the first k: the grade itself over log2(rank + 1)."""
    gains = np.maximum(grades[:k], 0).astype(np.float64)
    return float(np.sum(gains / np.log2(np.arange(2, len(gains) + 2))))


def ndcg(grades: npt.NDArray[np.integer], ideal: npt.NDArray[np.integer], k: int) -> float:
    """dcg over the best possible one; ideal holds the grades of all relevant candidates."""
    return dcg(grades, k) / dcg(np.sort(ideal)[::-1], k)


def rank_loss(
    scores: npt.NDArray[np.floating], relevant_rows: Int64, candidates: npt.NDArray[np.bool_] | None
) -> float:
    """Share of (relevant, not relevant) pairs with the relevant one scored lower, ties half.

    scores         (n_docs,) of one query
    relevant_rows  distinct rows, all of them candidates, at least one
    candidates     bool (n_docs,); None = all
    Zero where every candidate is relevant: there is no pair to get wrong.
    """
    pool = scores if candidates is None else scores[candidates]
    relevant = scores[relevant_rows]
    others = len(pool) - len(relevant)
    if others == 0:
        return 0.0
    # Few documents are relevant, so counting against each beats sorting the pool.
    above = sum(int(np.count_nonzero(pool > score)) for score in relevant)
    level = sum(int(np.count_nonzero(pool == score)) for score in relevant)
    # Pairs of two relevant documents are no pairs: each ordered one was counted once.
    above -= int(np.count_nonzero(relevant[:, None] < relevant[None, :]))
    level -= int(np.count_nonzero(relevant[:, None] == relevant[None, :]))
    return (above + 0.5 * level) / (len(relevant) * others)


def ranking_measures(
    grades: npt.NDArray[np.integer], ideal: npt.NDArray[np.integer]
) -> dict[str, float]:
    """RANKING_MEASURES of one query.

    grades  in rank order, cut at the depth, zero where not judged
    ideal   the positive grades of all relevant candidates, any order, at least one
    """
    total = len(ideal)
    return {
        "map": average_precision(grades, total),
        "p@10": precision(grades, 10),
        "ndcg@1": ndcg(grades, ideal, 1),
        "ndcg@3": ndcg(grades, ideal, 3),
        "ndcg@10": ndcg(grades, ideal, 10),
        "mrr": reciprocal_rank(grades),
        "recall@100": recall(grades, total, 100),
    }


@dataclass(frozen=True)
class Estimate:
    """A mean over queries and its standard error (sample deviation / √n; NaN for one query)."""

    mean: float
    standard_error: float

    def as_dict(self) -> dict[str, float | None]:
        """JSON has no NaN: an unknown error is null."""
        error = self.standard_error
        return {"mean": self.mean, "standard_error": None if np.isnan(error) else error}


def estimate(values: Float64) -> Estimate:
    """Mean and standard error of per-query values. Raises ValueError on no values."""
    if len(values) == 0:
        raise ValueError("no values to average")
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan
    return Estimate(float(np.mean(values)), error)


def estimates(per_query: Mapping[str, Float64]) -> dict[str, Estimate]:
    """estimate() of each measure."""
    return {name: estimate(values) for name, values in per_query.items()}
