"""Fit a recipe of the linear family: tf-idf, BM25, LSI and supervised semantic indexing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fullrank_trainer.features.matrices import Features
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.systems.linear import joint, lsi
from fullrank_trainer.systems.linear.ensemble import average, member_run
from fullrank_trainer.systems.linear.joint import Task
from fullrank_trainer.systems.linear.learner import LinearLearner
from fullrank_trainer.systems.linear.margin import MarginLearner
from fullrank_trainer.systems.linear.parameters import (
    Parameters,
    compile_model,
    encode_corpus,
    encode_judged,
    level_biases,
    start,
)
from fullrank_trainer.systems.linear.pretrained import start_rows
from fullrank_trainer.systems.linear.rates import mix, start_at_best_rate
from fullrank_trainer.systems.linear.softmax import SoftmaxLearner
from fullrank_trainer.systems.linear.warm import copy_learned, warm_recipe
from fullrank_trainer.systems.rules import require, validate_common
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel, Learned
from fullrank_trainer.training.loop import TrainingRun
from fullrank_trainer.vectors import WordVectors, read_vectors

# Rules for recipes of the linear family.


def validate(recipe: Recipe) -> None:
    """Check the settings of a linear recipe. Raises RecipeError."""
    model, train = recipe.model, recipe.train
    validate_common(recipe)
    validate_model(recipe)
    require(
        model.trigrams != "only" or model.hashing == "none",
        "model.hashing: with trigrams only there are no words to hash",
    )
    require(
        (model.hashing == "none" and model.bigrams == 0) or model.latent == "learned",
        "model.hashing and model.bigrams need a linear model.latent = learned",
    )
    require(
        model.bigrams == 0 or model.buckets == 0,
        "model.bigrams: 2-grams would fall into model.buckets; use one of them",
    )
    require(
        not train.monolingual
        or (train.loss == "margin" and model.latent == "learned" and not model.tied),
        "train.monolingual needs train.loss = margin, model.latent = learned and model.tied = false",
    )


def validate_model(recipe: Recipe) -> None:
    """Check how the parts of a linear model and its loss go together. Raises RecipeError."""
    model, train = recipe.model, recipe.train
    has_layers = bool(model.layers or model.cosine)
    require(
        model.latent != "learned" or train.loss != "none",
        "model.latent = learned needs train.loss margin or softmax",
    )
    require(
        model.diagonal != "learned" or train.loss != "none",
        "model.diagonal = learned needs train.loss margin or softmax",
    )
    require(
        model.latent != "none" or model.match != "none",
        "a model needs model.latent or model.match",
    )
    require(
        train.members == 1 or not (has_layers or train.loss == "none"),
        "train.members: averaging several fits needs a train.loss, and no model.layers or model.cosine",
    )
    require(
        model.clicked == "off" or train.loss == "softmax", "model.clicked needs train.loss softmax"
    )
    require(
        not has_layers or (model.latent == "learned" and train.loss == "softmax"),
        "model.layers and model.cosine need model.latent learned and train.loss softmax",
    )
    require(
        not model.skip or model.layers[-1:] == (model.dimension,),
        "model.skip: the last of model.layers must be as wide as model.dimension",
    )


LEARNERS: dict[str, type[LinearLearner]] = {"margin": MarginLearner, "softmax": SoftmaxLearner}


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Fit a linear recipe.

    Raises:
        TrainingError: a loss has no judged pair to learn from.
    """
    features = context.features(recipe.model)
    facts: dict[str, Any] = {}
    learned: Learned | None = None
    if recipe.train.loss == "none":
        parameters = start(features, recipe.train, np.random.default_rng(context.seed))
    else:
        if run.warm is not None:
            recipe = warm_recipe(recipe, run.warm)
            run = replace(run, recipe=recipe, rates=())
        second = None
        if recipe.train.monolingual:
            second = joint.read_task(context, recipe.train.monolingual, features)
            run = replace(run, fingerprint=run.fingerprint + second.fingerprint)
        vectors = None
        if recipe.train.vectors:
            vectors = _read_vectors(context, Path(recipe.train.vectors))
            run = replace(run, fingerprint=run.fingerprint + vectors.fingerprint)
        parameters, facts, learned = _learn(context, features, recipe, run, second, vectors)
    if recipe.model.latent == "lsi":
        key = ("lsi", replace(recipe.model, alpha=1.0))
        model = lsi.compile_model(
            features, context.cached(key, lambda: lsi.project(features, context.seed))
        )
    else:
        model = compile_model(features, parameters, context.files)
    documents = encode_corpus(features, model, parameters)
    context.files.release()  # V, before queries read U
    settled = _settled(recipe, facts) if facts else None
    encode = partial(encode_judged, features, model)
    return FittedModel(model, documents, encode, facts, settled, learned=learned)


def _settled(recipe: Recipe, facts: dict[str, Any]) -> Recipe:
    """Return the recipe with the number of epochs and the rate that were best on validation."""
    members = facts.get("members", [facts])
    epochs = max(1, round(float(np.median([member["best_epoch"] for member in members]))))
    rate = facts.get("rate", recipe.train.rate)
    return replace(recipe, train=replace(recipe.train, epochs=epochs, rate=rate))


def _read_vectors(context: TrainingContext, path: Path) -> WordVectors:
    """Read the vectors of all words of the collection, once for all trials. Raises TrainingError."""
    words = context.corpus.counts.words
    return context.cached(("vectors", path), lambda: read_vectors(path, words))


def _learn(
    context: TrainingContext,
    features: Features,
    recipe: Recipe,
    run: TrainingRun,
    second: Task | None,
    vectors: WordVectors | None,
) -> tuple[Parameters, dict[str, Any], Learned | None]:
    """Fit every member.

    Returns:
        The average of the members' best epochs, facts for the model card, and where a single member ended.
    """
    found, facts = [], []
    started: dict[str, Any] = {}

    def begin(run: TrainingRun) -> LinearLearner:
        rng = np.random.default_rng(run.seed)
        learner = learner_of(features, run.recipe, rng, second)
        if vectors is not None:
            counts = start_rows(vectors, features, learner.values, run.recipe.train.init, rng)
            started["vectors"] = counts
            run.reporter.log(f"{run.label}vectors", **counts)
        if run.warm is not None:
            ids = context.collection.document_ids
            counts = copy_learned(run.warm, features, learner.values, ids)
            started["warm"] = counts
            run.reporter.log(f"{run.label}warm start", **counts)
        return learner

    may_try = recipe.train.loss == "softmax" and recipe.train.epochs > 1
    if may_try and len(run.rates) > 1 and run.valid is not None:
        chosen = start_at_best_rate(run, begin)
        if chosen is not run:
            run = chosen
            started |= {"rate": run.recipe.train.rate, "rate_epochs": 1}
    for i in range(recipe.train.members):
        member = member_run(run, i, recipe.train.members)
        learner = begin(member)
        facts.append(member.learn(learner))
        if recipe.model.hashing == "rare":
            facts[-1]["mixing"] = mix(learner, run.valid)
        found.append(learner.values)
        del learner  # it has the tables too
        found[-1].put_tables(context.files)
    learned = None
    if run.keeps_state and len(facts) == 1:
        epochs = len(facts[0]["history"])
        learned = Learned.stored(run.path, epochs)
    card = facts[0] if len(facts) == 1 else {"members": facts}
    parameters = average(found, context.files)
    if recipe.train.sampled_from == "judged" and recipe.model.bias:
        # The mean of the members' medians is not the median of their mean.
        level_biases(features, parameters)
    return parameters, card | started, learned


def learner_of(
    features: Features, recipe: Recipe, rng: np.random.Generator, second: Task | None = None
) -> LinearLearner:
    """Make the learner of a recipe's loss.

    Args:
        features: of the model.
        recipe: names the loss.
        rng: the random numbers of the whole training.
        second: a monolingual task that shares V.

    Raises:
        TrainingError: no pair is judged.
    """
    features.pairs.require()
    if second is not None:
        return joint.JointLearner(features, recipe.train, rng, second)
    return LEARNERS[recipe.train.loss](features, recipe.train, rng)
