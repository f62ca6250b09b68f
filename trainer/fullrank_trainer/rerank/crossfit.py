"""Cross-fitting: every query is judged by trees that did not see it.

The base model has learned the training queries, so their scores look too good there, and a second stage that learned
from them would trust the scores too much. Only held-out queries show what it will meet: those of the validation split.
They are few, so none is spent on judging alone. They are cut into FOLDS parts; each part is judged by trees that were
fitted on all other parts but one, and stopped on that one. The second stage of the bundle is fitted on all parts, with
the mean number of trees, and therefore on more queries than the trees that were judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from fullrank.encoding import Int64
from fullrank.measures import Float64
from fullrank.rerank.trees import Trees
from fullrank_trainer.rerank.boosting import fit_booster, trees_of
from fullrank_trainer.rerank.candidates import Candidates

FOLDS = 5


@dataclass(frozen=True, eq=False)
class CrossFit:
    """The result of cross-fitting.

    Attributes:
        scores: second scores of the first documents of each query, by trees that did not see it.
        trees: fitted on all queries.
        sizes: number of trees of each fold.
    """

    scores: list[Float64]
    trees: Trees
    sizes: list[int]


def folds(queries: Sequence[str]) -> Int64:
    """Return the fold of each query, int64 (B,): equal sizes, in the order of the ids' CRC-32."""
    order = sorted(range(len(queries)), key=lambda i: (crc32(queries[i].encode()), queries[i]))
    found = np.empty(len(queries), np.int64)
    found[order] = np.arange(len(queries)) % FOLDS
    return found


def cross_fit(
    candidates: Candidates, queries: Sequence[str], *, seed: int, threads: int
) -> CrossFit:
    """Fit trees for each fold without it, and on all queries.

    Args:
        candidates: the first documents of the queries.
        queries: their ids, at least FOLDS.
        seed: of the random numbers.
        threads: of LightGBM.
    """
    fold = folds(queries)
    scores: list[Float64] = [np.zeros(0)] * len(candidates)
    sizes = []
    for judged in range(FOLDS):
        stop = (judged + 1) % FOLDS
        fit = np.flatnonzero((fold != judged) & (fold != stop)).tolist()
        booster = fit_booster(
            candidates, fit, np.flatnonzero(fold == stop).tolist(), seed=seed, threads=threads
        )
        trees = trees_of(booster)
        sizes.append(len(trees))
        for query in np.flatnonzero(fold == judged).tolist():
            scores[query] = trees.predict(candidates.features[query])
    count = max(1, round(float(np.mean(sizes))))
    everything = list(range(len(candidates)))
    whole = fit_booster(candidates, everything, [], trees=count, seed=seed, threads=threads)
    return CrossFit(scores, trees_of(whole), sizes)
