"""Fitting a mix: α f₁ + (1 − α) f₂ of two recipes, each fitted once for all α that are tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fullrank.encoding import Encoded, Int64
from fullrank.errors import RecipeError
from fullrank.models.mixed import MixedModel
from trainer.recipes.recipe import Recipe, load_recipe
from trainer.training.fitted import Fitted
from trainer.training.loop import Run
from trainer.workshop import Workshop

Fit = Callable[[Workshop, Recipe, Run], Fitted]


def fit(fit_part: Fit, workshop: Workshop, recipe: Recipe, run: Run) -> Fitted:
    """The model of a mix, whose parts are fitted by ``fit_part``.

    Raises RecipeError where a part is none, and what fitting the parts raises.
    """
    alpha = recipe.model.alpha
    parts = [_part(fit_part, workshop, recipe, run, place) for place in range(2)]
    model = MixedModel([part.model for part in parts], [alpha, 1 - alpha])
    documents = model.documents([part.documents for part in parts])
    facts = {"parts": [part.facts for part in parts], "alpha": alpha}
    return Fitted(model, documents, partial(_encode, model, parts), facts)


def _encode(model: MixedModel, parts: list[Fitted], rows: Int64) -> Encoded:
    return model.queries([part.encode(rows) for part in parts])


def _part(fit_part: Fit, workshop: Workshop, recipe: Recipe, run: Run, place: int) -> Fitted:
    name, *overrides = recipe.mixed.recipes[place].split()
    part = load_recipe(name).override(overrides)
    if part.system == "mixed" or part.auto.trials:
        raise RecipeError(f"mixed.recipes: {name} is a mix or a search itself")
    if part.system == "expansion":
        raise RecipeError(f"mixed.recipes: the score of {name} is not linear in the query")
    if recipe.train.seconds:
        part = replace(part, train=replace(part.train, seconds=recipe.train.seconds))
    own = replace(run, recipe=part, path=run.path.with_name(f"part-{place}.npz"))
    key = ("mixed", recipe.mixed.recipes[place])
    return workshop.once(key, lambda: fit_part(workshop, part, own))
