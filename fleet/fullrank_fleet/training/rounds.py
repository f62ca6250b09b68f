"""Train one slice in one round: the task that machines of the cluster run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fullrank_fleet.remote import Folder
from fullrank_fleet.remote.folder import read_as_file, write_as_file
from fullrank_fleet.training.averaging import Array, changes
from fullrank_fleet.training.inputs import part_of, read_inputs
from fullrank_trainer.recipes.settings import TrainSettings
from fullrank_trainer.systems.linear.parameters import LinearLearner, Parameters
from fullrank_trainer.systems.linear.system import LEARNERS
from fullrank_trainer.training import checkpoint as checkpoints
from fullrank_trainer.training.checkpoint import Checkpoint, StoredArrays

START = "start.npz"


@dataclass(frozen=True, slots=True)
class Round:
    """One round of all slices: all queries of an epoch, or a part of them.

    Attributes:
        folder: Address of the folder of the round, which has the learner at its start.
        inputs: Address of what ``write_inputs`` wrote.
        pairs: Training pairs of all slices.
        part: Which part of the epoch, from 0.
        parts: How many rounds an epoch has.
        done: Share of the whole training before the round.
        share: Share of the whole training that the round is.
        seed: Of the epoch, if there is more than one slice or round.
        generator: Of random numbers at the start, if there is one slice and one round an epoch.
    """

    folder: str
    inputs: str
    train: TrainSettings
    pairs: int
    part: int
    parts: int
    done: float
    share: float
    seed: tuple[int, ...]
    generator: Mapping[str, Any]

    def generator_of(self, number: int) -> np.random.Generator:
        rng = np.random.default_rng([*self.seed, number, self.part])
        if self.generator:
            rng.bit_generator.state = self.generator
        return rng


def train_slice(plan: Round, number: int) -> dict[str, Any]:
    """Train one slice for one round and commit its changes; skip it if they are committed.

    Returns:
        "losses": (items, mean loss) of each step; "generator": the state of the random numbers.
    """
    folder, name = Folder(plan.folder), slice_name(number)
    with read_as_file(folder, name) as committed:
        if committed is not None:
            return facts_of(checkpoints.load(committed, identity=plan.folder))
    with read_as_file(folder, START) as path:
        assert path is not None
        start = checkpoints.stored_arrays(path)
        learner = learner_at(plan, number, start)
        losses = list(learner.steps(plan.done, plan.share))
        found = changes(start, arrays_of(learner))
    facts = {"losses": losses, "generator": learner.rng.bit_generator.state}
    with write_as_file(folder, name) as target:
        checkpoints.save(target, Checkpoint({"identity": plan.folder, **facts}, found))
    return facts


def learner_at(plan: Round, number: int, start: StoredArrays) -> LinearLearner:
    """Return the learner of one slice at the start of a round, given its arrays as ``arrays_of`` names them."""
    features = read_inputs(Folder(plan.inputs), number)
    seed = [*plan.seed, number]
    queries = part_of(features.pairs.queries, plan.part, plan.parts, seed)
    pairs, train = features.pairs.of_queries(queries), plan.train
    if train.triples:
        train = replace(train, triples=-(-train.triples * len(pairs) // plan.pairs))
    features = replace(features, pairs=pairs)
    now, state = start.group("now."), start.group("state.")
    values = Parameters.of_arrays(dict(now), skip=features.settings.skip)
    learner = LEARNERS[train.loss](features, train, plan.generator_of(number), values)
    # A new learner scales the diagonals.
    learner.restore({"D": now["D"]}, state)
    return learner


def arrays_of(learner: LinearLearner) -> dict[str, Array]:
    """Return the live arrays of a learner: parameters with the prefix "now.", the rest of its state with "state."."""
    groups = {"now": learner.parameters(), "state": learner.state()}
    return {
        f"{group}.{name}": array for group, found in groups.items() for name, array in found.items()
    }


def slice_name(number: int) -> str:
    return f"slice-{number:05}.npz"


def facts_of(checkpoint: Checkpoint | None) -> dict[str, Any]:
    """Return the facts of a file of this package, as they were before they became JSON."""
    assert checkpoint is not None
    facts = dict(checkpoint.facts)
    del facts["identity"]
    facts["losses"] = [(count, loss) for count, loss in facts["losses"]]
    return facts
