"""Rules for recipes of the linear family."""

from __future__ import annotations

from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.systems.rules import require, validate_common


def validate(recipe: Recipe) -> None:
    """Check the settings of a linear recipe. Raises RecipeError."""
    model, train = recipe.model, recipe.train
    validate_common(recipe)
    validate_model(recipe)
    require(
        model.trigrams != "only" or model.hashing == "none",
        "model.hashing: with trigrams only there are no words to hash",
    )
    require(
        (model.hashing == "none" and model.bigrams == 0) or model.latent == "learned",
        "model.hashing and model.bigrams need a linear model.latent = learned",
    )
    require(
        model.bigrams == 0 or model.buckets == 0,
        "model.bigrams: 2-grams would fall into model.buckets; use one of them",
    )
    require(
        not train.monolingual
        or (train.loss == "margin" and model.latent == "learned" and not model.tied),
        "train.monolingual needs train.loss = margin, model.latent = learned and model.tied = false",
    )


def validate_model(recipe: Recipe) -> None:
    """Check how the parts of a linear model and its loss go together. Raises RecipeError."""
    model, train = recipe.model, recipe.train
    has_layers = bool(model.layers or model.cosine)
    require(
        model.latent != "learned" or train.loss != "none",
        "model.latent = learned needs train.loss margin or softmax",
    )
    require(
        model.diagonal != "learned" or train.loss != "none",
        "model.diagonal = learned needs train.loss margin or softmax",
    )
    require(
        model.latent != "none" or model.match != "none",
        "a model needs model.latent or model.match",
    )
    require(
        train.members == 1 or not (has_layers or train.loss == "none"),
        "train.members: averaging several fits needs a train.loss, and no model.layers or model.cosine",
    )
    require(
        model.clicked == "off" or train.loss == "softmax", "model.clicked needs train.loss softmax"
    )
    require(
        not has_layers or (model.latent == "learned" and train.loss == "softmax"),
        "model.layers and model.cosine need model.latent learned and train.loss softmax",
    )
    require(
        not model.skip or model.layers[-1:] == (model.dimension,),
        "model.skip: the last of model.layers must be as wide as model.dimension",
    )
