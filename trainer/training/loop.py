"""The loop that every learner shares: epochs, validation, early stopping, checkpoints, interruption."""

from __future__ import annotations

import hashlib
import json
import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fullrank.errors import TrainingError
from trainer.progress import Reporter
from trainer.recipes.recipe import Recipe
from trainer.recipes.settings import TrainSettings
from trainer.training import checkpoint as checkpoints
from trainer.training.checkpoint import Checkpoint
from trainer.training.validation import Validation

_CHECKPOINT_EVERY_S = 15.0

Arrays = dict[str, npt.NDArray[Any]]


class Interrupted(TrainingError):
    """Ctrl-C: training stopped between two steps; the message says what can be resumed."""


class Learner(Protocol):
    """What is being fitted. The loop decides when to step, to measure, to keep and to stop.

    rng        of everything random after the start
    per_epoch  what one epoch counts (triples, queries, documents), for the progress bar
    """

    rng: np.random.Generator
    per_epoch: int

    def prepare(self) -> None:
        """What a new run does before its first epoch (choose a rate); a resumed run does not."""

    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """One epoch; yields (count, mean loss) after each step.

        done, share  how much of the whole training is behind, and how much this epoch is of it
        """

    def measure(self, valid: Validation) -> float:
        """How good the parameters are now, on validation; higher is better."""

    def parameters(self) -> Arrays:
        """The live arrays that make the model. An array that stands for two is there once."""

    def state(self) -> Arrays:
        """The live arrays beside them that the next epoch needs: sums of squares, a chosen rate."""

    def restore(self, parameters: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Go back to parameters and state that were copied; an empty state leaves it as it is."""


class InPlace:
    """Restores by copying into the live arrays, for learners whose arrays keep their shapes."""

    def restore(self: Learner, parameters: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """As Learner.restore."""
        for live, stored in ((self.parameters(), parameters), (self.state(), state)):
            for name, array in stored.items():
                live[name][...] = array


@dataclass(eq=False)
class Progress:
    """Where a training is: all of it, the generator, and both sets of arrays are in a checkpoint."""

    epoch: int = 0
    best_epoch: int = 0
    best_measure: float | None = None
    finished: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Run:
    """One fit within a training command.

    path    of the checkpoint, removed by the caller once a bundle is written
    resume  go on from it where it exists
    label   goes before what is said of this fit
    """

    recipe: Recipe
    valid: Validation | None
    seed: int
    fingerprint: str
    reporter: Reporter
    path: Path
    resume: bool
    label: str = ""

    def learn(self, learner: Learner) -> dict[str, Any]:
        """Train to the end and leave the best epoch's parameters in the learner.

        Returns ``best_epoch`` and ``history``, one line an epoch. Raises TrainingError where training
        diverges or the checkpoint is of another run, and Interrupted on Ctrl-C.
        """
        identity = identity_of(self.recipe, self.seed, self.fingerprint)
        stored = checkpoints.load(self.path, identity=identity) if self.resume else None
        progress, best = Progress(), _copied(learner.parameters())
        if stored is not None:
            progress, best = _thaw(learner, stored)
            self.reporter.say("resumed", after_epoch=progress.epoch, finished=progress.finished)
        else:
            learner.prepare()
        with _interruptible() as pressed:
            best = _epochs(self, learner, progress, best, identity, pressed)
        learner.restore(best, {})
        return {"best_epoch": progress.best_epoch, "history": progress.history}


def identity_of(recipe: Recipe, seed: int, fingerprint: str) -> str:
    """What a checkpoint must agree on to be resumed."""
    facts = asdict(recipe)
    for name in ("name", "about", "paper", "auto"):
        del facts[name]
    facts["train"].pop("seconds")
    text = json.dumps([facts, seed, fingerprint], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, instead of breaking into the middle of a step."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return
    before = signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _copied(arrays: Arrays) -> Arrays:
    return {name: array.copy() for name, array in arrays.items()}


def _freeze(learner: Learner, progress: Progress, best: Arrays, identity: str) -> Checkpoint:
    groups = {"now": learner.parameters(), "best": best, "state": learner.state()}
    arrays = {f"{g}.{name}": array for g, found in groups.items() for name, array in found.items()}
    facts = {"identity": identity, "generator": learner.rng.bit_generator.state, **vars(progress)}
    return Checkpoint(facts, arrays)


def _thaw(learner: Learner, stored: Checkpoint) -> tuple[Progress, Arrays]:
    groups: dict[str, Arrays] = {"now": {}, "best": {}, "state": {}}
    for name, array in stored.arrays.items():
        group, _, key = name.partition(".")
        groups[group][key] = array
    learner.restore(groups["now"], groups["state"])
    facts = dict(stored.facts)
    del facts["identity"]
    learner.rng.bit_generator.state = facts.pop("generator")
    return Progress(**facts), groups["best"]


def _epochs(
    run: Run,
    learner: Learner,
    progress: Progress,
    best: Arrays,
    identity: str,
    pressed: threading.Event,
) -> Arrays:
    train = run.recipe.train
    began = saved = time.monotonic()
    saved_epoch, planned = progress.epoch, train.epochs
    with run.reporter.stage(f"{run.label}training", train.epochs * learner.per_epoch) as stage:
        stage.advance(progress.epoch * learner.per_epoch)
        while not progress.finished and progress.epoch < train.epochs:
            total, seen = 0.0, 0
            epoch_began = time.monotonic()
            for count, loss in learner.steps(progress.epoch / planned, 1 / planned):
                total, seen = total + count * loss, seen + count
                stage.advance(count, loss=total / seen, map=progress.best_measure or 0.0)
                if pressed.is_set():
                    _stopped(run.path, saved_epoch, progress.epoch)
            progress.epoch += 1
            measured = _measure(learner, run.valid)
            if (
                measured is None
                or progress.best_measure is None
                or measured > progress.best_measure
            ):
                best = _copied(learner.parameters())
                progress.best_measure, progress.best_epoch = measured, progress.epoch
            line: dict[str, Any] = {
                "epoch": progress.epoch,
                "loss": total / max(seen, 1),
                "valid_map": measured,
                "seconds": time.monotonic() - epoch_began,
            }
            progress.history.append(line)
            run.reporter.say(f"{run.label}epoch", **line)
            left = _left(train, began)
            # The rate follows the clock only where time runs out before the epochs do.
            if left < line["seconds"] * (train.epochs - progress.epoch):
                planned = progress.epoch + max(1, int(left / line["seconds"]))
            stale = measured is not None and progress.epoch - progress.best_epoch >= train.patience
            progress.finished = line["seconds"] > left or stale or progress.epoch == train.epochs
            if progress.finished or time.monotonic() - saved >= _CHECKPOINT_EVERY_S:
                checkpoints.save(run.path, _freeze(learner, progress, best, identity))
                saved, saved_epoch = time.monotonic(), progress.epoch
            if pressed.is_set():
                if saved_epoch < progress.epoch:
                    checkpoints.save(run.path, _freeze(learner, progress, best, identity))
                _stopped(run.path, progress.epoch, progress.epoch)
    return best


def _left(train: TrainSettings, began: float) -> float:
    return train.seconds - (time.monotonic() - began) if train.seconds else math.inf


def _measure(learner: Learner, valid: Validation | None) -> float | None:
    if not all(np.isfinite(array).all() for array in learner.parameters().values()):
        raise TrainingError(
            "training diverged: the parameters are no longer finite; lower the rate"
        )
    return None if valid is None else learner.measure(valid)


def _stopped(path: Path, saved_epoch: int, epoch: int) -> None:
    if saved_epoch == 0:
        raise Interrupted(f"interrupted in epoch {epoch + 1}; nothing to resume yet")
    raise Interrupted(
        f"interrupted in epoch {epoch + 1}; --resume goes on after epoch {saved_epoch} ({path})"
    )
