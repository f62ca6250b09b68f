"""Fixtures of unit tests: the planted collection, and what a training loop makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.planted import write_planted

if TYPE_CHECKING:  # Most unit tests need no trainer.
    from fullrank_trainer.features.corpus import Corpus
    from fullrank_trainer.features.matrices import Features
    from fullrank_trainer.recipes.recipe import Recipe
    from fullrank_trainer.training.validation import Validation


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the planted collection; no test may change it."""
    return write_planted(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def corpus(planted: Path) -> Corpus:
    from fullrank_trainer.collection import read_collection
    from fullrank_trainer.features.corpus import count_collection

    return count_collection(read_collection(planted), processes=1)


@pytest.fixture(scope="module")
def valid(corpus: Corpus) -> Validation:
    """All validation queries."""
    from fullrank_trainer.training.validation import validation

    found = validation(corpus, 0)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def features(corpus: Corpus) -> Callable[[Recipe], Features]:
    """A function that builds the features of a recipe, once for equal models."""
    from fullrank_trainer.features.matrices import build_features

    made: dict[Any, Features] = {}

    def build(recipe: Recipe) -> Features:
        if recipe.model not in made:
            made[recipe.model] = build_features(corpus, recipe.model)
        return made[recipe.model]

    return build
