"""Go on with a blend: the last fit of its parts, started at those of a bundle, with the bundle's weights.

The weights are not chosen again. The bundle has learned the judgements that a choice would have to set aside, so all
learned parts would look better than they are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.errors import TrainingError
from fullrank.models.contract import Model
from fullrank.models.language import LanguageModel
from fullrank.models.mixed import NO_LIFT, Lift
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.systems.blend.trial import learns, part_run
from fullrank_trainer.systems.parts import Fit, add_up
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.loop import TrainingRun


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
