"""The training loop: epochs, validation, early stopping, checkpoints, Ctrl-C."""

from __future__ import annotations

import hashlib
import json
import math
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fullrank.errors import INTERRUPTED, TrainingError
from fullrank.progress import Reporter
from fullrank.storage.checks import is_finite
from fullrank_trainer.compiled import clock
from fullrank_trainer.features.corpus import Counting
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.training import checkpoint as checkpoints
from fullrank_trainer.training.checkpoint import Checkpoint, StoredArrays
from fullrank_trainer.training.fitted import Arrays, Learned
from fullrank_trainer.training.validation import Validation
from fullrank_trainer.training.warm import WarmStart

_CHECKPOINT_EVERY_S = 15.0


class Interrupted(TrainingError):
    """Ctrl-C stopped training between two steps; the message says from where it can resume."""

    exit_code = INTERRUPTED


class Diverged(TrainingError):
    """Parameters are no longer finite."""


class Learner(Protocol):
    """A model in training. The loop decides when it steps, when it is measured, and when to stop."""

    rng: np.random.Generator
    per_epoch: int

    def prepare(self) -> None:
        """Prepare a new run before its first epoch, for example choose a rate. Resumed runs skip this."""

    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """Take the steps of one epoch; yield (items, mean loss) after each step.

        Before it the share ``done`` of the whole training is done; the epoch is the share ``share`` of it.
        """

    def measure(self, valid: Validation) -> float:
        """Return the quality of the current parameters on validation; higher is better."""

    def parameters(self) -> Arrays:
        """Return the arrays of the model, without copies; a shared array occurs once."""

    def state(self) -> Arrays:
        """Return the other live arrays that the next epoch needs: sums of squares, a chosen rate."""

    def restore(self, parameters: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Restore copied parameters and state; an empty state changes nothing."""


class Distribution(Protocol):
    """Takes the steps of learners elsewhere, for example on many machines.

    Attributes:
        identity: what the result depends on besides the run; empty if it is that of a run without distribution.
    """

    identity: str
    counting: Counting | None

    def validate(self, recipe: Recipe) -> None:
        """Raise RecipeError if no learner of a recipe can be distributed."""

    def distribute(self, learner: Learner) -> Learner:
        """Return a learner whose steps change the given one; that itself if its steps must stay here."""


class RestoresInPlace(Learner):
    """Implements ``restore`` by copying into the live arrays; their shapes must not change."""

    def prepare(self) -> None:
        pass

    def restore(self, parameters: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        for live, stored in ((self.parameters(), parameters), (self.state(), state)):
            for name in stored:
                if isinstance(stored, StoredArrays):
                    stored.read_into(name, live[name])
                else:
                    live[name][...] = stored[name]


@dataclass(eq=False)
class Progress:
    """The state of the loop; a checkpoint has it, the random generator and all arrays."""

    epoch: int = 0
    best_epoch: int = 0
    best_measure: float | None = None
    finished: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """One fit of a training command.

    Attributes:
        start: where an earlier fit ended, to go on from there; None to start anew.
        rates: learning rates to choose from on validation, if the learner's state fits every rate; fewer than two:
            the recipe's own.
        warm: a bundle whose parameters the fit starts at; None: random ones.
        ends: when all fits together are to end, by the monotonic clock; None: no limit.
        keeps_state: the fitted model has the state at the end, so that a later fit can go on from there.
        may_differ: the recipe depends on the time that is left, so a checkpoint of another recipe is no error: the fit
            starts anew.
    """

    recipe: Recipe
    valid: Validation | None
    seed: int
    fingerprint: str
    reporter: Reporter
    path: Path
    resume: bool
    label: str = ""
    start: Learned | None = None
    rates: tuple[float, ...] = ()
    keeps_state: bool = False
    ends: float | None = None
    warm: WarmStart | None = None
    distribution: Distribution | None = None
    may_differ: bool = False

    def learn(self, learner: Learner) -> dict[str, Any]:
        """Train to the end; the learner then has the parameters of the best epoch. Raises TrainingError, Interrupted.

        Returns:
            For the model card: ``best_epoch``, ``history``, and ``left_out``, the epochs that the time limit left out.
        """
        fingerprint = self.fingerprint + (self.warm.version if self.warm is not None else "")
        if self.distribution is not None:
            fingerprint += f" {self.distribution.identity}".rstrip()
            learner = self.distribution.distribute(learner)
        identity = identity_of(self.recipe, self.seed, fingerprint)
        stored = None
        if self.resume:
            stored = checkpoints.load(self.path, identity=identity, is_needed=not self.may_differ)
        progress = Progress()
        if stored is not None:
            assert isinstance(stored.arrays, StoredArrays)
            learner.restore(stored.arrays.group("now."), stored.arrays.group("state."))
            learner.rng.bit_generator.state = stored.facts["generator"]
            known = {item.name for item in fields(Progress)}
            progress = Progress(**{k: v for k, v in stored.facts.items() if k in known})
            self.reporter.log("resumed", after_epoch=progress.epoch, finished=progress.finished)
        else:
            learner.prepare()
            if self.start is not None:
                learner.restore(self.start.parameters, self.start.state)
        with _interruptible() as interrupted:
            _epochs(self, learner, progress, identity, interrupted)
        facts = {"best_epoch": progress.best_epoch, "history": progress.history}
        left_out = self.recipe.train.epochs - progress.epoch
        return facts | (
            {"left_out": left_out} if left_out and not _is_stale(self, progress) else {}
        )

    def left(self) -> dict[str, float]:
        """Return the figure of the time that all fits have left, seconds; empty without a limit."""
        if self.ends is None:
            return {}
        return {"left_s": round(max(0.0, self.ends - clock()), 1)}


def identity_of(recipe: Recipe, seed: int, fingerprint: str) -> str:
    """Return a hash of everything that a run and its checkpoint must have in common to resume."""
    facts = asdict(recipe)
    for name in ("name", "about", "paper", "auto"):
        del facts[name]
    # A member of an average is the same fit however many there are.
    for name in ("seconds", "members"):
        facts["train"].pop(name)
    text = json.dumps([facts, seed, fingerprint], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _save(run: TrainingRun, learner: Learner, progress: Progress, identity: str) -> None:
    """Save everything that a run needs to resume; a finished one needs no parameters but the best."""
    groups = {"now": learner.parameters(), "state": learner.state()}
    arrays = {f"{g}.{name}": array for g, found in groups.items() for name, array in found.items()}
    facts = {"identity": identity, "generator": learner.rng.bit_generator.state, **vars(progress)}
    best = _path_of_best(run, progress)
    if best.exists():
        checkpoints.sync(best)
    checkpoints.save(run.path, Checkpoint(facts, arrays))
    for path in run.path.parent.glob(f"{run.path.stem}.best-*.npz"):
        if path != best or progress.finished:
            path.unlink()


def _path_of_best(run: TrainingRun, progress: Progress) -> Path:
    return run.path.with_name(f"{run.path.stem}.best-{progress.best_epoch}.npz")


def _epochs(
    run: TrainingRun,
    learner: Learner,
    progress: Progress,
    identity: str,
    interrupted: threading.Event,
) -> None:
    """Run the remaining epochs; the learner then has the parameters of the best one."""
    train = run.recipe.train
    began = saved = clock()
    saved_epoch, planned = progress.epoch, train.epochs
    with run.reporter.stage(f"{run.label}training", train.epochs * learner.per_epoch) as stage:
        stage.advance(progress.epoch * learner.per_epoch)
        while not progress.finished and progress.epoch < train.epochs:
            total, seen = 0.0, 0
            epoch_began = clock()
            if progress.best_measure is not None and progress.best_epoch == progress.epoch:
                # Only a file is needed: the copy is read if no later epoch is better.
                checkpoints.save_copy(_path_of_best(run, progress), learner.parameters())
            for count, loss in learner.steps(progress.epoch / planned, 1 / planned):
                total, seen = total + count * loss, seen + count
                stage.advance(count, loss=total / seen, map=progress.best_measure or 0.0)
                if interrupted.is_set():
                    _raise_interrupted(run.path, saved_epoch, progress.epoch)
            progress.epoch += 1
            measured = _measure(learner, run.valid)
            best = progress.best_measure
            if measured is None or best is None or measured > best:
                progress.best_measure, progress.best_epoch = measured, progress.epoch
            line: dict[str, Any] = {
                "epoch": progress.epoch,
                "loss": total / max(seen, 1),
                "valid_map": measured,
                "seconds": clock() - epoch_began,
            }
            progress.history.append(line)
            run.reporter.log(f"{run.label}epoch", **line, **run.left())
            left = train.seconds - (clock() - began) if train.seconds else math.inf
            # Plan the rate by the clock only if time runs out before the epochs do.
            if left < line["seconds"] * (train.epochs - progress.epoch):
                planned = progress.epoch + max(1, int(left / line["seconds"]))
            is_over = line["seconds"] > left or progress.epoch == train.epochs
            progress.finished = is_over or _is_stale(run, progress)
            if progress.finished and progress.best_epoch != progress.epoch:
                learner.restore(checkpoints.stored_arrays(_path_of_best(run, progress)), {})
            if progress.finished or clock() - saved >= _CHECKPOINT_EVERY_S:
                _save(run, learner, progress, identity)
                saved, saved_epoch = clock(), progress.epoch
            if interrupted.is_set():
                if saved_epoch < progress.epoch:
                    _save(run, learner, progress, identity)
                _raise_interrupted(run.path, progress.epoch, progress.epoch)


def _is_stale(run: TrainingRun, progress: Progress) -> bool:
    is_measured = progress.best_measure is not None
    return is_measured and progress.epoch - progress.best_epoch >= run.recipe.train.patience


def _measure(learner: Learner, valid: Validation | None) -> float | None:
    """Measure the learner on validation. Raises Diverged if its parameters are not finite."""
    if not all(map(is_finite, learner.parameters().values())):
        raise Diverged(
            "training diverged: parameters are no longer finite; lower train.rate or train.rates"
        )
    return None if valid is None else learner.measure(valid)


def _raise_interrupted(path: Path, saved_epoch: int, epoch: int) -> None:
    if saved_epoch == 0:
        raise Interrupted(
            f"interrupted in epoch {epoch + 1}; there is no checkpoint to resume from yet"
        )
    raise Interrupted(
        f"interrupted in epoch {epoch + 1}; --resume continues after epoch {saved_epoch} ({path})"
    )
