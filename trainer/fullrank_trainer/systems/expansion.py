"""Query expansion: search, add the mean of the best documents to the query, and search again (Bai et al. 2009).

Nothing is learned; a search over trials on the validation split chooses β and E. This is the smallest system: its
settings, its rules, its fit, and what it is to the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fullrank.models.expansion import ExpansionModel
from fullrank.models.linear import LinearModel
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.recipes.settings import require, setting
from fullrank_trainer.recipes.systems import System
from fullrank_trainer.systems.linear.parameters import compile_model, fitted_linear, start
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.loop import TrainingRun


@dataclass(frozen=True)
class ExpansionSettings:
    """Query expansion."""

    # β: weight of the mean of the documents that the first search finds
    beta: float = setting(0.3, high=1000)
    # E: number of these documents
    feedback: int = setting(5, low=1, high=1_000_000)


def validate(recipe: Recipe) -> None:
    model = recipe.model
    require(
        model.latent == "none" and not model.buckets and recipe.train.loss == "none",
        "query expansion adds words: it needs model.latent = none, model.buckets = 0 and "
        "train.loss = none",
    )


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Build the linear model of a recipe once for all trials, and expand its queries."""
    features = context.features(recipe.model)

    def linear() -> FittedModel:
        parameters = start(features, recipe.train, np.random.default_rng(context.seed))
        return fitted_linear(features, compile_model(features, parameters), parameters)

    base = context.cached(("expansion", recipe.model), linear)
    assert isinstance(base.model, LinearModel)
    return replace(base, model=ExpansionModel(base.model, recipe.own.beta, recipe.own.feedback))


SYSTEM = System("expansion", fit, validate, "expansion", ExpansionSettings, linear_in_query=False)
