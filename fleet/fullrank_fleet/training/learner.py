"""A learner that takes its steps on slices of the training queries, wherever a runner runs them.

An epoch is one round or more. In a round every slice starts at the same parameters and takes today's steps on its own
queries; then all become one (``averaging``). What a slice changed, and the learner at the start of a round, are objects
of the job's folder, named by a hash of everything that they depend on. So a training that was killed finds what was
finished, and the result depends on the number of slices and the seed, never on machines or the order of tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np

from fullrank.errors import RecipeError
from fullrank_fleet.jobs.tasks import Runner
from fullrank_fleet.remote import Folder
from fullrank_fleet.remote.folder import read_as_file, write_as_file
from fullrank_fleet.training.averaging import Squares, Steps, average
from fullrank_fleet.training.inputs import cut_queries, write_inputs
from fullrank_fleet.training.rounds import (
    START,
    Round,
    arrays_of,
    facts_of,
    slice_name,
    train_slice,
)
from fullrank_trainer.features.corpus import Counting
from fullrank_trainer.recipes.recipe import Recipe, learns, system_of
from fullrank_trainer.systems.linear.parameters import LinearLearner, level_biases
from fullrank_trainer.systems.linear.system import LEARNERS
from fullrank_trainer.systems.mixed import load_part
from fullrank_trainer.training import checkpoint as checkpoints
from fullrank_trainer.training.checkpoint import Checkpoint
from fullrank_trainer.training.fitted import Arrays
from fullrank_trainer.training.loop import Learner
from fullrank_trainer.training.validation import Validation

Losses = list[tuple[int, float]]


class Slices:
    """Distributes the steps of linear learners over slices (``fullrank_trainer.training.loop.Distribution``).

    Args:
        folder: Of the job; every node must be able to read and write it.
        count: Number of slices, 1 to 4,096.
        rounds: An epoch.
        squares: How AdaGrad's sums of squares are combined (``averaging``).
        steps: How far parameters move.
        counting: Counts the texts; by default the driver does.

    Attributes:
        identity: Empty for one slice and one round, which give the bits of one machine.

    Example:
        >>> train("shop", "bundles", "shop", recipe="fielded", distribution=Slices(folder, OnRay(ray), 16))
    """

    def __init__(
        self,
        folder: Folder,
        runner: Runner,
        count: int,
        *,
        rounds: int = 1,
        squares: Squares = "mean",
        steps: Steps = "root",
        counting: Counting | None = None,
    ) -> None:
        self.folder, self.runner, self.counting = folder, runner, counting
        self.count, self.rounds, self.squares, self.steps = count, rounds, squares, steps
        self.identity = ""
        if count > 1 or rounds > 1:
            self.identity = f"slices={count} rounds={rounds} squares={squares} steps={steps}"

    def validate(self, recipe: Recipe) -> None:
        parts = [recipe]
        listed = system_of(recipe).parts
        if listed is not None:
            texts = [text for linked in (False, True) for text in listed(recipe, linked)[1]]
            parts = [load_part(text, recipe) for text in texts]
        if not any(map(_takes_steps, parts)):
            raise RecipeError(
                f"recipe {recipe.name}: slices take the steps of linear recipes with a train.loss and without "
                "train.monolingual, such as fielded, clicked and ssi, alone or in a blend; train it without --ray"
            )

    def distribute(self, learner: Learner) -> Learner:
        if isinstance(learner, LinearLearner) and type(learner) in LEARNERS.values():
            return SlicedLearner(learner, self)
        return learner


class SlicedLearner:
    """A learner whose epochs are rounds of slices; all else is that of the learner itself."""

    def __init__(self, learner: LinearLearner, slices: Slices) -> None:
        self._learner, self._slices = learner, slices
        self.rng, self.per_epoch = learner.rng, learner.per_epoch

    def prepare(self) -> None:
        self._learner.prepare()

    def measure(self, valid: Validation) -> float:
        return self._learner.measure(valid)

    def parameters(self) -> Arrays:
        return self._learner.parameters()

    def state(self) -> Arrays:
        return self._learner.state()

    def restore(self, parameters: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        self._learner.restore(parameters, state)

    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """Take one epoch: yield what the steps of the slices yield, in the order of the slices."""
        parts = self._slices.rounds
        first = self._first_round(done, share)
        epoch = self._slices.folder / "epochs"
        _remove_others(epoch, first.folder)
        at, losses = self._committed(first)
        yield from losses
        for part in range(at, parts):
            folder = f"{first.folder}/{part:05}"
            plan = replace(
                first,
                folder=folder,
                part=part,
                done=done + share * part / parts,
                share=share / parts,
            )
            self._commit_start(plan, losses)
            _remove_others(Folder(first.folder), folder)
            for step in self._run(plan):
                losses.append(step)
                yield step

    @cached_property
    def _cut(self) -> list[Any]:
        features = self._learner.features
        return cut_queries(features.pairs.queries, features.query_ids, self._slices.count)

    @cached_property
    def _inputs(self) -> str:
        root = self._slices.folder / "inputs"
        return str(write_inputs(self._learner.features, self._cut, root))

    def _first_round(self, done: float, share: float) -> Round:
        """Return the first round of an epoch, with the folder of the epoch: its name depends on all that counts."""
        slices, learner = self._slices, self._learner
        generator, seed = self.rng.bit_generator.state, ()
        if slices.identity:
            seed, generator = tuple(self.rng.integers(2**32, size=4).tolist()), {}
        facts = [self._inputs, slices.identity, asdict(learner.train), done, share, seed, generator]
        digest = blake2b(json.dumps(facts).encode(), digest_size=16)
        for name, array in arrays_of(learner).items():
            digest.update(name.encode())
            digest.update(array.reshape(-1).view(np.uint8).data)
        folder = str(slices.folder / "epochs" / digest.hexdigest())
        pairs = len(learner.features.pairs)
        return Round(
            folder,
            self._inputs,
            learner.train,
            pairs,
            0,
            slices.rounds,
            done,
            share,
            seed,
            generator,
        )

    def _committed(self, first: Round) -> tuple[int, Losses]:
        """Restore the learner at the start of the last round that began; return which, and the losses before."""
        for name in reversed(Folder(first.folder).folders()):
            folder = f"{first.folder}/{name}"
            with read_as_file(Folder(folder), START) as path:
                if path is not None:
                    stored = checkpoints.load(path, identity=folder)
                    arrays = checkpoints.stored_arrays(path)
                    self.restore(arrays.group("now."), arrays.group("state."))
                    return int(name), facts_of(stored)["losses"]
        return 0, []

    def _commit_start(self, plan: Round, losses: Losses) -> None:
        folder = Folder(plan.folder)
        with read_as_file(folder, START) as path:
            if path is not None:
                return
        facts = {"identity": plan.folder, "losses": losses}
        with write_as_file(folder, START) as path:
            checkpoints.save(path, Checkpoint(facts, arrays_of(self._learner)))

    def _run(self, plan: Round) -> Iterator[tuple[int, float]]:
        """Run one round; the learner then has the average."""
        numbers = [i for i, queries in enumerate(self._cut) if len(queries) > plan.part]
        found: dict[int, dict[str, Any]] = {}
        shown = 0
        for place, facts in self._slices.runner.run(train_slice, [(plan, i) for i in numbers]):
            found[place] = facts
            while shown in found:
                yield from found[shown]["losses"]
                shown += 1
        with ExitStack() as stack:
            paths = [
                stack.enter_context(read_as_file(Folder(plan.folder), slice_name(i)))
                for i in numbers
            ]
            changed = [checkpoints.stored_arrays(path) for path in paths if path is not None]
            average(arrays_of(self._learner), changed, self._slices.squares, self._slices.steps)
        learner = self._learner
        if learner.train.sampled_from == "judged" and learner.features.settings.bias:
            # The mean of the slices' medians is not the median of their mean.
            level_biases(learner.features, learner.values)
        if plan.generator:
            self.rng.bit_generator.state = found[0]["generator"]


def _takes_steps(recipe: Recipe) -> bool:
    return learns(recipe) and not recipe.train.monolingual


def _remove_others(folder: Folder, kept: str) -> None:
    for name in folder.folders():
        if f"{folder}/{name}" != kept:
            (folder / name).remove()
