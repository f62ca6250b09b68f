"""The planted collection, counted: what a training loop starts from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.corpus import Corpus, count_collection
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.training.validation import Validation, validation
from tests.planted import write_planted


def planted_corpus(folder: Path) -> Corpus:
    return count_collection(read_collection(write_planted(folder)), processes=1)


def validation_of(corpus: Corpus) -> Validation:
    """Return all of its validation queries."""
    found = validation(corpus, 0)
    assert found is not None
    return found


def feature_builder(corpus: Corpus) -> Callable[[Recipe], Features]:
    """Return a function that builds the features of a recipe, once for equal models."""
    made: dict[Any, Features] = {}

    def build(recipe: Recipe) -> Features:
        if recipe.model not in made:
            made[recipe.model] = build_features(corpus, recipe.model)
        return made[recipe.model]

    return build
