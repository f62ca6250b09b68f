"""Fit a projection model: f(q, d) = cos(Aᵀq, Aᵀd), alone or mixed with tf-idf as α cos + (1 − α) q·d.

``METHODS`` has the ways to find A. A is found once for all values of α that a search tries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fullrank.encoding import Float32
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.systems.linear import lsi
from fullrank_trainer.systems.linear.parameters import encode_corpus, encode_judged, start
from fullrank_trainer.systems.projections import components
from fullrank_trainer.systems.projections.components import Space, space_of
from fullrank_trainer.systems.projections.s2net import S2NetLearner
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.loop import TrainingRun

_NOISE = 1.0  # γ of opca, in units of the mean variance of a word
_Projection = tuple[Float32, dict[str, Any]]


def _components(
    find: Callable[..., Float32],
    context: TrainingContext,
    recipe: Recipe,
    space: Space,
    run: TrainingRun,
) -> _Projection:
    return find(space, recipe.model.dimension, context.seed), {}


def _opca(context: TrainingContext, recipe: Recipe, space: Space, run: TrainingRun) -> _Projection:
    return components.opca(space, recipe.model.dimension, context.seed, _NOISE), {}


def _s2net(context: TrainingContext, recipe: Recipe, space: Space, run: TrainingRun) -> _Projection:
    features, rng = context.features(recipe.model), np.random.default_rng(context.seed)
    learner = S2NetLearner(features, space, recipe, rng, context.seed)
    facts = run.learn(learner)
    return learner.A, facts


METHODS: dict[str, Callable[[TrainingContext, Recipe, Space, TrainingRun], _Projection]] = {
    "lsa": partial(_components, components.lsa),
    "cl-lsa": partial(_components, components.cl_lsa),
    "opca": _opca,
    "s2net": _s2net,
}
"""How to find A; each returns A and facts for the model card."""


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Fit a projection recipe. Raises TrainingError if there are too few texts or pairs."""
    features = context.features(recipe.model)
    space = space_of(features, recipe.projection.pairs)
    find = METHODS[recipe.projection.method]
    # A does not depend on the time limit, which differs between the trials of a search.
    train = replace(recipe.train, seconds=0.0)
    key = ("projection", replace(recipe.model, alpha=1.0), recipe.projection, train)
    A, facts = context.cached(key, lambda: find(context, recipe, space, run))
    U, V = space.tables(A)
    model = lsi.compile_model(features, V, U)
    unlearned = start(features, recipe.train, np.random.default_rng(context.seed))
    documents = encode_corpus(features, model, unlearned)
    return FittedModel(model, documents, partial(encode_judged, features, model), facts)
