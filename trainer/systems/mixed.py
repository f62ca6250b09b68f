"""Fit a mix α f₁ + (1 − α) f₂ of two recipes; each is fitted once for all values of α."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fullrank.encoding import Encoded, Int64
from fullrank.models.mixed import MixedModel
from trainer.recipes.recipe import Recipe, load_recipe
from trainer.systems.rules import require, validate_without_hashing
from trainer.training.context import TrainingContext
from trainer.training.fitted import FittedModel
from trainer.training.loop import TrainingRun

Fit = Callable[[TrainingContext, Recipe, TrainingRun], FittedModel]


def validate(validate_part: Callable[[Recipe], None], recipe: Recipe) -> None:
    """Check the settings of a mix and of its two parts. Raises RecipeError."""
    validate_without_hashing(recipe)
    names = recipe.mixed.recipes
    require(len(names) == 2, "mixed.recipes: name two recipes, with a comma between them")
    for name in names:
        part = _part(name)
        require(
            part.system != "mixed" and not part.auto.trials,
            f"mixed.recipes: {part.name} is a mix or a search itself",
        )
        require(
            part.system != "expansion",
            f"mixed.recipes: the score of {part.name} is not linear in the query",
        )
        validate_part(part)


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
    model = MixedModel([part.model for part in parts], [alpha, 1 - alpha])
    documents = model.documents([part.documents for part in parts])
    facts = {"parts": [part.facts for part in parts], "alpha": alpha}
    return FittedModel(model, documents, partial(_encode, model, parts), facts)


def _encode(model: MixedModel, parts: list[FittedModel], rows: Int64) -> Encoded:
    return model.queries([part.encode(rows) for part in parts])


def _part(text: str) -> Recipe:
    """Load the recipe that a setting names, with its overrides."""
    name, *overrides = text.split()
    return load_recipe(name).override(overrides)


def _fit_part(
    fit_part: Fit, context: TrainingContext, recipe: Recipe, run: TrainingRun, place: int
) -> FittedModel:
    part = _part(recipe.mixed.recipes[place])
    if recipe.train.seconds:
        part = replace(part, train=replace(part.train, seconds=recipe.train.seconds))
    own = replace(run, recipe=part, path=run.path.with_name(f"part-{place}.npz"))
    key = ("mixed", recipe.mixed.recipes[place])
    return context.cached(key, lambda: fit_part(context, part, own))
