"""Learners on slices: one slice equals one machine, resumed equals whole, and the order of tasks changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.errors import FullrankError, RecipeError, TrainingError
from fullrank.progress import Reporter
from fullrank_fleet.jobs.tasks import InProcess, Runner
from fullrank_fleet.remote import Folder
from fullrank_fleet.training.learner import Slices
from fullrank_fleet.training.rounds import slice_name
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.recipes.recipe import Recipe, load_recipe
from fullrank_trainer.systems.linear.parameters import Parameters
from fullrank_trainer.systems.linear.system import learner_of
from fullrank_trainer.training.loop import TrainingRun
from fullrank_trainer.training.validation import Validation
from tests.unit.fleet.runners import Dying

pytestmark = pytest.mark.usefixtures("one_thread", "few_made_up_words")

SMALL = ["dimension=6", "epochs=3", "patience=3", "valid_queries=0"]
SOFTMAX = ["batch=32", "candidates=30", "rate=0.1"]
RECIPES = {
    "fielded": load_recipe("fielded").override([*SMALL, *SOFTMAX]),
    "clicked": load_recipe("clicked").override([*SMALL, *SOFTMAX, "members=1"]),
    "tied": load_recipe("ssi-tied").override([*SMALL, "loss=softmax", "candidates=30"]),
    "layers": load_recipe("fielded").override([*SMALL, *SOFTMAX, "layers=8,6", "skip=true"]),
    "margin": load_recipe("ssi-diagonal").override([*SMALL, "rates=0.01,0.1", "trial=200"]),
    "margin-triples": load_recipe("ssi").override([*SMALL, "rates=0.1", "triples=300"]),
}


class Backwards:
    def run(
        self, task: Callable[..., Any], calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Any]]:
        for number, arguments in reversed(list(enumerate(calls))):
            yield number, task(*arguments)


def dying(at: int) -> Dying:
    return Dying(at, error=FullrankError("killed"))


class Counting(InProcess):
    """Counts tasks whose slice is committed before they run."""

    committed = 0

    def run(
        self, task: Callable[..., Any], calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Any]]:
        for number, (plan, slice_) in enumerate(calls):
            self.committed += slice_name(slice_) in Folder(plan.folder).files()
            yield number, task(plan, slice_)


def fit(
    features: Features,
    recipe: Recipe,
    valid: Validation | None,
    path: Path,
    slices: Slices | None,
    *,
    resume: bool = False,
) -> tuple[Parameters, list[dict[str, Any]]]:
    """Return the parameters of the best epoch, and the history without its seconds."""
    given = TrainingRun(
        recipe, valid, 1, "data", Reporter(quiet=True), path, resume, distribution=slices
    )
    learner = learner_of(features, recipe, np.random.default_rng(given.seed))
    facts = given.learn(learner)
    return learner.values, [{**line, "seconds": 0} for line in facts["history"]]


def assert_same(a: tuple[Parameters, Any], b: tuple[Parameters, Any]) -> None:
    for (name, array), (_, other) in zip(a[0].arrays(), b[0].arrays(), strict=True):
        np.testing.assert_array_equal(array.view(np.uint32), other.view(np.uint32), err_msg=name)
    assert a[1] == b[1]


@pytest.mark.parametrize("name", RECIPES)
def test_one_slice_has_the_bits_of_one_machine(
    name: str, features: Callable[[Recipe], Features], valid: Validation, tmp_path: Path
) -> None:
    recipe = RECIPES[name]
    expected = fit(features(recipe), recipe, valid, tmp_path / "a.npz", None)
    slices = Slices(Folder(str(tmp_path / "job")), InProcess(), 1)
    assert_same(expected, fit(features(recipe), recipe, valid, tmp_path / "b.npz", slices))


@pytest.mark.parametrize("name", ["fielded", "margin"])
def test_the_order_of_tasks_and_the_kind_of_folder_change_nothing(
    name: str, features: Callable[[Recipe], Features], valid: Validation, tmp_path: Path
) -> None:
    recipe, data = RECIPES[name], features(RECIPES[name])
    ways: list[tuple[str, Runner]] = [
        (str(tmp_path / "a"), InProcess()),
        (str(tmp_path / "b"), Backwards()),
        (f"memory://slices-{name}", Backwards()),
    ]
    found = [
        fit(data, recipe, valid, tmp_path / "a.npz", Slices(Folder(address), runner, 4, rounds=2))
        for address, runner in ways
    ]
    assert_same(found[0], found[1])
    assert_same(found[0], found[2])
    alone = fit(data, recipe, valid, tmp_path / "a.npz", None)
    assert (alone[0].V != found[0][0].V).any()


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_training_that_is_killed_goes_on_with_the_same_bits(
    rounds: int, features: Callable[[Recipe], Features], valid: Validation, tmp_path: Path
) -> None:
    """It is killed inside a round again and again; slices that were committed are not trained again."""
    recipe = RECIPES["clicked"]
    data, path, job = features(recipe), tmp_path / "b.npz", Folder(str(tmp_path / "job"))
    whole = fit(
        data,
        recipe,
        valid,
        tmp_path / "a.npz",
        Slices(job / "whole", InProcess(), 4, rounds=rounds),
    )
    for at in (1, 3):
        with pytest.raises(FullrankError, match="killed"):
            fit(data, recipe, valid, path, Slices(job, dying(at), 4, rounds=rounds), resume=True)
    counting = Counting()
    resumed = fit(data, recipe, valid, path, Slices(job, counting, 4, rounds=rounds), resume=True)
    assert_same(whole, resumed)
    assert (
        counting.committed == 3
    )  # Those of the second attempt: the first one committed one of them.


def test_another_number_of_slices_does_not_go_on(
    features: Callable[[Recipe], Features], valid: Validation, tmp_path: Path
) -> None:
    recipe, job = RECIPES["fielded"], Folder(str(tmp_path / "job"))
    path = tmp_path / "a.npz"
    fit(features(recipe), recipe, valid, path, Slices(job, InProcess(), 2))
    with pytest.raises(TrainingError, match="another recipe, seed or collection"):
        fit(features(recipe), recipe, valid, path, Slices(job, InProcess(), 3), resume=True)


def test_slices_without_a_query_are_left_out(
    features: Callable[[Recipe], Features], valid: Validation, tmp_path: Path
) -> None:
    """The collection has 120 training queries: most of 400 slices are empty, and others lack a second query."""
    recipe = replace(RECIPES["margin"], train=replace(RECIPES["margin"].train, epochs=1))
    slices = Slices(Folder(str(tmp_path / "job")), InProcess(), 400, rounds=2)
    found, _ = fit(features(recipe), recipe, valid, tmp_path / "a.npz", slices)
    assert all(np.isfinite(array).all() for _, array in found.arrays())
    assert 50 < len(list(tmp_path.glob("job/inputs/*/slice-*.pickle"))) <= 400


@pytest.mark.parametrize(
    "name", ["bm25", "lsi", "plsa", "s2net", "ssi-sparse", "cross-language-mixed"]
)
def test_recipes_without_steps_for_slices_are_refused(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    if name == "cross-language-mixed":
        recipe = recipe.override(["mixed.recipes=bm25,lsi"])
    slices = Slices(Folder(str(tmp_path)), InProcess(), 4)
    with pytest.raises(
        RecipeError, match=f"recipe {name}: slices take the steps of linear recipes"
    ):
        slices.validate(recipe)


@pytest.mark.parametrize(
    "name", ["fielded", "clicked", "ssi", "ssi-tied", "dssm-modern", "auto", "best"]
)
def test_linear_recipes_and_blends_are_allowed(name: str, tmp_path: Path) -> None:
    Slices(Folder(str(tmp_path)), InProcess(), 4).validate(load_recipe(name))
