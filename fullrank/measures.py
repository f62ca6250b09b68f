"""Measures of a ranking, as trec_eval defines them, and the papers' rank loss.

For one query, g_i is the grade of the document at rank i = 1, 2, … (zero if it is not relevant or not judged), R the
number of relevant candidates, and [·] is one or zero.

    ap         1/R Σ_i [g_i > 0] · (relevant among the first i) / i
    p@k        1/k Σ_{i ≤ k} [g_i > 0]
    ndcg@k     Σ_{i ≤ k} g_i / log2(i + 1), divided by the same sum for the best order
    mrr        1 / the first rank with g_i > 0; zero without one
    recall@k   1/R Σ_{i ≤ k} [g_i > 0]
    rank_loss  the share of (relevant, not relevant) candidate pairs in the wrong order, ties half

All measures except rank_loss read only the first `depth` documents of the ranking (1000 by TREC's convention); a
relevant document below them counts as not found.
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
    """Return the AP of one ranking, trec_eval's `map`; grades in rank order, relevant = R > 0."""
    ranks = np.flatnonzero(grades > 0) + 1.0
    return float(np.sum(np.arange(1, len(ranks) + 1) / ranks) / relevant)


def precision(grades: npt.NDArray[np.integer], k: int) -> float:
    """Return the number of relevant documents among the first k, divided by k even if fewer were ranked."""
    return float(np.count_nonzero(grades[:k] > 0) / k)


def recall(grades: npt.NDArray[np.integer], relevant: int, k: int) -> float:
    """Return the number of relevant documents among the first k, divided by R > 0."""
    return float(np.count_nonzero(grades[:k] > 0) / relevant)


def reciprocal_rank(grades: npt.NDArray[np.integer]) -> float:
    """Return 1 / the first relevant rank; zero if no relevant document was ranked."""
    ranks = np.flatnonzero(grades > 0)
    return float(1.0 / (ranks[0] + 1)) if len(ranks) else 0.0


def dcg(grades: npt.NDArray[np.integer], k: int) -> float:
    """Return the discounted gain of the first k: the sum of grade / log2(rank + 1)."""
    gains = np.maximum(grades[:k], 0).astype(np.float64)
    return float(np.sum(gains / np.log2(np.arange(2, len(gains) + 2))))


def ndcg(grades: npt.NDArray[np.integer], ideal: npt.NDArray[np.integer], k: int) -> float:
    """Return dcg divided by the best possible dcg; ``ideal`` has the grades of all relevant candidates."""
    return dcg(grades, k) / dcg(np.sort(ideal)[::-1], k)


def rank_loss(
    scores: npt.NDArray[np.floating], relevant_rows: Int64, candidates: npt.NDArray[np.bool_] | None
) -> float:
    """Return the share of (relevant, not relevant) pairs in the wrong order; ties count half.

    Returns:
        The share; zero if every candidate is relevant, because there is no pair.
    """
    pool = scores if candidates is None else scores[candidates]
    relevant = scores[relevant_rows]
    others = len(pool) - len(relevant)
    if others == 0:
        return 0.0
    # Few documents are relevant, so counting against each beats sorting the pool.
    above = sum(int(np.count_nonzero(pool > score)) for score in relevant)
    level = sum(int(np.count_nonzero(pool == score)) for score in relevant)
    # Subtract pairs of two relevant documents: each ordered pair was counted once above.
    above -= int(np.count_nonzero(relevant[:, None] < relevant[None, :]))
    level -= int(np.count_nonzero(relevant[:, None] == relevant[None, :]))
    return (above + 0.5 * level) / (len(relevant) * others)


def ranking_measures(
    grades: npt.NDArray[np.integer], ideal: npt.NDArray[np.integer]
) -> dict[str, float]:
    """Compute RANKING_MEASURES of one query.

    Args:
        grades: in rank order, cut at the depth; zero if not judged.
        ideal: the positive grades of all relevant candidates, in any order, at least one.
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

    def error_text(self, digits: int) -> str:
        """Return the standard error for a table; a dash if it is unknown."""
        return "–" if np.isnan(self.standard_error) else f"{self.standard_error:.{digits}f}"

    def as_dict(self) -> dict[str, float | None]:
        """Return the JSON form; an unknown error is null, because JSON has no NaN."""
        error = self.standard_error
        return {"mean": self.mean, "standard_error": None if np.isnan(error) else error}


def estimate(values: Float64, weights: Float64 | None = None) -> Estimate:
    """Return mean and standard error of per-query values. Raises ValueError without values."""
    if len(values) == 0:
        raise ValueError("no values to average")
    if weights is not None:
        mean = float((weights * values).mean())
        # x̄ = Σ w x / Σ w has the variance Σ w² (x − x̄)² / (Σ w)², times n / (n − 1) as for equal weights.
        variance = (weights**2 * (values - mean) ** 2).sum() / (
            len(values) * (len(values) - 1 or np.nan)
        )
        return Estimate(mean, float(np.sqrt(variance)))
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan
    return Estimate(float(np.mean(values)), error)


def estimates(
    per_query: Mapping[str, Float64], weights: Float64 | None = None
) -> dict[str, Estimate]:
    """Return ``estimate`` of each measure."""
    return {name: estimate(values, weights) for name, values in per_query.items()}
