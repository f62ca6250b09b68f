"""Fitting a projection model: f(q, d) = cos(Aᵀq, Aᵀd), alone or mixed with tf-idf as α cos + (1 − α) q·d.

One table of ways to find A; the α of a mix is a setting like any other, and A is found once for all that are tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fullrank.encoding import Float32
from trainer.recipes.recipe import Recipe
from trainer.systems.linear import lsi
from trainer.systems.linear.parameters import encode_corpus, encode_judged, start
from trainer.systems.projections import components
from trainer.systems.projections.components import Space, space_of
from trainer.systems.projections.s2net import S2NetLearner
from trainer.training.fitted import Fitted
from trainer.training.loop import Run
from trainer.workshop import Workshop

_Found = tuple[Float32, dict[str, Any]]


def _components(
    find: Callable[..., Float32], workshop: Workshop, recipe: Recipe, space: Space, run: Run
) -> _Found:
    return find(space, recipe.model.dimension, workshop.seed), {}


def _opca(workshop: Workshop, recipe: Recipe, space: Space, run: Run) -> _Found:
    noise = recipe.projection.noise
    return components.opca(space, recipe.model.dimension, workshop.seed, noise), {}


def _s2net(workshop: Workshop, recipe: Recipe, space: Space, run: Run) -> _Found:
    features, rng = workshop.features(recipe.model), np.random.default_rng(workshop.seed)
    learner = S2NetLearner(features, space, recipe, rng, workshop.seed)
    facts = run.learn(learner)
    return learner.A, facts


METHODS: dict[str, Callable[[Workshop, Recipe, Space, Run], _Found]] = {
    "lsa": partial(_components, components.lsa),
    "cl-lsa": partial(_components, components.cl_lsa),
    "opca": _opca,
    "s2net": _s2net,
}
"""How A is found, and what the model card says of it."""


def fit(workshop: Workshop, recipe: Recipe, run: Run) -> Fitted:
    """The model of a projection recipe. Raises TrainingError where there are too few texts or pairs for it."""
    features = workshop.features(recipe.model)
    space = space_of(features, recipe.projection.pairs)
    find = METHODS[recipe.projection.method]
    # Time is no part of what A is: a search gives each of its trials another share.
    train = replace(recipe.train, seconds=0.0)
    key = ("projection", replace(recipe.model, alpha=1.0), recipe.projection, train)
    A, facts = workshop.once(key, lambda: find(workshop, recipe, space, run))
    U, V = space.tables(A)
    model = lsi.compile_model(features, V, U)
    unlearned = start(features, recipe.train, np.random.default_rng(workshop.seed))
    documents = encode_corpus(features, model, unlearned)
    return Fitted(model, documents, partial(encode_judged, features, model), facts)
