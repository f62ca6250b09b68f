"""The training loop: early stopping, resuming after an interruption, and errors."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.errors import TrainingError
from fullrank.progress import Reporter
from fullrank_trainer.collection.pairs import Pairs
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.recipes.recipe import Recipe, load_recipe
from fullrank_trainer.systems.linear import parameters as learner_module
from fullrank_trainer.systems.linear import softmax
from fullrank_trainer.systems.linear.parameters import Parameters, start
from fullrank_trainer.systems.linear.system import learner_of
from fullrank_trainer.training import loop as module
from fullrank_trainer.training.checkpoint import load
from fullrank_trainer.training.loop import Interrupted, TrainingRun, identity_of
from fullrank_trainer.training.validation import Validation

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = ["dimension=6", "epochs=5", "patience=5", "valid_queries=0"]
RECIPES = {
    "softmax": load_recipe("fielded").override([*SMALL, "batch=32", "candidates=30", "rate=0.1"]),
    "softmax-tied": load_recipe("ssi-tied").override([*SMALL, "loss=softmax", "candidates=30"]),
    "margin": load_recipe("ssi-diagonal").override([*SMALL, "rates=0.01,0.1", "trial=200"]),
    "margin-tied": load_recipe("ssi-tied").override([*SMALL, "rates=0.01,0.1", "trial=200"]),
}


class Watching(Reporter):
    """A reporter that stores its events and calls back on every epoch."""

    def __init__(self, on_epoch: Callable[[int], None] | None = None) -> None:
        super().__init__(io.StringIO())
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._on_epoch = on_epoch

    def log(self, event: str, **figures: Any) -> None:
        self.events.append((event, figures))
        if event == "epoch" and self._on_epoch is not None:
            self._on_epoch(figures["epoch"])


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of a fit."""

    parameters: Parameters
    epoch: int
    valid_map: float | None
    history: list[dict[str, Any]]


Fit = Callable[..., Outcome]


@pytest.fixture
def fit(features: Callable[[Recipe], Features], valid: Validation, tmp_path: Path) -> Fit:
    """Return a function that fits a recipe with the usual arguments."""
    usual: dict[str, Any] = {
        "seed": 1, "fingerprint": "data", "reporter": Reporter(quiet=True), "resume": False,
        "valid": valid,
    }  # fmt: skip

    def fitted(
        recipe: Recipe, name: str = "0.npz", given: Features | None = None, **changes: Any
    ) -> Outcome:
        run = TrainingRun(recipe, path=tmp_path / name, **{**usual, **changes})
        learner = learner_of(given or features(recipe), recipe, np.random.default_rng(run.seed))
        facts = run.learn(learner)
        best, history = facts["best_epoch"], facts["history"]
        return Outcome(learner.values, best, history[best - 1]["valid_map"], history)

    return fitted


def assert_same(a: Outcome, b: Outcome) -> None:
    """Compare all bits; the history without its seconds."""
    for (name, array), (_, other) in zip(a.parameters.arrays(), b.parameters.arrays(), strict=True):
        np.testing.assert_array_equal(array, other, err_msg=name)
    assert (a.epoch, a.valid_map) == (b.epoch, b.valid_map)
    assert [{**line, "seconds": 0} for line in a.history] == [
        {**line, "seconds": 0} for line in b.history
    ]


def interrupt(at: int) -> Callable[[int], None]:
    """Send Ctrl-C as a real signal at the end of an epoch."""

    def press(epoch: int) -> None:
        if epoch == at:
            signal.raise_signal(signal.SIGINT)

    return press


@pytest.mark.parametrize("name", RECIPES)
def test_a_resumed_run_equals_an_uninterrupted_one(name: str, fit: Fit, tmp_path: Path) -> None:
    """A run that is interrupted and resumed twice has the same bits as one without interruptions."""
    recipe = RECIPES[name]
    path = tmp_path / "0.npz"
    whole = fit(recipe, "whole.npz")
    assert len(whole.history) == 5
    handler = signal.getsignal(signal.SIGINT)
    for at in (2, 3):
        with pytest.raises(
            Interrupted,
            match=rf"in epoch {at + 1}; --resume continues after epoch {at} \(.*0\.npz\)",
        ):
            fit(recipe, resume=at > 2, reporter=Watching(interrupt(at)))
        stored = load(path, identity=identity_of(recipe, 1, "data"))
        assert stored is not None
        assert stored.facts["epoch"] == at
    assert signal.getsignal(signal.SIGINT) is handler
    reporter = Watching()
    resumed = fit(recipe, resume=True, reporter=reporter)
    assert reporter.events[0] == ("resumed", {"after_epoch": 3, "finished": False})
    assert_same(whole, resumed)
    if recipe.model.tied:
        assert resumed.parameters.U is resumed.parameters.V


def test_resuming_a_finished_run_returns_its_result(fit: Fit) -> None:
    recipe = RECIPES["margin"]
    whole = fit(recipe)
    assert_same(whole, fit(recipe, resume=True))


def test_a_fit_that_may_differ_starts_anew_where_the_checkpoint_is_of_another_recipe(
    fit: Fit, tmp_path: Path
) -> None:
    recipe = RECIPES["margin"]
    fit(recipe)
    other = replace(recipe, train=replace(recipe.train, epochs=recipe.train.epochs + 1))
    with pytest.raises(TrainingError, match="another recipe"):
        fit(other, resume=True)
    whole = fit(other, "whole.npz")
    assert_same(whole, fit(other, resume=True, may_differ=True))


def test_ctrl_c_within_an_epoch_resumes_from_the_last_checkpoint(
    fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = RECIPES["softmax"]
    whole = fit(recipe, "whole.npz")
    monkeypatch.setattr(module, "_CHECKPOINT_EVERY_S", 0.0)
    steps = softmax.epoch
    begun = []

    def pressed_in_the_third(*args: Any) -> Iterator[tuple[int, float]]:
        begun.append(1)
        for i, step in enumerate(steps(*args)):
            if len(begun) == 3 and i == 1:
                signal.raise_signal(signal.SIGINT)
            yield step

    with monkeypatch.context() as patch:
        patch.setattr("fullrank_trainer.systems.linear.softmax.epoch", pressed_in_the_third)
        with pytest.raises(Interrupted, match="in epoch 3; --resume continues after epoch 2"):
            fit(recipe)
    assert_same(whole, fit(recipe, resume=True))


def test_ctrl_c_before_the_first_checkpoint_says_that_there_is_none(
    fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = RECIPES["softmax"]

    def pressed(*_: Any) -> Iterator[tuple[int, float]]:
        signal.raise_signal(signal.SIGINT)
        yield 1, 1.0

    monkeypatch.setattr("fullrank_trainer.systems.linear.softmax.epoch", pressed)
    with pytest.raises(Interrupted, match="in epoch 1; there is no checkpoint to resume from yet"):
        fit(recipe)
    assert not (tmp_path / "0.npz").exists()


def test_the_best_epoch_wins_and_patience_stops_training(
    fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = RECIPES["margin"].override(["epochs=9", "patience=3"])
    maps = iter([0.2, 0.5, 0.5, 0.4, 0.1, 0.9])
    seen = []

    def measured(fitting: Any, _: Any) -> float:
        seen.append(fitting.values.copy())
        return next(maps)

    monkeypatch.setattr(module, "_measure", measured)
    fitted = fit(recipe)
    assert (fitted.epoch, fitted.valid_map, len(fitted.history)) == (2, 0.5, 5)
    np.testing.assert_array_equal(fitted.parameters.V, seen[1].V)
    assert (seen[1].V != seen[4].V).any()


def test_without_validation_the_last_epoch_wins(fit: Fit) -> None:
    recipe = RECIPES["margin"].override(["patience=1"])
    fitted = fit(recipe, valid=None)
    assert (fitted.epoch, fitted.valid_map, len(fitted.history)) == (5, None, 5)


def test_validation_map_is_that_of_the_final_parameters(fit: Fit) -> None:
    """The loss falls and MAP rises close to the best possible one."""
    recipe = RECIPES["softmax"].override(["epochs=8"])
    fitted = fit(recipe)
    maps = [line["valid_map"] for line in fitted.history]
    assert fitted.valid_map == max(maps) > 0.9
    assert maps.index(max(maps)) + 1 == fitted.epoch
    assert fitted.history[-1]["loss"] < fitted.history[0]["loss"]


def test_a_time_limit_stops_between_epochs(fit: Fit) -> None:
    recipe = RECIPES["softmax"].override(["epochs=1000", "train.seconds=0.000001"])
    assert len(fit(recipe).history) == 1


def test_a_generous_time_limit_does_not_change_the_bits(fit: Fit) -> None:
    recipe = RECIPES["softmax"]
    whole = fit(recipe)
    timed = recipe.override(["train.seconds=10000"])
    assert_same(whole, fit(timed, "1.npz"))


@pytest.mark.parametrize(
    ("change", "seed", "data"),
    [
        ("rate=0.2", 1, "data"),
        ("dimension=7", 1, "data"),
        ("epochs=5", 2, "data"),
        ("epochs=5", 1, "other"),
    ],
)
def test_resuming_another_runs_checkpoint_is_refused(
    change: str, seed: int, data: str, fit: Fit
) -> None:
    recipe = RECIPES["softmax"]
    fit(recipe.override(["epochs=1"]).override(["epochs=5"]))
    other = recipe.override([change])
    with pytest.raises(TrainingError, match="another recipe, seed or collection"):
        fit(other, resume=True, seed=seed, fingerprint=data)
    # The time limit is not part of a run's identity.
    longer = recipe.override(["train.seconds=99"])
    fit(longer, resume=True)


def test_a_damaged_checkpoint_is_refused(fit: Fit, tmp_path: Path) -> None:
    recipe, path = RECIPES["margin"], tmp_path / "0.npz"
    fit(recipe)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TrainingError, match="cannot be read"):
        fit(recipe, resume=True)
    fit(recipe)  # without --resume it is overwritten


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_divergence_is_refused(fit: Fit, tmp_path: Path) -> None:
    recipe = RECIPES["margin"].override(["rates=1000", "init=100"])
    with pytest.raises(TrainingError, match=r"diverged.*lower train\.rate"):
        fit(recipe)
    assert not (tmp_path / "0.npz").exists()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["U", "V", "D", "bias"])
def test_a_single_infinite_value_is_divergence(
    name: str, fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, begin = RECIPES["softmax"], start

    def broken(*args: Any) -> Any:
        parameters = begin(*args)
        getattr(parameters, name).flat[-1] = np.inf
        return parameters

    monkeypatch.setattr(learner_module, "start", broken)
    with pytest.raises(TrainingError, match="diverged"):
        fit(recipe)


def test_no_judged_pair_is_refused(fit: Fit, features: Callable[[Recipe], Features]) -> None:
    recipe = RECIPES["softmax"]
    empty = replace(features(recipe), pairs=Pairs.from_lists({}))
    with pytest.raises(TrainingError, match=r"train\.tsv: no judged pair .* leave out --recipe"):
        fit(recipe, given=empty)


def test_progress_is_printed_as_json_lines(fit: Fit) -> None:
    recipe, stream = RECIPES["margin"], io.StringIO()
    fit(recipe, reporter=Reporter(stream, as_json=True))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["epoch"] for line in lines if line["event"] == "epoch"] == [1, 2, 3, 4, 5]
    assert all(line.keys() >= {"loss", "valid_map", "seconds"} for line in lines)
