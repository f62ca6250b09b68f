"""The choice of a learning rate: the best one goes on, and only one learner is in memory at a time."""

from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np

from fullrank.progress import Reporter
from fullrank_trainer.collection import read_collection
from fullrank_trainer.recipes.recipe import load_recipe
from fullrank_trainer.systems.linear.parameters import LinearLearner
from fullrank_trainer.systems.linear.system import learner_of, start_at_best_rate
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.loop import TrainingRun
from fullrank_trainer.training.validation import validation
from tests.planted import write_planted_links

QUIET = Reporter(quiet=True)
SMALL = ["dimension=6", "epochs=3", "batch=32", "candidates=30"]


def test_a_learner_is_dropped_before_the_next_one_is_made(tmp_path: Path) -> None:
    numba.set_num_threads(1)
    context = TrainingContext(read_collection(write_planted_links(tmp_path / "c")), QUIET, 1, 1)
    recipe = load_recipe("fielded").override(SMALL)
    valid = validation(context.corpus, 0)
    run = TrainingRun(recipe, valid, 1, "x", QUIET, tmp_path / "0.npz", False, rates=(1e-9, 0.3))
    features = context.features(recipe.model)
    made: list[weakref.ref[LinearLearner]] = []

    def begin(trial: TrainingRun) -> LinearLearner:
        assert all(learner() is None for learner in made)
        learner = learner_of(features, trial.recipe, np.random.default_rng(trial.seed))
        made.append(weakref.ref(learner))
        return learner

    chosen = start_at_best_rate(run, begin)
    assert len(made) == 2
    assert chosen.recipe.train.rate in run.rates
    assert chosen.recipe.train.epochs == 2
    # What goes on is what an epoch at the chosen rate ends with.
    train = replace(chosen.recipe.train, epochs=1)
    once = replace(run, recipe=replace(recipe, train=train), path=tmp_path / "alone.npz")
    alone = begin(once)
    once.learn(alone)
    tables = dict(alone.parameters())
    assert chosen.start is not None
    assert chosen.start.parameters.keys() == tables.keys()
    for name, table in tables.items():
        np.testing.assert_array_equal(chosen.start.parameters[name], table)
    for name, array in alone.state().items():
        np.testing.assert_array_equal(chosen.start.state[name], array)
