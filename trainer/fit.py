"""The loop that both losses share: epochs, validation, early stopping, checkpoints, interruption."""

from __future__ import annotations

import hashlib
import json
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fullrank.errors import TrainingError
from trainer import checkpoint as checkpoints
from trainer import margin, softmax
from trainer.checkpoint import Checkpoint
from trainer.data import Features
from trainer.parameters import Parameters, start
from trainer.progress import Reporter
from trainer.recipe import Recipe
from trainer.validation import Validation, scan_documents, scan_queries

_CHECKPOINT_EVERY_S = 15.0
_DEPTH = 100  # places that the MAP of early stopping looks at


class Interrupted(TrainingError):
    """Ctrl-C: training stopped between two steps; the message says what can be resumed."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """The best parameters found, and how."""

    parameters: Parameters
    epoch: int
    valid_map: float | None
    history: list[dict[str, Any]]


def identity_of(recipe: Recipe, seed: int, fingerprint: str) -> str:
    """What a checkpoint must agree on to be resumed."""
    facts = {"model": asdict(recipe.model), "train": asdict(recipe.train)}
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


class _Run:
    """One fit under way."""

    def __init__(self, features: Features, recipe: Recipe, seed: int) -> None:
        self.features, self.recipe = features, recipe
        self.rng = np.random.default_rng(seed)
        self.parameters = start(features, recipe.train, self.rng)
        self.best = self.parameters
        self.best_map: float | None = None
        self.best_epoch = 0
        self.epoch = 0
        self.history: list[dict[str, Any]] = []
        self.finished = False
        if recipe.train.loss == "softmax":
            self.softmax = softmax.start_state(features, recipe.train, self.parameters)

    def choose_rate(self) -> None:
        if self.recipe.train.loss == "margin":
            self.margin = margin.start_state(
                self.features, self.recipe.train, self.parameters, self.rng
            )

    def steps(self, epochs: int) -> Iterator[tuple[int, float]]:
        train = self.recipe.train
        if train.loss == "margin":
            return margin.epoch(self.features, train, self.margin, self.rng)
        done = self.epoch / epochs
        return softmax.epoch(self.features, train, self.softmax, self.rng, done, 1 / epochs)

    def keep_if_best(self, valid_map: float | None) -> None:
        if valid_map is None or self.best_map is None or valid_map > self.best_map:
            self.best, self.best_map = self.parameters.copy(), valid_map
            self.best_epoch = self.epoch

    # -- checkpoint ---------------------------------------------------------------------------

    def _arrays(self) -> dict[str, np.ndarray]:
        found = {f"now.{k}": v for k, v in vars(self.parameters).items()}
        found |= {f"best.{k}": v for k, v in vars(self.best).items()}
        if self.recipe.train.loss == "softmax":
            state = {k: v for k, v in vars(self.softmax).items() if k != "parameters"}
            found |= {f"state.{k}": v for k, v in state.items()}
        return found

    def freeze(self, identity: str) -> Checkpoint:
        facts = {
            "identity": identity,
            "epoch": self.epoch,
            "best_epoch": self.best_epoch,
            "best_map": self.best_map,
            "history": self.history,
            "finished": self.finished,
            "generator": self.rng.bit_generator.state,
            "rate": self.margin.rate if self.recipe.train.loss == "margin" else None,
        }
        return Checkpoint(facts, self._arrays())

    def thaw(self, stored: Checkpoint) -> None:
        self.parameters = self._parameters(stored, "now")
        self.best = self._parameters(stored, "best")
        facts = stored.facts
        self.epoch, self.best_epoch = facts["epoch"], facts["best_epoch"]
        self.best_map, self.history = facts["best_map"], facts["history"]
        self.finished = facts["finished"]
        self.rng.bit_generator.state = facts["generator"]
        if self.recipe.train.loss == "margin":
            self.margin = margin.State(self.parameters, facts["rate"])
        else:
            names = [n for n in vars(self.softmax) if n != "parameters"]
            arrays = {name: stored.arrays[f"state.{name}"] for name in names}
            if self.features.settings.tied:
                arrays["squares_U"] = arrays["squares_V"]
            self.softmax = softmax.State(parameters=self.parameters, **arrays)

    def _parameters(self, stored: Checkpoint, prefix: str) -> Parameters:
        arrays = {name: stored.arrays[f"{prefix}.{name}"] for name in ("U", "V", "D", "bias")}
        if self.features.settings.tied:
            arrays["V"] = arrays["U"]
        return Parameters(**arrays)


def fit(
    features: Features,
    recipe: Recipe,
    valid: Validation | None,
    *,
    seed: int,
    fingerprint: str,
    reporter: Reporter,
    path: Path,
    resume: bool,
    label: str = "",
) -> Fitted:
    """Fit a recipe; the parameters of the epoch with the best validation MAP come back.

    path     of the checkpoint, removed by the caller once a bundle is written
    resume   go on from it where it exists
    Raises TrainingError when there is nothing to train on, and Interrupted on Ctrl-C.
    """
    if not len(features.pairs):
        raise TrainingError("the training split has no judged pair; nothing can be learned")
    identity = identity_of(recipe, seed, fingerprint)
    run = _Run(features, recipe, seed)
    stored = checkpoints.load(path, identity=identity) if resume else None
    if stored is not None:
        run.thaw(stored)
        reporter.say("resumed", after_epoch=run.epoch, finished=run.finished)
    else:
        run.choose_rate()
    with _interruptible() as pressed:
        _epochs(run, valid, identity, reporter, path, pressed, label)
    return Fitted(run.best, run.best_epoch, run.best_map, run.history)


def _epochs(
    run: _Run,
    valid: Validation | None,
    identity: str,
    reporter: Reporter,
    path: Path,
    pressed: threading.Event,
    label: str,
) -> None:
    train = run.recipe.train
    per_epoch = (
        len(run.features.pairs.queries)
        if train.loss == "softmax"
        else train.triples or len(run.features.pairs)
    )
    began = saved = time.monotonic()
    saved_epoch, planned = run.epoch, train.epochs
    with reporter.stage(f"{label}training", train.epochs * per_epoch) as stage:
        stage.advance(run.epoch * per_epoch)
        while not run.finished and run.epoch < train.epochs:
            total, seen = 0.0, 0
            epoch_began = time.monotonic()
            for count, loss in run.steps(planned):
                total, seen = total + count * loss, seen + count
                stage.advance(count, loss=total / seen, map=run.best_map or 0.0)
                if pressed.is_set():
                    _stopped(path, saved_epoch, run.epoch)
            run.epoch += 1
            valid_map = _validate(run, valid)
            run.keep_if_best(valid_map)
            line: dict[str, Any] = {
                "epoch": run.epoch,
                "loss": total / max(seen, 1),
                "valid_map": valid_map,
                "seconds": time.monotonic() - epoch_began,
            }
            run.history.append(line)
            reporter.say(f"{label}epoch", **line)
            left = train.seconds - (time.monotonic() - began) if train.seconds else math.inf
            late = line["seconds"] > left
            # The rate follows the clock only where time runs out before the epochs do.
            if left < line["seconds"] * (train.epochs - run.epoch):
                planned = run.epoch + max(1, int(left / line["seconds"]))
            stale = valid is not None and run.epoch - run.best_epoch >= train.patience
            run.finished = late or stale or run.epoch == train.epochs
            if run.finished or time.monotonic() - saved >= _CHECKPOINT_EVERY_S:
                checkpoints.save(path, run.freeze(identity))
                saved, saved_epoch = time.monotonic(), run.epoch
            if pressed.is_set():
                if saved_epoch < run.epoch:
                    checkpoints.save(path, run.freeze(identity))
                _stopped(path, run.epoch, run.epoch)


def _validate(run: _Run, valid: Validation | None) -> float | None:
    finite = all(np.isfinite(array).all() for array in vars(run.parameters).values())
    if not finite:
        raise TrainingError(
            "training diverged: the parameters are no longer finite; lower the rate"
        )
    if valid is None:
        return None
    documents = scan_documents(run.features, run.parameters)
    queries = scan_queries(run.features, run.parameters, valid.rows)
    return float(valid.measure(documents, queries, depth=_DEPTH)["map"].mean)


def _stopped(path: Path, saved_epoch: int, epoch: int) -> None:
    if saved_epoch == 0:
        raise Interrupted(f"interrupted in epoch {epoch + 1}; nothing to resume yet")
    raise Interrupted(
        f"interrupted in epoch {epoch + 1}; --resume goes on after epoch {saved_epoch} ({path})"
    )
