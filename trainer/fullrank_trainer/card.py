"""The model card: what a bundle was trained from, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fullrank.bundle import find_bundle
from fullrank.errors import BundleNotFound
from fullrank_trainer.collection import Collection
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.training.result import ResultRow


def model_card(
    collection: Collection,
    recipe: Recipe,
    training: Mapping[str, Any],
    table: Sequence[ResultRow],
) -> dict[str, Any]:
    """Return the JSON form.

    Args:
        collection: that was learned from.
        recipe: of the model.
        training: facts of the fits.
        table: the model beside the baselines.
    """
    return {
        "recipe": recipe.as_dict(),
        "collection": {
            "fingerprint": collection.fingerprint,
            "documents": len(collection.documents),
            "splits": list(collection.splits),
            "fields": [verdict.as_dict() for verdict in collection.fields],
        },
        "table": [row.as_dict() for row in table],
        "training": dict(training),
    }


def newest_version(bundles: Path, name: str) -> str | None:
    """Return the newest version of a name; None if there is none."""
    try:
        return find_bundle(bundles, name).name
    except BundleNotFound:
        return None
