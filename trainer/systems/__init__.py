"""The systems there are: how each kind of recipe is fitted, and what its models can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fullrank.errors import RecipeError
from trainer import expansion, mixed
from trainer.language import translation
from trainer.projections import projection
from trainer.recipes.recipe import Recipe, load_recipe, recipe_names
from trainer.systems.language import system as language
from trainer.systems.linear import system as linear
from trainer.systems.pairs import system as pairs
from trainer.systems.transductive import eigenmaps, graph, half_transductive, reconstruction
from trainer.training.fitted import Fitted
from trainer.training.loop import Run
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


def fit(workshop: Workshop, recipe: Recipe, run: Run) -> Fitted:
    """A recipe fitted by its system. Raises RecipeError, TrainingError."""
    return system_of(recipe).fit(workshop, recipe, run)


SYSTEMS: dict[str, System] = {
    "expansion": System(expansion.fit),
    "language": System(language.fit),
    "linear": System(linear.fit),
    "pairs": System(pairs.fit),
    "eigenmaps": System(eigenmaps.fit),
    "htr": System(half_transductive.fit),
    "htr-reconstruction": System(reconstruction.fit),
    "htr-graph": System(graph.fit),
    "projection": System(projection.fit),
    "mixed": System(partial(mixed.fit, fit)),
    "translation": System(translation.fit),
}


def system_of(recipe: Recipe) -> System:
    """The system of a recipe. Raises RecipeError saying which there are."""
    try:
        return SYSTEMS[recipe.system]
    except KeyError:
        raise RecipeError(
            f"recipe {recipe.name}: no system {recipe.system!r}; there are: {', '.join(SYSTEMS)}"
        ) from None


def described() -> list[dict[str, Any]]:
    """Every recipe that comes with Fullrank: its name, what it is, and what its models can do."""
    found = []
    for name in recipe_names():
        recipe = load_recipe(name)
        system = system_of(recipe)
        found.append(
            {
                "recipe": name,
                "system": recipe.system,
                "paper": recipe.paper,
                "about": recipe.about,
                "new_queries": system.new_queries,
                "new_documents": system.new_documents,
            }
        )
    return found
