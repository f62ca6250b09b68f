"""Fit a recipe of the linear family: tf-idf, BM25, LSI and supervised semantic indexing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.errors import TrainingError
from fullrank.storage.encoding import Float32
from fullrank_trainer.compiled import clock
from fullrank_trainer.features.corpus import Corpus
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.features.sides import known_trigrams
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.recipes.settings import require
from fullrank_trainer.recipes.systems import Cost, System
from fullrank_trainer.systems.linear.margin import JointLearner, MarginLearner, Task, read_task
from fullrank_trainer.systems.linear.parameters import (
    LinearLearner,
    Parameters,
    compile_model,
    fitted_linear,
    level_biases,
    start,
)
from fullrank_trainer.systems.linear.softmax import SoftmaxLearner
from fullrank_trainer.systems.linear.warm import copy_learned, warm_recipe
from fullrank_trainer.systems.projections import compile_projection, singular_vectors
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel, Learned
from fullrank_trainer.training.loop import Diverged, TrainingRun
from fullrank_trainer.training.memory import ArrayFiles
from fullrank_trainer.training.validation import Validation
from fullrank_trainer.vectors import WordVectors, read_vectors


def validate(recipe: Recipe) -> None:
    model, train = recipe.model, recipe.train
    validate_model(recipe)
    require(
        model.trigrams != "only" or model.hashing == "none",
        "model.hashing: with trigrams only there are no words to hash",
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
    """Fit a linear recipe. Raises TrainingError if a loss has no judged pair to learn from."""
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
            second = read_task(context, recipe.train.monolingual, features)
            run = replace(run, fingerprint=run.fingerprint + second.fingerprint)
        vectors = None
        if recipe.train.vectors:
            path, words = Path(recipe.train.vectors), context.corpus.counts.words
            vectors = context.cached(("vectors", path), lambda: read_vectors(path, words))
            run = replace(run, fingerprint=run.fingerprint + vectors.fingerprint)
        parameters, facts, learned = _learn(context, features, recipe, run, second, vectors)
    if recipe.model.latent == "lsi":
        key = ("lsi", replace(recipe.model, alpha=1.0))
        model = compile_projection(
            features, context.cached(key, lambda: singular_vectors(features, context.seed))
        )
    else:
        model = compile_model(features, parameters, context.files)
    found = fitted_linear(features, model, parameters, facts)
    context.files.release()  # V, before queries read U
    return replace(found, settled=_settled(recipe, facts) if facts else None, learned=learned)


def _settled(recipe: Recipe, facts: dict[str, Any]) -> Recipe:
    members = facts.get("members", [facts])
    epochs = max(1, round(float(np.median([member["best_epoch"] for member in members]))))
    rate = facts.get("rate", recipe.train.rate)
    return recipe.with_train(epochs=epochs, rate=rate)


def _learn(
    context: TrainingContext,
    features: Features,
    recipe: Recipe,
    run: TrainingRun,
    second: Task | None,
    vectors: WordVectors | None,
) -> tuple[Parameters, dict[str, Any], Learned | None]:
    """Return the average of the members' best epochs, facts for the model card, and where a single member ended."""
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
    """Make the learner of a recipe's loss; a second task shares V. Raises TrainingError if no pair is judged."""
    features.pairs.require()
    if second is not None:
        return JointLearner(features, recipe.train, rng, second)
    return LEARNERS[recipe.train.loss](features, recipe.train, rng)


# Average several fits of one recipe with different seeds into one model: the mean of their scores.
#
#     f = (1/m) Σ_i f_i:      U = [U₁ | … | U_m] / √m,  V likewise,  D = (1/m) Σ_i D_i,  b = (1/m) Σ_i b_i
#
# Fits that differ only in their seed make different errors where the training pairs are few; averaging reduces them.
# The result is a model of the same family with m N dimensions, so it serves like any other.


_ROWS = 1 << 13  # at once, so that the process has no table whole


def average(members: Sequence[Parameters], files: ArrayFiles) -> Parameters:
    """Return the mean model. Members must have no layers: towers cannot be averaged.

    Several members lose their tables on the way, because they are large; those of their mean are in files.
    """
    if len(members) == 1:
        return members[0]
    tied = members[0].tied
    U = _concatenate([p.U for p in members], files)
    for p in members:
        p.U = p.U[:0].copy()
    V = U if tied else _concatenate([p.V for p in members], files)
    for p in members:
        p.V = p.V[:0].copy()
    D, bias = (
        np.asarray(np.mean(arrays, axis=0, dtype=np.float64), np.float32)
        for arrays in ([p.D for p in members], [p.bias for p in members])
    )
    return Parameters(U, V, D, bias)


def _concatenate(tables: Sequence[Float32], files: ArrayFiles) -> Float32:
    rows, width = tables[0].shape
    found = files.zeros((rows, len(tables) * width))
    for first in range(0, rows, _ROWS):
        block = slice(first, first + _ROWS)
        found[block] = np.concatenate([table[block] for table in tables], axis=1)
        found[block] *= np.float32(len(tables) ** -0.5)
        files.release()
    return found


def member_run(run: TrainingRun, member: int, members: int) -> TrainingRun:
    """Return the run of one member: seed + member, its own checkpoint and label, its share of the time."""
    if members == 1:
        return run
    return replace(
        run,
        recipe=run.recipe.with_train(seconds=run.recipe.train.seconds / members),
        seed=run.seed + member,
        warm=None if run.warm is None else replace(run.warm, member=member),
        path=run.path.with_stem(f"{run.path.stem}-{member}"),
        label=f"{run.label}{member + 1}/{members} ",
    )


def start_at_best_rate(
    run: TrainingRun, learner_of: Callable[[TrainingRun], LinearLearner]
) -> TrainingRun:
    """Take an epoch at each of ``run.rates``, two or more, and measure it; leave out those that diverge.

    Returns:
        The run that goes on from the best rate, an epoch and some time less; ``run`` itself if all diverge.
    """
    began, highest, best = clock(), -math.inf, run
    train = run.recipe.train
    for rate in run.rates:
        recipe = run.recipe.with_train(rate=rate, epochs=1)
        path = run.path.with_stem(f"{run.path.stem}-rate-{rate:g}")
        trial = replace(run, recipe=recipe, path=path, label=f"{run.label}rate {rate:g} ")
        try:
            # No name is bound to the learner: the next one must not start before its tables are dropped.
            found: float = trial.learn(learner_of(trial))["history"][-1]["valid_map"]
        except Diverged as error:
            run.reporter.say(
                "warning", f"the learning rate {rate:g} is too high and was left out: {error}"
            )
            continue
        if found > highest:
            highest = found
            recipe = run.recipe.with_train(rate=rate, epochs=train.epochs - 1)
            best = replace(run, recipe=recipe, start=Learned.stored(path, epochs=1))
    if best is run or not train.seconds:
        return best
    left = max(1e-3, train.seconds - (clock() - began))
    return replace(best, recipe=best.recipe.with_train(seconds=left))


# Choose the weight of the second table of a mixed composition on the validation split, after the fit.
#
# f = (U F x + c U' H x)·(V F y + c V' H y) + …           c = 0: frequent words only

FACTORS = (0.0, 0.25, 0.5, 0.71, 1.0, 1.41, 2.0, 4.0)


def mix(learner: LinearLearner, valid: Validation | None) -> float:
    """Scale the second table in place by the smallest factor of ``FACTORS`` with the highest MAP; return the factor."""
    if valid is None:
        return 1.0
    features, values = learner.features, learner.values
    parts = [values.U[features.query_composition.second_table]]
    if values.V is not values.U:
        parts.append(values.V[features.document_composition.second_table])
    fitted = [part.copy() for part in parts]
    found: list[tuple[float, float]] = []
    for factor in FACTORS:
        _scale(parts, fitted, factor)
        found.append((learner.measure(valid), factor))
    best = max(found, key=lambda one: (one[0], -one[1]))[1]
    _scale(parts, fitted, best)
    return best


def _scale(parts: list[Float32], fitted: list[Float32], factor: float) -> None:
    for part, before in zip(parts, fitted, strict=True):
        part[...] = before * np.float32(factor)


# Start U and V at pretrained word vectors.
#
#     X: the vectors of known words, each of length 1, minus their mean
#     Y = X P                         P: their first principal components, (width, r), r ≤ N
#     u_w = σ √N Q y_w / ‖y_w‖        Q: the identity if r = N, else a random orthonormal embedding of r in N dimensions
#
# Each row then has the root mean square σ that a row drawn at random has, so learning rates keep their meaning. A word
# has the same start on both sides. Words without a vector, a word whose vector is the mean, and letter trigrams keep
# their random start.


_ZERO = 1e-9  # unit vectors: a shorter difference from their mean is a rounding error


def start_rows(
    found: WordVectors,
    features: Features,
    parameters: Parameters,
    init: float,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Set the rows of words that have a vector, in place; with σ = 0 at the deviation of the random start.

    Returns for the model card how many words of how many start at a vector. Raises TrainingError if none does.
    """
    sides = [(parameters.U, features.query_composition.labels)]
    if not parameters.tied:
        sides.append((parameters.V, features.document_composition.labels))
    words = {word for _, labels in sides for word in labels}
    known = [i for i, word in enumerate(found.words) if word in words]
    if not known:
        raise TrainingError(
            f"train.vectors: {found.path} has a vector for no word of the model's {len(words):,}"
        )
    width = parameters.V.shape[1]
    rows = project(found.vectors[known], width, rng)
    rows *= (init or float(parameters.V.std())) * np.sqrt(width)
    index = {found.words[i]: row for i, row in zip(known, rows, strict=True) if row.any()}
    for table, labels in sides:
        for i, word in enumerate(labels):
            if word in index:
                table[i] = index[word]
    return {
        "file": found.path.name,
        "sha256": found.fingerprint,
        "width": found.vectors.shape[1],
        "words": len(index),
        "of": len(words),
    }


def project(vectors: Float32, width: int, rng: np.random.Generator) -> Float32:
    """Return unit rows of another width, float32 (words, N); zero for a vector that is the mean of all.

    The rng draws the embedding if the vectors span fewer than N dimensions.
    """
    X = _unit(vectors.astype(np.float64))
    X -= X.mean(axis=0)
    components = np.linalg.eigh(X.T @ X)[1][:, ::-1]  # by descending variance
    rank = min(width, len(X), X.shape[1])
    Y = X @ components[:, :rank]
    if rank < width:
        basis, _ = np.linalg.qr(rng.standard_normal((width, rank)))
        Y = Y @ basis.T
    return np.asarray(_unit(Y), np.float32)


def _unit(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Scale rows to length 1; what is left of a zero row by rounding becomes zero."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.where(norms > _ZERO, rows / np.maximum(norms, _ZERO), 0.0)


def cost(corpus: Corpus, recipe: Recipe) -> Cost:
    """Return the size of U and V of one fit, that of what a step makes, and the multiplications of all fits."""
    model, train, width = recipe.model, recipe.train, recipe.model.dimension
    parameters = 0
    if model.latent == "learned":
        words = len(corpus.counts.words)
        rows = min(words, model.words or words, model.latent_words or words)
        rows += len(known_trigrams(corpus, model))
        parameters = (1 if model.tied else 2) * rows * width * 4
    if train.loss == "none":
        return Cost(parameters)
    texts = max(1, len(corpus.collection.documents))
    terms = sum(len(column.indices) for column in corpus.counts.columns) / texts
    terms = min(terms, model.latent_terms or terms)
    if train.loss == "margin":
        steps = (train.triples or len(corpus.pairs)) * train.epochs
        return Cost(parameters, 0, train.members * steps * 12 * terms * width)
    batch, candidates = train.batch, train.candidates
    scratch = 4 * (4 * batch * candidates + 6 * (batch + candidates) * width) + 12_000 * candidates
    steps = -(-len(corpus.pairs.queries) // batch) * train.epochs
    work = 6 * batch * candidates * width + 8 * (batch + candidates) * terms * width
    return Cost(parameters, scratch, train.members * steps * work)


SYSTEM = System(
    "linear",
    fit,
    validate,
    learns=lambda recipe: recipe.train.loss != "none",
    is_fixed=lambda recipe: recipe.train.loss == "none",
    takes_vectors=lambda recipe: (
        recipe.model.latent == "learned" and recipe.model.trigrams != "only"
    ),
    hashes_words=lambda recipe: recipe.model.latent == "learned",
    cost=cost,
)
