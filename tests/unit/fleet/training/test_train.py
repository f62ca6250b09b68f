"""The train function on slices: bundles equal to those of one machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numba
import pytest

from fleet.jobs.tasks import InProcess
from fleet.remote import Folder
from fleet.training.learner import Slices
from fullrank.bundle import open_bundle
from fullrank.errors import RecipeError
from fullrank.progress import Reporter
from tests.planted import write_planted
from trainer.train import train

TINY = ["dimension=8", "epochs=3", "patience=3", "batch=32", "candidates=30", "rate=0.1"]
BLEND = [
    "blend.recipes=bm25;fielded members=2 dimension=8 epochs=3 batch=32 candidates=30 train.rate=0.1",
    "auto.seconds=0",
]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("planted"))


def trained(
    collection: Path, out: Path, recipe: str, overrides: list[str], slices: int = 0
) -> tuple[str, object]:
    """Return the bundle id, and the card's line on slices."""
    distribution = Slices(Folder(str(out / ".slices")), InProcess(), slices) if slices else None
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
    manifest = open_bundle(result.path).manifest
    return manifest.bundle_id, manifest.card.get("distribution")


@pytest.mark.parametrize(("recipe", "overrides"), [("fielded", TINY), ("auto", BLEND)])
def test_one_slice_writes_the_bundle_of_one_machine(
    recipe: str, overrides: list[str], planted: Path, tmp_path: Path
) -> None:
    alone, _ = trained(planted, tmp_path / "a", recipe, overrides)
    assert trained(planted, tmp_path / "b", recipe, overrides, 1) == (alone, "")
    sliced, card = trained(planted, tmp_path / "c", recipe, overrides, 4)
    assert sliced != alone
    assert card == "slices=4 rounds=1 squares=mean steps=root"


def test_a_recipe_without_steps_is_refused_before_the_collection_is_read(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="train it without --ray"):
        trained(tmp_path / "nowhere", tmp_path, "bm25", [], 4)
