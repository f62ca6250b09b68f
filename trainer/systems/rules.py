"""Rules that settings of several systems have in common."""

from __future__ import annotations

from fullrank.errors import RecipeError
from trainer.recipes.recipe import Recipe


def require(condition: bool, message: str) -> None:
    """Raise RecipeError with the message unless the condition holds."""
    if not condition:
        raise RecipeError(message)


def validate_common(recipe: Recipe) -> None:
    """Check settings that every system reads. Raises RecipeError."""
    model, train = recipe.model, recipe.train
    require(
        not (model.tied and model.vocabularies == "two"),
        "model.tied: one table cannot have two vocabularies",
    )
    require(
        train.loss != "margin" or bool(train.rates),
        "train.rates: the margin loss needs at least one rate",
    )


def validate_without_hashing(recipe: Recipe) -> None:
    """Check the settings of a system that cannot hash words. Raises RecipeError."""
    validate_common(recipe)
    model = recipe.model
    require(
        model.hashing == "none" and model.bigrams == 0,
        "model.hashing and model.bigrams need a linear model.latent = learned",
    )
