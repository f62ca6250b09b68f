"""Fit a mix α f₁ + (1 − α) f₂ of two recipes; each is fitted once for all values of α."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fullrank.encoding import Encoded, Int64
from fullrank.models.mixed import MixedModel
from trainer.recipes.recipe import Recipe, load_recipe
from trainer.systems.rules import require, starts_at_vectors, validate_without_hashing
from trainer.training.context import TrainingContext
from trainer.training.fitted import FittedModel
from trainer.training.loop import TrainingRun

Fit = Callable[[TrainingContext, Recipe, TrainingRun], FittedModel]


def validate(validate_part: Callable[[Recipe], None], recipe: Recipe) -> None:
    """Check the settings of a mix and of its two parts. Raises RecipeError."""
    validate_without_hashing(recipe)
    names = recipe.mixed.recipes
    require(len(names) == 2, "mixed.recipes: name two recipes, with a comma between them")
    parts = [_part(recipe, place) for place in range(2)]
    require(
        not recipe.train.vectors or any(part.train.vectors for part in parts),
        "train.vectors: no part of the mix can start at word vectors",
    )
    for part in parts:
        require(
            part.system not in ("mixed", "blend") and not part.auto.trials,
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


def _part(recipe: Recipe, place: int) -> Recipe:
    """Load one of the two recipes with its overrides; the word vectors of the mix are those of its parts."""
    name, *overrides = recipe.mixed.recipes[place].split()
    part = load_recipe(name).override(overrides)
    if recipe.train.vectors and starts_at_vectors(part):
        part = replace(part, train=replace(part.train, vectors=recipe.train.vectors))
    return part


def _fit_part(
    fit_part: Fit, context: TrainingContext, recipe: Recipe, run: TrainingRun, place: int
) -> FittedModel:
    part = _part(recipe, place)
    if recipe.train.seconds:
        part = replace(part, train=replace(part.train, seconds=recipe.train.seconds))
    own = replace(run, recipe=part, path=run.path.with_name(f"part-{place}.npz"))
    key = ("mixed", recipe.mixed.recipes[place], part.train.vectors)
    return context.cached(key, lambda: fit_part(context, part, own))
