"""Rules that settings of several systems have in common."""

from __future__ import annotations

from pathlib import Path

from fullrank.errors import RecipeError
from fullrank_trainer.recipes.recipe import Recipe

SUMS = ("mixed", "blend")
"""Systems whose recipes add up other recipes."""


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
    require(
        train.hardest_of == 1 or (recipe.system == "linear" and train.loss == "margin"),
        "train.hardest_of needs a linear recipe with train.loss = margin",
    )
    require(
        not train.vectors or recipe.system in SUMS or starts_at_vectors(recipe),
        "train.vectors needs a linear recipe with model.latent = learned and words: "
        "model.trigrams = only has none",
    )
    require(
        not train.vectors or Path(train.vectors).is_file(),
        f"train.vectors: there is no file {train.vectors}",
    )


def starts_at_vectors(recipe: Recipe) -> bool:
    """Tell whether U and V of a recipe have rows that can start at word vectors."""
    model = recipe.model
    return recipe.system == "linear" and model.latent == "learned" and model.trigrams != "only"


def validate_without_hashing(recipe: Recipe) -> None:
    """Check the settings of a system that cannot hash words. Raises RecipeError."""
    validate_common(recipe)
    model = recipe.model
    require(
        model.hashing == "none" and model.bigrams == 0,
        "model.hashing and model.bigrams need a linear model.latent = learned",
    )
