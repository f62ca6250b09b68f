"""Query expansion: nothing is fitted; β and E are a search over trials on the validation split."""

from __future__ import annotations

from functools import partial

import numpy as np

from fullrank.encoding import Encoded
from fullrank.errors import RecipeError
from fullrank.linear import LinearModel
from fullrank.models.expansion import ExpansionModel
from trainer.recipes.recipe import Recipe
from trainer.systems.linear.parameters import compile_model, encode_corpus, encode_judged, start
from trainer.training.fitted import Fitted
from trainer.training.loop import Run
from trainer.workshop import Workshop


def fit(workshop: Workshop, recipe: Recipe, run: Run) -> Fitted:
    """The linear model of the recipe, its queries expanded. Raises RecipeError where that has no words to add."""
    model, train = recipe.model, recipe.train
    if model.latent != "none" or model.buckets or train.loss != "none":
        raise RecipeError(
            "query expansion is of words: it needs model.latent = none, model.buckets = 0 and "
            "train.loss = none"
        )
    features = workshop.features(model)

    def make() -> tuple[LinearModel, Encoded]:
        parameters = start(features, train, np.random.default_rng(workshop.seed))
        base = compile_model(features, parameters)
        return base, encode_corpus(features, base, parameters)

    base, documents = workshop.once(("expansion", model), make)
    expanded = ExpansionModel(base, recipe.expansion.beta, recipe.expansion.feedback)
    return Fitted(expanded, documents, partial(encode_judged, features, base))
