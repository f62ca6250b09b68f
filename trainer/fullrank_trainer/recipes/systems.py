"""What a system declares: its settings, its fit, its limits.

Every ``System`` in a module of ``fullrank_trainer.systems`` is registered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any


@dataclass(frozen=True)
class NoSettings:
    """The section of a system without settings of its own."""


@dataclass(frozen=True)
class Cost:
    """Estimated memory and work of fitting a recipe.

    Attributes:
        parameters: bytes of the parameters of one fit.
        scratch: bytes of temporary arrays in one step.
        operations: multiplications of all fits.
        fits: how often each part is fitted: 2 for a blend, a trial and the last fit.
    """

    parameters: int = 0
    scratch: int = 0
    operations: float = 0.0
    fits: int = 1


@dataclass(frozen=True)
class System:
    """One system.

    Attributes:
        fit: fits a recipe: (TrainingContext, Recipe, TrainingRun) → FittedModel. Raises TrainingError.
        validate: raises RecipeError if the settings of a recipe do not go together.
        parts: for a system that sums other recipes: takes a recipe and whether documents are the queries; returns the
            setting that lists the parts, and their texts. None for others.
        learns: whether a recipe learns in epochs, so that a time limit holds.
        takes_vectors: whether a recipe can start at pretrained word vectors.
        hashes_words: whether a recipe can hash words and read 2-grams.
        linear_in_query: whether the score is linear in the query, so that it can be a part of a sum.
        cost: estimates the cost of a recipe on a counted corpus.
    """

    name: str
    fit: Callable[[Any, Any, Any], Any]
    validate: Callable[[Any], None] = lambda _: None
    section: str = ""
    settings: Callable[..., Any] = NoSettings
    parts: Callable[[Any, bool], tuple[str, tuple[str, ...]]] | None = None
    learns: Callable[[Any], bool] = lambda _: False
    takes_vectors: Callable[[Any], bool] = lambda _: False
    hashes_words: Callable[[Any], bool] = lambda _: False
    linear_in_query: bool = True
    is_fixed: Callable[[Any], bool] = lambda _: False
    reorders: bool = False
    cost: Callable[[Any, Any], Cost] = lambda *_: Cost()


@cache
def systems() -> dict[str, System]:
    """Import all modules of ``fullrank_trainer.systems``, and return their systems by name."""
    package = "fullrank_trainer.systems"
    modules = walk_packages(import_module(package).__path__, f"{package}.")
    values = [value for found in modules for value in vars(import_module(found.name)).values()]
    return {value.name: value for value in values if isinstance(value, System)}
