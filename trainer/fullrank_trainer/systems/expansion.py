"""Query expansion: nothing is fitted; a search over trials on the validation split chooses β and E."""

from __future__ import annotations

from functools import partial

import numpy as np

from fullrank.encoding import Encoded
from fullrank.models.expansion import ExpansionModel
from fullrank.models.linear import LinearModel
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.systems.linear.parameters import (
    compile_model,
    encode_corpus,
    encode_judged,
    start,
)
from fullrank_trainer.systems.rules import require, validate_without_hashing
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.loop import TrainingRun


def validate(recipe: Recipe) -> None:
    """Check the settings of a query expansion. Raises RecipeError."""
    validate_without_hashing(recipe)
    model = recipe.model
    require(
        model.latent == "none" and not model.buckets and recipe.train.loss == "none",
        "query expansion adds words: it needs model.latent = none, model.buckets = 0 and "
        "train.loss = none",
    )


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Build the linear model of a recipe, with expanded queries."""
    model, train = recipe.model, recipe.train
    features = context.features(model)

    def make() -> tuple[LinearModel, Encoded]:
        parameters = start(features, train, np.random.default_rng(context.seed))
        base = compile_model(features, parameters)
        return base, encode_corpus(features, base, parameters)

    base, documents = context.cached(("expansion", model), make)
    expanded = ExpansionModel(base, recipe.expansion.beta, recipe.expansion.feedback)
    return FittedModel(expanded, documents, partial(encode_judged, features, base))
