"""The systems there are: how each kind of recipe is fitted, and what its models can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fullrank.errors import RecipeError
from trainer import linear
from trainer.fit import Run
from trainer.fitted import Fitted
from trainer.recipe import Recipe
from trainer.workshop import Workshop


@dataclass(frozen=True)
class System:
    """How recipes of one system are fitted.

    new_queries    its models answer queries that training did not see
    new_documents  its models embed documents that training did not see
    """

    fit: Callable[[Workshop, Recipe, Run], Fitted]
    new_queries: bool = True
    new_documents: bool = True


SYSTEMS: dict[str, System] = {
    "linear": System(linear.fit),
}


def system_of(recipe: Recipe) -> System:
    """The system of a recipe. Raises RecipeError saying which there are."""
    try:
        return SYSTEMS[recipe.system]
    except KeyError:
        raise RecipeError(
            f"recipe {recipe.name}: no system {recipe.system!r}; there are: {', '.join(SYSTEMS)}"
        ) from None
