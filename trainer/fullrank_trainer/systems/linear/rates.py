"""Choose the learning rate of the softmax loss on validation: an epoch at each rate, and the best one goes on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from fullrank_trainer.systems.linear.learner import LinearLearner
from fullrank_trainer.training.learned import Learned
from fullrank_trainer.training.loop import Diverged, TrainingRun


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
