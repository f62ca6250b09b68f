"""How the experiments measure: the queries, the retriever, and the time of a fit."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fullrank.encoding import Encoded
from fullrank.measures import Float64
from fullrank.retrieval import Retriever
from fullrank_trainer.evaluation.evaluate import evenly_spread, measure_rankings
from fullrank_trainer.evaluation.judgement import Judgement
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.train import Trainer
from fullrank_trainer.training.fitted import FittedModel

Measure = Callable[[Trainer, FittedModel, Sequence[Judgement]], dict[str, Float64]]
"""Per-query values of a trained model, in the order of the judgements."""


def ranked(
    trainer: Trainer, found: FittedModel, judgements: Sequence[Judgement]
) -> dict[str, Float64]:
    """Measure rankings of the whole collection, with the code that serves."""
    return measure_rankings(
        retriever_of(found),
        encode_queries(trainer, found, judgements),
        judgements,
        documents=len(found.documents),
    )


def encode_queries(
    trainer: Trainer, found: FittedModel, judgements: Sequence[Judgement]
) -> Encoded:
    """Return the judged queries as encoded by the model."""
    place = trainer.corpus.query_ids.rows
    return found.encode(np.array([place[judgement.query] for judgement in judgements], np.int64))


def retriever_of(found: FittedModel) -> Retriever:
    """Return the retriever that would serve the model."""
    return Retriever(found.documents, found.model.scorer(found.documents))


def spread(judgements: Sequence[Judgement], limit: int) -> list[Judgement]:
    """Return at most ``limit`` judgements (0: all), evenly spread."""
    return [judgements[i] for i in evenly_spread(len(judgements), limit).tolist()]


def limited(recipe: Recipe, seconds: float) -> Recipe:
    """Return the recipe with a time limit of ``seconds`` per fit (0: unchanged)."""
    train, auto = recipe.train, recipe.auto
    if not seconds or (recipe.system == "linear" and train.loss == "none"):
        return recipe
    train = replace(train, seconds=min(train.seconds or seconds, seconds))
    if auto.trials:
        most = seconds * len(auto.trials)
        auto = replace(auto, seconds=min(auto.seconds or most, most))
    elif recipe.system == "blend":
        auto = replace(auto, seconds=min(auto.seconds or seconds, seconds))
    return replace(recipe, train=train, auto=auto)


def resident_gib() -> float:
    """Return the memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**30
