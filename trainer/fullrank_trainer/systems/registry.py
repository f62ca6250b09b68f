"""The systems: how each kind of recipe is validated and fitted, and what its models can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fullrank.errors import RecipeError
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.systems import (
    blend,
    expansion,
    half_transductive,
    language,
    memory,
    mentions,
    mixed,
    pairs,
    projections,
    reconstruction,
    translation,
)
from fullrank_trainer.systems.linear import system as linear
from fullrank_trainer.systems.rules import validate_without_hashing
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.loop import TrainingRun


@dataclass(frozen=True)
class System:
    """How recipes of one system are validated and fitted.

    Attributes:
        fit: fits a recipe; raises TrainingError.
        validate: raises RecipeError if the settings of a recipe do not go together.
    """

    fit: Callable[[TrainingContext, Recipe, TrainingRun], FittedModel]
    validate: Callable[[Recipe], None] = validate_without_hashing


def validate(recipe: Recipe) -> None:
    """Check a recipe and every trial of its search. Raises RecipeError."""
    system_of(recipe).validate(recipe)
    for trial in recipe.auto.trials:
        system_of(recipe).validate(recipe.override(trial.split(",")))


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Validate a recipe and fit it by its system. Raises RecipeError, TrainingError."""
    system = system_of(recipe)
    system.validate(recipe)
    return system.fit(context, recipe, run)


SYSTEMS: dict[str, System] = {
    "expansion": System(expansion.fit, expansion.validate),
    "language": System(language.fit, language.validate),
    "linear": System(linear.fit, linear.validate),
    "pairs": System(pairs.fit, pairs.validate),
    "eigenmaps": System(projections.fit_eigenmaps),
    "htr": System(half_transductive.fit),
    "htr-reconstruction": System(reconstruction.fit),
    "htr-graph": System(half_transductive.fit_graph),
    "memory": System(memory.fit),
    "mentions": System(mentions.fit),
    "projection": System(projections.fit),
    "mixed": System(partial(mixed.fit, fit), partial(mixed.validate, validate)),
    "blend": System(partial(blend.fit, fit), partial(blend.validate, validate)),
    "translation": System(translation.fit, translation.validate),
}


def system_of(recipe: Recipe) -> System:
    """Return the system of a recipe. Raises RecipeError that names the known systems."""
    try:
        return SYSTEMS[recipe.system]
    except KeyError:
        raise RecipeError(
            f"recipe {recipe.name}: no system {recipe.system!r}; there are: {', '.join(SYSTEMS)}"
        ) from None
