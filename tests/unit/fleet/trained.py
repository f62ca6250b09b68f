"""Bundles of planted collections, trained by slices or not."""

from __future__ import annotations

from pathlib import Path

from fullrank.bundle import open_bundle
from fullrank.bundle.manifest import Manifest
from fullrank.progress import Reporter
from fullrank_fleet.training.learner import Slices
from fullrank_trainer.train import train


def trained(
    collection: Path, out: Path, recipe: str, overrides: list[str], distribution: Slices | None
) -> Manifest:
    result = train(
        collection,
        out,
        "planted",
        recipe=recipe,
        overrides=overrides,
        threads=1,
        distribution=distribution,
        reporter=Reporter(quiet=True),
    )
    return open_bundle(result.path).manifest
