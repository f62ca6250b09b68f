"""The two fits of a part: a trial without the judgements set aside, and the last fit with all of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.errors import TrainingError
from fullrank.models.contract import Model
from fullrank.models.language import LanguageModel
from fullrank.models.mixed import NO_LIFT, Lift
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.systems.parts import Fit, add_up
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel, Learned
from fullrank_trainer.training.loop import TrainingRun
from fullrank_trainer.training.validation import Validation

# Of the time limit, for the trials of the parts that learn in epochs. A last fit that goes on needs less.
_SHARE = 0.4
_CONTINUED_SHARE = 0.6
# Of a last fit that goes on from a trial: enough to learn the judgements that are put back.
_LAST_EPOCHS = 2


@dataclass(frozen=True, eq=False)
class Trial:
    """The first fit of a part.

    Attributes:
        part: as it is listed, with the learning rate that was chosen.
        facts, settled, learned: of the fitted model, which is scored and dropped.
        seconds: time of the trial.
    """

    part: Recipe
    facts: dict[str, Any]
    settled: Recipe | None
    learned: Learned | None
    seconds: float

    @property
    def earlier(self) -> int:
        """The epochs that chose the rate, before those of the history."""
        return int(self.facts.get("rate_epochs", 0))

    def last(self, left: float | None) -> tuple[Recipe, Learned | None]:
        """Return the recipe of the last fit, and where it goes on from; None: it starts anew.

        Args:
            left: time for it, seconds, negative if the time is over; None: no limit.
        """
        if not learns(self.part):
            return self.settled or self.part, None
        seconds = 0.0 if left is None else max(1.0, left)
        learned = self.learned
        if learned is not None and self._goes_on(learned, left):
            untaken = self.part.train.epochs - self.earlier - learned.epochs
            part = _with_epochs(self.part, max(_LAST_EPOCHS, untaken))
            return _limited(part, seconds, 1), learned
        settled = self.settled or self.part
        settled = _with_epochs(settled, settled.train.epochs + self.earlier)
        members = self.part.train.members
        if left is not None:
            members = max(1, min(members, int(left / max(self.seconds, 1e-3))))
        return _limited(settled, seconds, members), None

    def _goes_on(self, learned: Learned, left: float | None) -> bool:
        """Return whether time cut the trial short or does not suffice for a new fit."""
        best: int = self.facts["best_epoch"]
        is_stale = learned.epochs - best >= self.part.train.patience
        cut_short = self.earlier + learned.epochs < self.part.train.epochs and not is_stale
        anew = self.seconds * best / learned.epochs
        return cut_short or (left is not None and anew > left)


def try_part(
    fit_part: Fit,
    context: TrainingContext,
    run: TrainingRun,
    valid: Validation | None,
    rates: Sequence[float],
    seconds: float,
) -> tuple[Trial, FittedModel]:
    """Fit a part for the first time.

    Args:
        fit_part: fits one recipe.
        context: the collection without the judgements set aside.
        run: of the part.
        valid: decides when to stop.
        rates: learning rates to choose from, if the last fit can go on from this one.
        seconds: time limit of all parts together that learn in epochs, over their number; 0: no limit.
    """
    began = time.monotonic()
    part = run.recipe
    # Members of an average would all go on from the same fit.
    keeps_state = part.train.members == 1 and context.reads_no_judgement(part.model)
    run = replace(run, valid=valid, keeps_state=keeps_state)
    if learns(part):
        share = _CONTINUED_SHARE if keeps_state else _SHARE
        run = replace(run, recipe=_limited(part, share * seconds, 1))
        run = replace(run, rates=tuple(rates) if keeps_state else ())
    fitted = fit_part(context, run.recipe, run)
    part = replace(part, train=replace(part.train, rate=fitted.facts.get("rate", part.train.rate)))
    seconds_taken = time.monotonic() - began
    return Trial(part, fitted.facts, fitted.settled, fitted.learned, seconds_taken), fitted


def part_run(run: TrainingRun, part: Recipe, name: str) -> TrainingRun:
    """Return the run of one fit of a part, with a checkpoint and a label of its own."""
    path = run.path.with_name(f"{run.path.stem}-{name}.npz")
    fingerprint = f"{run.fingerprint} {name}"
    return replace(
        run, recipe=part, path=path, fingerprint=fingerprint, label=f"{name} {part.name} "
    )


def learns(part: Recipe) -> bool:
    """Return whether a part learns in epochs, so that a time limit holds."""
    return part.system == "linear" and part.train.loss != "none"


def _limited(part: Recipe, seconds: float, members: int) -> Recipe:
    return replace(part, train=replace(part.train, seconds=seconds, members=members))


def _with_epochs(part: Recipe, epochs: int) -> Recipe:
    return replace(part, train=replace(part.train, epochs=epochs))


# Go on with a blend: the last fit of its parts, started at those of a bundle, with the bundle's weights.
#
# The weights are not chosen again. The bundle has learned the judgements that a choice would have to set aside, so
# all learned parts would look better than they are.


def go_on(
    fit_part: Fit,
    context: TrainingContext,
    parts: Sequence[Recipe],
    recipe: Recipe,
    run: TrainingRun,
) -> FittedModel:
    """Fit the parts that have a weight.

    Args:
        fit_part: fits one recipe.
        context: the collection.
        parts: all parts of the blend.
        recipe: the blend.
        run: with a warm start.

    Raises:
        TrainingError: the bundle has other parts, or a part cannot be fitted.
    """
    began, warm = time.monotonic(), run.warm
    assert warm is not None
    known: dict[str, float] = warm.facts["weights"]
    used = [part for part in parts if part.name in known]
    if not len(used) == len(known) == len(warm.models):
        raise TrainingError(
            f"{warm.version} is a sum of {', '.join(known)}, and {recipe.name} has other parts here; "
            "train without --from"
        )
    weights = {part.name: float(known[part.name]) for part in used}
    starts = warm.parts([part.model.bias for part in used])
    run.reporter.log("blend", **weights, warm_start=warm.version)
    finals = []
    learning = [part.name for part in used if learns(part)]
    for i, (part, start) in enumerate(zip(used, starts, strict=True)):
        settled = _settled(part, start.model)
        if recipe.auto.seconds and part.name in learning:
            left = recipe.auto.seconds - (time.monotonic() - began)
            left = max(1.0, left / len(learning[learning.index(part.name) :]))
            settled = replace(settled, train=replace(settled.train, seconds=left))
        own = replace(part_run(run, settled, f"final-{i}"), valid=None, warm=start)
        final = fit_part(context, settled, own)
        finals.append(replace(final, documents=context.files.put_encoded(final.documents)))
        del final
        context.files.release()
    lift = Lift(float(warm.facts.get("scaled", 1.0)), float(warm.facts.get("raised", 0.0)))
    facts = {
        "weights": weights,
        "scaled": lift.factor,
        "raised": lift.added,
        "parts": [final.facts for final in finals],
        "warm": warm.version,
    }
    if "typed" in warm.facts:
        facts["typed"] = warm.facts["typed"]
    return blend_of(finals, facts, lift, context.corpus.unjudged)


def blend_of(
    parts: Sequence[FittedModel],
    facts: dict[str, Any],
    lift: Lift,
    unjudged: npt.NDArray[np.bool_],
) -> FittedModel:
    """Return the blend of some parts.

    Args:
        parts: the models.
        facts: for the model card: ``weights``, and ``typed`` if typed text has weights of its own.
        lift: of unjudged documents, in the score of ``weights``.
        unjudged: bool (documents,).
    """
    weights, typed = list(facts["weights"].values()), facts.get("typed")
    if typed is not None and (len(parts) > 1 or typed["scale"] != 1):
        scale = typed["scale"]
        lift = lift._replace(added=scale * lift.added)
        scaled = [scale * weight for weight in weights]
        return add_up(parts, list(typed["weights"].values()), facts, lift, unjudged, scaled)
    if len(parts) == 1 and lift == NO_LIFT:
        return replace(parts[0], facts=facts, settled=None)
    return add_up(parts, weights, facts, lift, unjudged)


def _settled(part: Recipe, model: Model) -> Recipe:
    """Return a part with what validation chose for the model of the bundle."""
    if not isinstance(model, LanguageModel):
        return part
    settings = model.settings
    chosen = replace(
        part.language,
        stem=settings.get("stem", "none"),
        lambda1=(float(settings["lambda1"]),),
        lambda2=(float(settings["lambda2"]),),
    )
    return replace(part, language=chosen)
