"""Measures of systems whose weights come from two-fold cross validation on the test queries.

The learned parts of a system stay; only the weights of the parts are chosen, on one half of the queries for the other,
by NDCG@10, because a setting looks too good on the queries that selected it. The results include the weight that each
query was measured with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from benchmarks.harness.lab import encode_queries, retriever_of
from fullrank.measures import RANKING_MEASURES, Float64, Int64, ranking_measures
from fullrank.models.language import LanguageModel
from fullrank.models.linear import LinearModel
from fullrank_trainer.evaluation.evaluate import DEPTH, Judgement, measure_rankings
from fullrank_trainer.systems.language import mixed_scores
from fullrank_trainer.train import Trainer
from fullrank_trainer.training.fitted import FittedModel

# λ₁ covers nearly none to nearly all of the collection; the best value depends on the other part.
LAMBDA1 = (0.0005, 0.002, 0.01, 0.05, 0.2, 0.5, 0.8)
LAMBDA2 = (0.1, 0.3, 0.5, 0.7, 0.9)
ALPHA = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

Weights = tuple[float, ...]
Measured = dict[str, Float64]
_BY = "ndcg@10"


def crossed_weights(
    trainer: Trainer, found: FittedModel, judgements: Sequence[Judgement]
) -> dict[str, Float64]:
    """Return the weights of a language model: λ₁, and λ₂ unless the model omits one part (0 or 1)."""
    model = found.model
    assert isinstance(model, LanguageModel)
    lambda2 = model.settings["lambda2"]
    grid = list(product(LAMBDA1, LAMBDA2 if 0 < lambda2 < 1 else (lambda2,)))
    queries = encode_queries(trainer, found, judgements)
    measured: dict[Weights, Measured] = {
        weights: {name: np.zeros(len(judgements)) for name in RANKING_MEASURES} for weights in grid
    }
    for i, judgement in enumerate(judgements):
        scores = mixed_scores(model, found.documents, queries.slice(i, i + 1), grid)
        for weights, line in zip(grid, scores, strict=True):
            for name, value in measures_of(line, judgement).items():
                measured[weights][name][i] = value
    return _crossed(measured, ("lambda1", "lambda2"))


def crossed_alpha(
    trainer: Trainer, found: FittedModel, judgements: Sequence[Judgement]
) -> dict[str, Float64]:
    """Return α of a mix α u·v + (1 − α) s·t, which the compiled model has as a factor on each part."""
    model = found.model
    assert isinstance(model, LinearModel)
    alpha = model.settings["dense_scale"]
    queries, retriever = encode_queries(trainer, found, judgements), retriever_of(found)
    measured: dict[Weights, Measured] = {}
    sparse = queries.sparse
    for other in ALPHA:
        mixed = replace(
            queries,
            dense=queries.dense * np.float32(other / alpha),
            sparse=sparse.with_values(sparse.values * np.float32((1 - other) / (1 - alpha))),
        )
        measured[(other,)] = measure_rankings(
            retriever, mixed, judgements, documents=len(found.documents), with_rank_loss=False
        )
    return _crossed(measured, ("alpha",))


def _crossed(measured: Mapping[Weights, Measured], names: Sequence[str]) -> dict[str, Float64]:
    """Measure each half with the best weights of the other, the first of equal ones; return these per query, too."""
    count = len(next(iter(measured.values()))[_BY])
    parts = halves(count)
    best = [max(measured, key=lambda w: float(measured[w][_BY][rows].mean())) for rows in parts]
    found = {name: np.empty(count) for name in (*next(iter(measured.values())), *names)}
    for rows, weights in zip(parts, best[::-1], strict=True):
        for name, values in measured[weights].items():
            found[name][rows] = values[rows]
        for name, weight in zip(names, weights, strict=True):
            found[name][rows] = weight
    return found


def halves(queries: int) -> tuple[Int64, Int64]:
    """Split the rows into two halves, ascending; equal for every system with as many queries."""
    order = np.random.default_rng(1).permutation(queries)
    return np.sort(order[: queries // 2]), np.sort(order[queries // 2 :])


def measures_of(scores: Float64, judgement: Judgement) -> dict[str, float]:
    """Return RANKING_MEASURES of one query from the scores of all documents, ties by row, first 1000 places."""
    scores = scores.copy()
    scores[judgement.excluded] = -np.inf
    grades = np.zeros(DEPTH, np.int64)
    for row, grade in zip(judgement.relevant.tolist(), judgement.grades.tolist(), strict=True):
        above = np.count_nonzero(scores > scores[row])
        above += np.count_nonzero(scores[:row] == scores[row])
        if above < DEPTH:
            grades[above] = grade
    return ranking_measures(grades, judgement.grades)
