"""Where training begins: by which recipe, and whether from the weights of the active version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fullrank.bundle import Bundle
from fullrank.errors import FullrankError
from fullrank_trainer.recipes.recipe import Recipe, load_recipe, recipe_names, stored_recipe
from fullrank_trainer.systems.blend.trial import learns
from fullrank_trainer.training.warm import WarmStart, trained_card

DEFAULT = "auto"
MOST_GROWTH = 1.25
"""A log that grew by more since the weights of the parts were chosen deserves another choice."""


def recipe_of(card: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a training; auto if it learned nothing from clicks, as BM25.

    A search among settings that the recipe began with takes place again: new clicks may choose others.

    Args:
        card: of the training, as ``trained_card`` finds it.

    Raises:
        RecipeError: another version of Fullrank wrote its recipe.
    """
    facts = card.get("recipe")
    if facts is None:
        return load_recipe(DEFAULT)
    own = stored_recipe(facts)
    if own.system == "linear" and not learns(own):
        return load_recipe(DEFAULT)
    return replace(own, auto=load_recipe(own.name).auto) if own.name in recipe_names() else own


def goes_on(active: Bundle, recipe: Recipe, clicks: int) -> bool:
    """Return whether the active version was retrained by the same recipe, and from nearly as many clicks.

    Args:
        active: an open bundle.
        recipe: of the candidates.
        clicks: votes with a click, of now.
    """
    known = trained_card(active).get("clicks", {}).get("anew_clicks", 0)
    if clicks > MOST_GROWTH * known:
        return False
    try:
        return WarmStart.of(active).fits(recipe)
    except FullrankError:
        return False
