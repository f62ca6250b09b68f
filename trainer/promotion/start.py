"""Whether training goes on from the weights of the active version."""

from __future__ import annotations

from fullrank.bundle import Bundle
from fullrank.errors import FullrankError
from trainer.recipes.recipe import Recipe
from trainer.training.warm import WarmStart, trained_card

MOST_GROWTH = 1.25
"""A log that grew by more since the weights of the parts were chosen deserves another choice."""


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
