"""The systems: how each kind of recipe is set, fitted and limited. A module of ``systems`` that makes one adds it."""

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
    """What a fit takes.

    Attributes:
        parameters: bytes of the parameters of one fit.
        scratch: bytes that a step makes.
        fits: how often the time limit has to hold each part: a trial and the last fit.
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
        section, settings: the section of its own settings, and their class; "" without any.
        parts: of a system that adds up other recipes, given a recipe and whether documents are the queries: the setting
            that lists them, and their texts.
        learns: whether a recipe learns in epochs, so that a time limit holds.
        takes_vectors: whether a recipe can start at pretrained word vectors.
        hashes_words: whether a recipe can hash words and read 2-grams.
        linear_in_query: whether the score is linear in the query, so that it can be a part of a sum.
        is_fixed: whether a recipe reads no judgement, as BM25.
        learns_valid: whether a recipe also learns the queries of the validation split.
        reorders: whether a second stage is worth a try unasked.
        cost: of a recipe on a counted corpus.
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
    learns_valid: Callable[[Any], bool] = lambda _: False
    reorders: bool = False
    cost: Callable[[Any, Any], Cost] = lambda *_: Cost()


@cache
def systems() -> dict[str, System]:
    """Return all systems by name; the modules of ``fullrank_trainer.systems`` are imported for it."""
    package = "fullrank_trainer.systems"
    modules = walk_packages(import_module(package).__path__, f"{package}.")
    values = [value for found in modules for value in vars(import_module(found.name)).values()]
    return {value.name: value for value in values if isinstance(value, System)}
