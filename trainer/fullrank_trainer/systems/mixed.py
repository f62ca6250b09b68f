"""Fit a mix α f₁ + (1 − α) f₂ of two recipes; each is fitted once for all values of α."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.systems.parts import Fit, add_up, load_part, validate_parts
from fullrank_trainer.systems.rules import require, validate_without_hashing
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.loop import TrainingRun


def validate(validate_part: Callable[[Recipe], None], recipe: Recipe) -> None:
    """Check the settings of a mix and of its two parts. Raises RecipeError."""
    validate_without_hashing(recipe)
    names = recipe.mixed.recipes
    require(len(names) == 2, "mixed.recipes: name two recipes, with a comma between them")
    validate_parts(validate_part, recipe, "mixed.recipes", names)


def fit(fit_part: Fit, context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Fit a mix.

    Args:
        fit_part: fits one of the two recipes.
        context: the collection and cached results.
        recipe: names the two recipes.
        run: settings of this fit.

    Raises:
        RecipeError, TrainingError: a part cannot be fitted.
    """
    alpha = recipe.model.alpha
    parts = [_fit_part(fit_part, context, recipe, run, place) for place in range(2)]
    facts = {"parts": [part.facts for part in parts], "alpha": alpha}
    return add_up(parts, [alpha, 1 - alpha], facts)


def _fit_part(
    fit_part: Fit, context: TrainingContext, recipe: Recipe, run: TrainingRun, place: int
) -> FittedModel:
    part = load_part(recipe.mixed.recipes[place], recipe)
    if recipe.train.seconds:
        part = replace(part, train=replace(part.train, seconds=recipe.train.seconds))
    own = replace(run, recipe=part, path=run.path.with_name(f"part-{place}.npz"))
    if run.warm is not None:
        biased = [load_part(text, recipe).model.bias for text in recipe.mixed.recipes]
        own = replace(own, warm=run.warm.parts(biased)[place])
    key = ("mixed", recipe.mixed.recipes[place], part.train.vectors)
    return context.cached(key, lambda: fit_part(context, part, own))
