"""Choices on validation: the learning rate before a fit, the weight of the second table after it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fullrank.encoding import Float32
from fullrank_trainer.systems.linear.learner import LinearLearner
from fullrank_trainer.training.fitted import Learned
from fullrank_trainer.training.loop import Diverged, TrainingRun
from fullrank_trainer.training.validation import Validation


def start_at_best_rate(
    run: TrainingRun, learner_of: Callable[[TrainingRun], LinearLearner]
) -> TrainingRun:
    """Take an epoch at each of ``run.rates``; return the run that goes on from the best one.

    A rate at which training diverges is left out.

    Args:
        learner_of: makes the learner of a run, as it is before the first epoch.
        run: it has validation queries, two rates or more and two epochs or more.

    Returns:
        The run with the best rate, an epoch less, and less of its time limit; ``run`` itself if every rate diverges.
    """
    began, highest, best = time.monotonic(), -math.inf, run
    train = run.recipe.train
    for rate in run.rates:
        recipe = replace(run.recipe, train=replace(train, rate=rate, epochs=1))
        path = run.path.with_stem(f"{run.path.stem}-rate-{rate:g}")
        trial = replace(run, recipe=recipe, path=path, label=f"{run.label}rate {rate:g} ")
        try:
            # No name is bound to the learner: the next one must not start before its tables are dropped.
            found: float = trial.learn(learner_of(trial))["history"][-1]["valid_map"]
        except Diverged as error:
            run.reporter.log("warning", reason=f"rate {rate:g}: {error}")
            continue
        if found > highest:
            highest = found
            rest = replace(train, rate=rate, epochs=train.epochs - 1)
            learned = Learned.stored(path, epochs=1)
            best = replace(run, recipe=replace(run.recipe, train=rest), start=learned)
    if best is run:
        return run
    rest = best.recipe.train
    if rest.seconds:
        rest = replace(rest, seconds=max(1e-3, rest.seconds - (time.monotonic() - began)))
    return replace(best, recipe=replace(best.recipe, train=rest))


# Choose the weight of the second table of a mixed composition on the validation split, after the fit.
#
# f = (U F x + c U' H x)·(V F y + c V' H y) + …           c = 0: frequent words only

FACTORS = (0.0, 0.25, 0.5, 0.71, 1.0, 1.41, 2.0, 4.0)


def mix(learner: LinearLearner, valid: Validation | None) -> float:
    """Scale the second table in place by the factor of ``FACTORS`` with the highest MAP.

    Args:
        learner: a finished learner.
        valid: the validation queries.

    Returns:
        The factor; the smallest of equally good ones. Without validation queries, 1.
    """
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
    for part, start in zip(parts, fitted, strict=True):
        part[...] = start * np.float32(factor)
