"""A bundle that training goes on from: its recipe, its model, and the biases of its documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fullrank.bundle import Bundle, open_bundle
from fullrank.errors import TrainingError
from fullrank.models.contract import Model
from fullrank.models.linear import LinearModel
from fullrank.models.mixed import MixedModel
from fullrank.storage.encoding import Float32, Int64
from fullrank_trainer.collection import Collection
from fullrank_trainer.recipes.recipe import Recipe, load_recipe, stored_recipe, system_of
from fullrank_trainer.training.fitted import LEARNED_VALID

_LIMITS = {"train": ("seconds", "valid_queries"), "auto": ("seconds", "trials")}
# Settings that say how long a training takes and what it measures, not what it learns.


def trained_card(bundle: Bundle) -> Mapping[str, Any]:
    """Return the card of a training; a version whose live documents were compacted keeps it within its own."""
    found: Mapping[str, Any] = bundle.card.get("trained", bundle.card)
    return found


def knows_valid(bundle: Bundle, collection: Collection) -> bool:
    """Return whether a bundle was trained on a collection and has learned the clicks of its split `valid`."""
    card = trained_card(bundle)
    source = card.get("collection", {}).get("fingerprint")
    return bool(card.get("training", {}).get(LEARNED_VALID)) and source == collection.fingerprint


@dataclass(frozen=True, eq=False)
class WarmStart:
    """A bundle, or a part of one.

    Attributes:
        facts: of its training, from the model card.
        member: which of the averaged fits goes on.
    """

    version: str
    recipe: Recipe
    facts: Mapping[str, Any]
    model: Model
    ids: Sequence[str]
    bias: Float32
    member: int = 0

    @staticmethod
    def of(bundle: Bundle) -> WarmStart:
        """Take what a bundle learned. Raises RecipeError, TrainingError."""
        card = trained_card(bundle)
        if not {"recipe", "training"} <= card.keys():
            raise TrainingError(f"{bundle.version}: its model card has no recipe to go on with")
        recipe = stored_recipe(card["recipe"])
        bias, ids = np.array(bundle.encoded.bias), bundle.documents.ids
        return WarmStart(bundle.version, recipe, card["training"], bundle.model, ids, bias)

    @property
    def models(self) -> Sequence[Model]:
        return self.model.models if isinstance(self.model, MixedModel) else [self.model]

    @property
    def has_matrix(self) -> bool:
        return any(isinstance(model, LinearModel) and model.n_dense for model in self.models)

    def require(self, recipe: Recipe) -> None:
        """Raise TrainingError unless a recipe has the parts and dimensions of the bundle."""
        own = self.recipe
        if (recipe.name, recipe.system) != (own.name, own.system):
            raise TrainingError(
                f"{self.version} was trained by the recipe {own.name}, not {recipe.name}; "
                "leave out --recipe, or train without --from"
            )
        if recipe.model.dimension != own.model.dimension:
            raise TrainingError(
                f"{self.version} has {own.model.dimension} dimensions, not {recipe.model.dimension}; "
                "leave out model.dimension, or train without --from"
            )
        if system_of(recipe).parts is not None and recipe.own != own.own:
            raise TrainingError(
                f"{self.version} was trained with other settings of blend or mixed; "
                "leave them out, or train without --from"
            )

    def fits(self, recipe: Recipe) -> bool:
        """Return whether training by a recipe can go on: all settings but the limits are those of the bundle."""
        return self.has_matrix and _without_limits(self.recipe) == _without_limits(recipe)

    def parts(self, biased: Sequence[bool]) -> list[WarmStart]:
        """Return the parts of a mix, given which have biases.

        A bundle has only the sum of the biases of its parts, Σ w_m b_m: parts that have any get equal ones.
        """
        model = self.model
        if not isinstance(model, MixedModel):
            return [self]
        weights = model.for_documents.weights
        pairs = list(zip(model.models, weights, strict=True))
        level = sum(w * one.settings["bias"] for one, w in pairs if isinstance(one, LinearModel))
        unjudged = np.isclose(self.bias, level + model.lift.added, rtol=0, atol=1e-6)
        total = sum(w for w, has in zip(weights, biased, strict=True) if has)
        bias = (self.bias - np.float32(model.lift.added) * unjudged) / np.float32(total or 1.0)
        return [
            replace(self, model=one, bias=bias if has else np.zeros_like(bias))
            for one, has in zip(model.models, biased, strict=True)
        ]

    def rows(self, ids: Sequence[str]) -> Int64:
        """Return the rows of documents, -1 for new ones."""
        place = {id: row for row, id in enumerate(self.ids)}
        return np.array([place.get(id, -1) for id in ids], np.int64)


def _without_limits(recipe: Recipe) -> dict[str, Any]:
    facts = recipe.as_dict()
    return {
        key: {name: v for name, v in value.items() if name not in _LIMITS.get(key, ())}
        if isinstance(value, dict)
        else value
        for key, value in facts.items()
    }


def settings_of(
    recipe: Recipe | str | Path | None, overrides: Sequence[str], start: Path | None
) -> tuple[Recipe, WarmStart | None]:
    """Return the recipe of a training, and the bundle that it goes on from.

    Without a recipe it is that of the bundle, or auto. Raises BundleError, RecipeError, TrainingError.
    """
    if start is None:
        return _loaded(recipe or "auto").override(overrides), None
    warm = WarmStart.of(open_bundle(start))
    chosen = (warm.recipe if recipe is None else _loaded(recipe)).override(overrides)
    warm.require(chosen)
    return replace(chosen, auto=replace(chosen.auto, trials=())), warm


def _loaded(recipe: Recipe | str | Path) -> Recipe:
    return recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
