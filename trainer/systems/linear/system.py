"""Fitting a recipe of the linear family: tf-idf, BM25, LSI and all of supervised semantic indexing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fullrank.errors import TrainingError
from trainer.features.data import Features
from trainer.recipes.recipe import Recipe
from trainer.systems.linear import joint, lsi
from trainer.systems.linear.ensemble import averaged, run_of
from trainer.systems.linear.joint import Task
from trainer.systems.linear.learner import LinearLearner
from trainer.systems.linear.margin import MarginLearner
from trainer.systems.linear.mixing import mix
from trainer.systems.linear.parameters import (
    Parameters,
    compile_model,
    encode_corpus,
    encode_judged,
    start,
)
from trainer.systems.linear.softmax import SoftmaxLearner
from trainer.training.fitted import Fitted
from trainer.training.loop import Run
from trainer.workshop import Workshop

_LEARNERS: dict[str, type[LinearLearner]] = {"margin": MarginLearner, "softmax": SoftmaxLearner}


def fit(workshop: Workshop, recipe: Recipe, run: Run) -> Fitted:
    """The model of a linear recipe. Raises TrainingError where there is nothing to learn from."""
    features = workshop.features(recipe.model)
    facts: dict[str, Any] = {}
    if recipe.train.loss == "none":
        parameters = start(features, recipe.train, np.random.default_rng(workshop.seed))
    else:
        second = None
        if recipe.train.monolingual:
            second = joint.read_task(workshop, recipe.train.monolingual, features)
            run = replace(run, fingerprint=run.fingerprint + second.fingerprint)
        parameters, facts = _learn(features, recipe, run, second)
    if recipe.model.latent == "lsi":
        key = ("lsi", replace(recipe.model, alpha=1.0))
        model = lsi.compile_model(
            features, workshop.once(key, lambda: lsi.project(features, workshop.seed))
        )
    else:
        model = compile_model(features, parameters)
    documents = encode_corpus(features, model, parameters)
    return Fitted(model, documents, partial(encode_judged, features, model), facts)


def _learn(
    features: Features, recipe: Recipe, run: Run, second: Task | None
) -> tuple[Parameters, dict[str, Any]]:
    """The parameters of the best epoch, of every member and averaged; the facts of each."""
    found, facts = [], []
    for i in range(recipe.train.members):
        member = run_of(run, i, recipe.train.members)
        learner = learner_of(features, recipe, np.random.default_rng(member.seed), second)
        facts.append(member.learn(learner))
        if recipe.model.hashing == "rare":
            facts[-1]["mixing"] = mix(learner, run.valid)
        found.append(learner.values)
    return averaged(found), facts[0] if len(facts) == 1 else {"members": facts}


def learner_of(
    features: Features, recipe: Recipe, rng: np.random.Generator, second: Task | None = None
) -> LinearLearner:
    """The learner of a recipe's loss. Raises TrainingError where no pair is judged.

    second  a monolingual task that shares V
    """
    if not len(features.pairs):
        raise TrainingError("the training split has no judged pair; nothing can be learned")
    if second is not None:
        return joint.JointLearner(features, recipe.train, rng, second)
    return _LEARNERS[recipe.train.loss](features, recipe.train, rng)
