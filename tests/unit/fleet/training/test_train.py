"""The train function on slices: bundles equal to those of one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from fullrank.errors import RecipeError
from fullrank_fleet.jobs.tasks import InProcess
from fullrank_fleet.remote import Folder
from fullrank_fleet.training.learner import Slices
from tests.unit.fleet.trained import trained

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = ["dimension=8", "epochs=3", "patience=3", "batch=32", "candidates=30", "rate=0.1"]
BLEND = [
    "blend.recipes=bm25;fielded members=2 dimension=8 epochs=3 batch=32 candidates=30 train.rate=0.1",
    "auto.seconds=0",
]


def in_slices(out: Path, slices: int) -> Slices:
    return Slices(Folder(str(out / ".slices")), InProcess(), slices)


@pytest.mark.parametrize(("recipe", "overrides"), [("fielded", TINY), ("auto", BLEND)])
def test_one_slice_writes_the_bundle_of_one_machine(
    recipe: str, overrides: list[str], planted: Path, tmp_path: Path
) -> None:
    alone, whole, cut = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    expected = trained(planted, alone, recipe, overrides, None).bundle_id
    one = trained(planted, whole, recipe, overrides, in_slices(whole, 1))
    assert (one.bundle_id, one.card.get("distribution")) == (expected, "")
    four = trained(planted, cut, recipe, overrides, in_slices(cut, 4))
    assert four.bundle_id != expected
    assert four.card.get("distribution") == "slices=4 rounds=1 squares=mean steps=root"


def test_a_recipe_without_steps_is_refused_before_the_collection_is_read(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="train it without --ray"):
        trained(tmp_path / "nowhere", tmp_path, "bm25", [], in_slices(tmp_path, 4))
