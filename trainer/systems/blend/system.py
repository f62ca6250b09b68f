"""Fit a blend f = Σ_m w_m f_m of recipes.

1. Set a tenth of the judged documents aside, and fit every part without their judgements.
2. Choose the weights: (1 − cold) · warm + cold · cold quality, where warm queries ask for documents that training
   judged and cold ones for those set aside.
3. Put the judgements back and fit the parts that have a weight once more, with what validation chose.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from fullrank.encoding import Encoded, Int64
from fullrank.measures import Float64
from fullrank.models.mixed import MixedModel
from trainer.recipes.recipe import Recipe, load_recipe
from trainer.systems.blend.scores import PartScores
from trainer.systems.blend.weights import Scored, choose
from trainer.systems.rules import require, validate_without_hashing
from trainer.training.context import TrainingContext
from trainer.training.fitted import FittedModel
from trainer.training.holdout import hold_out
from trainer.training.loop import TrainingRun
from trainer.training.result import ResultRow

Fit = Callable[[TrainingContext, Recipe, TrainingRun], FittedModel]

BASELINES = ("bm25", "tfidf")
_TRIAL_SHARE = 0.4  # of the time limit, for the first fits of the parts that learn in epochs


def validate(validate_part: Callable[[Recipe], None], recipe: Recipe) -> None:
    """Check the settings of a blend and of its parts. Raises RecipeError."""
    validate_without_hashing(recipe)
    for key in ("recipes", "linked"):
        names: tuple[str, ...] = getattr(recipe.blend, key)
        require(len(names) >= 2, f"blend.{key}: name two recipes or more")
        for text in names:
            part = part_of(text)
            require(
                part.system not in ("blend", "mixed", "expansion") and not part.auto.trials,
                f"blend.{key}: {part.name} is a mix or a search itself, or not linear in the query",
            )
            validate_part(part)


def part_of(text: str) -> Recipe:
    """Load the recipe that a setting names, with its overrides."""
    name, *overrides = text.split()
    return load_recipe(name).override(overrides)


def fit(fit_part: Fit, context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Fit a blend.

    Args:
        fit_part: fits one recipe.
        context: the collection and cached results.
        recipe: names the parts.
        run: settings of this fit.

    Raises:
        RecipeError, TrainingError: a part cannot be fitted, or nothing is judged.
    """
    began = time.monotonic()
    context.corpus.pairs.require()
    linked = context.corpus.collection.documents_are_queries
    names = recipe.blend.linked if linked else recipe.blend.recipes
    parts = [_with_vectors(part_of(text), recipe) for text in names]
    held = hold_out(context.corpus, recipe.train.valid_queries)
    trial_context = context.with_corpus(held.corpus)
    trials, spent = [], []
    count = sum(map(_learns, parts))
    for i, part in enumerate(parts):
        seconds = _TRIAL_SHARE * recipe.auto.seconds / count if _learns(part) else 0.0
        part_run = _part_run(run, _limited(part, seconds, 1), f"trial-{i}")
        started = time.monotonic()
        trials.append(fit_part(trial_context, part_run.recipe, replace(part_run, valid=held.warm)))
        spent.append(time.monotonic() - started)
    warm = None if held.warm is None else PartScores.of(held.warm, trials)
    cold = None if held.cold is None else PartScores.of(held.cold, trials)
    scored = Scored(warm, cold, recipe.auto.cold)
    weights = choose(scored)
    _log(run, parts, weights)
    comparison = _comparison(fit_part, trial_context, recipe, run, trials, scored, weights)
    trial_context.clear_cache()
    used = np.flatnonzero(weights)
    finals = []
    learning = [i for i in used.tolist() if _learns(parts[i])]
    for i in used.tolist():
        settled = trials[i].settled or parts[i]
        if i in learning:
            left = recipe.auto.seconds - (time.monotonic() - began)
            share = left / len(learning[learning.index(i) :])
            settled = _final(parts[i], settled, share if recipe.auto.seconds else 0.0, spent[i])
        part_run = _part_run(run, settled, f"final-{i}")
        finals.append(fit_part(context, settled, replace(part_run, valid=None)))
    facts = {
        "weights": {parts[i].name: float(weights[i]) for i in used.tolist()},
        "parts": [final.facts for final in finals],
        "trials": [trial.facts for trial in trials],
        "validation": [row.as_dict() for row in comparison],
    }
    if len(finals) == 1:
        return replace(finals[0], facts=facts, settled=None, comparison=comparison)
    model = MixedModel([final.model for final in finals], weights[used].tolist())
    documents = model.documents([final.documents for final in finals])
    encode = partial(_encode, model, finals)
    return FittedModel(model, documents, encode, facts, comparison=comparison)


def _with_vectors(part: Recipe, recipe: Recipe) -> Recipe:
    """Let a part that learns start at the word vectors that were given for the blend."""
    if not recipe.train.vectors or not _learns(part):
        return part
    return replace(part, train=replace(part.train, vectors=recipe.train.vectors))


def _learns(part: Recipe) -> bool:
    """Return whether a part learns in epochs, so that a time limit holds."""
    return part.system == "linear" and part.train.loss != "none"


def _limited(part: Recipe, seconds: float, members: int) -> Recipe:
    return replace(part, train=replace(part.train, seconds=seconds, members=members))


def _final(part: Recipe, settled: Recipe, left: float, trial_seconds: float) -> Recipe:
    """Return the recipe of the last fit: as many members as its time allows, by the time of the trial."""
    members = part.train.members
    if left:
        members = max(1, min(members, int(left / max(trial_seconds, 1e-3))))
    return _limited(settled, max(1.0, left) if left else 0.0, members)


def _part_run(run: TrainingRun, part: Recipe, name: str) -> TrainingRun:
    path = run.path.with_name(f"{run.path.stem}-{name}.npz")
    fingerprint = f"{run.fingerprint} {name}"
    return replace(
        run, recipe=part, path=path, fingerprint=fingerprint, label=f"{name} {part.name} "
    )


def _log(run: TrainingRun, parts: Sequence[Recipe], weights: Float64) -> None:
    found = {
        part.name: round(float(weight), 4) for part, weight in zip(parts, weights, strict=True)
    }
    run.reporter.log("blend", **found)
    if weights[0] == 1:
        run.reporter.log(
            "warning",
            reason=f"nothing is better than {parts[0].name} by a standard error on validation, so it serves alone",
        )


def _comparison(
    fit_part: Fit,
    context: TrainingContext,
    recipe: Recipe,
    run: TrainingRun,
    trials: Sequence[FittedModel],
    scored: Scored,
    weights: Float64,
) -> tuple[ResultRow, ...]:
    """Measure the blend and the baselines, warm and cold, before the judgements set aside are put back."""
    rows: list[ResultRow] = []
    baselines = [(name, load_recipe(name)) for name in BASELINES]
    fitted = [
        fit_part(context, part, _part_run(run, part, f"baseline-{name}"))
        for name, part in baselines
    ]
    for scores in (scored.warm, scored.cold):
        if scores is None:
            continue
        count = len(scores.judgements)
        rows.append(ResultRow(recipe.name, scores.valid.split, count, scores.measures(weights)))
        for (name, _), one in zip(baselines, fitted, strict=True):
            alone = scores.with_parts([one])
            rows.append(ResultRow(name, scores.valid.split, count, alone.measures(np.ones(1))))
    return tuple(rows)


def _encode(model: MixedModel, parts: Sequence[FittedModel], rows: Int64) -> Encoded:
    return model.queries([part.encode(rows) for part in parts])
