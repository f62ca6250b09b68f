"""The parts of a recipe that adds up other recipes: load them, check them, add the fitted models; fit a mix of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.models.mixed import NO_LIFT, Lift, MixedModel
from fullrank.storage.encoding import Encoded, Int64
from fullrank_trainer.recipes.recipe import Recipe, load_recipe, system_of
from fullrank_trainer.recipes.recipe import validate as validate_recipe
from fullrank_trainer.recipes.settings import require, setting
from fullrank_trainer.recipes.systems import System
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.loop import TrainingRun


@dataclass(frozen=True)
class MixedSettings:
    """A mix of two models: ``model.alpha`` times the first plus 1 − alpha times the second."""

    # two recipes; overrides of each follow its name after spaces
    recipes: tuple[str, ...] = setting(("cross-language", "translation-tfidf"))


def load_part(text: str, whole: Recipe) -> Recipe:
    """Load a part, written as the name of a recipe and its overrides after spaces.

    The word vectors of the whole are those of the parts that can start at some, its weight of titles that of the parts
    that join all fields.
    """
    name, *overrides = text.split()
    part = load_recipe(name).override(overrides)
    if whole.train.vectors and system_of(part).takes_vectors(part):
        part = part.with_train(vectors=whole.train.vectors)
    if whole.model.title and part.model.fields == "joined":
        part = replace(part, model=replace(part.model, title=whole.model.title))
    return part


def validate_parts(whole: Recipe, key: str, texts: Sequence[str]) -> None:
    parts = [load_part(text, whole) for text in texts]
    require(
        not whole.train.vectors or any(part.train.vectors for part in parts),
        f"train.vectors: no part of {key} can start at word vectors",
    )
    for part in parts:
        system = system_of(part)
        require(
            system.parts is None and not part.auto.trials,
            f"{key}: {part.name} is a mix or a search itself",
        )
        require(
            system.linear_in_query, f"{key}: the score of {part.name} is not linear in the query"
        )
        validate_recipe(part)


def add_up(
    parts: Sequence[FittedModel],
    weights: Sequence[float],
    facts: dict[str, Any],
    lift: Lift = NO_LIFT,
    unjudged: npt.NDArray[np.bool_] | None = None,
    document_weights: Sequence[float] | None = None,
) -> FittedModel:
    """Return the model Σ_m w_m f_m of parts fitted on one corpus.

    Args:
        lift: of ``unjudged`` documents, and of documents added later.
        document_weights: w_m of documents as queries; None: the same.
    """
    model = MixedModel([part.model for part in parts], weights, lift, document_weights)
    documents = model.documents([part.documents for part in parts])
    if unjudged is not None:
        documents = model.lifted(documents, unjudged)
    return FittedModel(model, documents, partial(_encode, model.for_documents, parts), facts)


def _encode(model: MixedModel, parts: Sequence[FittedModel], rows: Int64) -> Encoded:
    return model.queries([part.encode(rows) for part in parts])


def validate(recipe: Recipe) -> None:
    names = recipe.own.recipes
    require(len(names) == 2, "mixed.recipes: name two recipes, with a comma between them")
    validate_parts(recipe, "mixed.recipes", names)


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    alpha, texts = recipe.model.alpha, recipe.own.recipes
    parts = [load_part(text, recipe) for text in texts]
    starts = [None, None] if run.warm is None else run.warm.parts([p.model.bias for p in parts])
    fitted = []
    for place, (text, part, warm) in enumerate(zip(texts, parts, starts, strict=True)):
        if recipe.train.seconds:
            part = part.with_train(seconds=recipe.train.seconds)
        path = run.path.with_name(f"part-{place}.npz")
        own = replace(run, recipe=part, path=path, warm=warm)
        key = ("mixed", text, part.train.vectors)
        fitted.append(context.cached(key, partial(context.fit, part, own)))
    facts = {"parts": [part.facts for part in fitted], "alpha": alpha}
    return add_up(fitted, [alpha, 1 - alpha], facts)


SYSTEM = System(
    "mixed", fit, validate, "mixed", MixedSettings, lambda r, _: ("mixed.recipes", r.own.recipes)
)
