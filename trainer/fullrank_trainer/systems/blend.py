"""Fit a blend f = Σ_m w_m f_m of recipes.

1. Set a tenth of the judged documents aside, and fit every part without their judgements. Set queries aside too, and
   clicks on other queries where judgements are clicks (``hold_out``).
2. Choose the weights by the quality on known queries, new queries and cold documents. Choose in the same way what
   documents without a judgement get on top.
3. If documents are the queries, choose weights for typed text by queries made of the documents (``Typed``).
4. Put the judgements back and fit the parts that have a weight once more, with what validation chose. A part whose
   matrices read no judgement goes on from its first fit if there is no time to start anew. With ``learn_valid`` the
   last fits also learn the queries of the validation split, which have chosen by then.

After a warm start only the last fit is made (``warm``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.errors import TrainingError
from fullrank.measures import Float64
from fullrank.models.contract import Model
from fullrank.models.language import LanguageModel
from fullrank.models.mixed import NO_LIFT, Lift
from fullrank_trainer.features.fields import titles_of
from fullrank_trainer.features.pairs import judged_pairs
from fullrank_trainer.recipes.recipe import Recipe, load_recipe
from fullrank_trainer.systems.blend_weights import PartScores, Scored, Typed, choose, lift_unjudged
from fullrank_trainer.systems.memory import BESIDE_BM25, LINKS, MEMORY, POPULARITY
from fullrank_trainer.systems.mentions import MENTIONS
from fullrank_trainer.systems.mixed import Fit, add_up, load_part, validate_parts
from fullrank_trainer.systems.rules import require, validate_without_hashing
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import BASELINES, FittedModel, Learned, ResultRow
from fullrank_trainer.training.loop import TrainingRun
from fullrank_trainer.training.validation import CALIBRATING, HoldOut, Validation, hold_out

# Of memory and popularity beside BM25 where no clicks can choose the weights: shares of ln(1 + documents), which idf
# grows with.
_MEMORY_SHARE, _POPULARITY_SHARE = 3 / 4, 1 / 8
_LEAST_COLD = 0.02  # share of cold documents in the quality, however rarely people click new ones


def validate(validate_part: Callable[[Recipe], None], recipe: Recipe) -> None:
    """Check the settings of a blend and of its parts. Raises RecipeError."""
    validate_without_hashing(recipe)
    for key in ("recipes", "linked"):
        texts: tuple[str, ...] = getattr(recipe.blend, key)
        names = {text.split()[0] for text in texts if text.strip()}
        require(len(texts) >= 2, f"blend.{key}: name two recipes or more")
        require(len(names) == len(texts), f"blend.{key}: name every recipe once")
        validate_parts(validate_part, recipe, f"blend.{key}", texts)


def fit(fit_part: Fit, context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Fit a blend.

    Args:
        fit_part: fits one recipe.
        context: the collection and cached results.
        recipe: names the parts.
        run: settings of this fit.

    Raises:
        RecipeError, TrainingError: a part cannot be fitted.
    """
    began = time.monotonic()
    linked = context.corpus.collection.documents_are_queries
    texts = recipe.blend.linked if linked else recipe.blend.recipes
    parts = [load_part(text, recipe) for text in texts]
    if not titles_of(context.corpus.sources):
        parts = [part for part in parts if part.model.fields != "titles"]
    elif recipe.blend.mentions and linked:
        parts.append(MENTIONS)
    alone, pairs = parts[:1], context.corpus.pairs
    # Without judgements the clicks of a service will be the first.
    has_clicks = not len(pairs) or (pairs.weights is not None and not linked)
    if recipe.blend.clicks and has_clicks:
        alone += [MEMORY, POPULARITY]
        parts += alone[1:]
    elif recipe.blend.clicks and linked:
        parts.append(LINKS)
    final_context = _last_context(context, recipe, run)
    if final_context is not context:
        run = replace(run, fingerprint=f"{run.fingerprint} learn-valid")
    if run.warm is not None:
        return go_on(fit_part, final_context, parts, recipe, run)
    if not len(context.corpus.pairs):
        return _first_alone(fit_part, context, alone, run, "no pair is judged to learn from")
    held = hold_out(context.corpus, recipe.train.valid_queries)
    if not held.is_measurable:
        reason = "too few queries are judged to measure a blend"
        return _first_alone(fit_part, context, alone, run, reason)
    trial_context = context.with_corpus(held.corpus)
    seconds = recipe.auto.seconds / max(1, sum(map(learns, parts)))
    scored = _no_scores(held, context, len(parts), recipe.auto.cold)
    _log_plan(run, parts, recipe.auto.seconds)
    typed = Typed.empty(context, len(parts)) if linked else None
    trials = []
    for i, part in enumerate(parts):
        own = part_run(run, part, f"trial-{i}")
        rates = recipe.blend.linked_rates
        trial, fitted = try_part(fit_part, trial_context, own, held.warm, rates, seconds)
        trials.append(trial)
        for scores in scored.measured:
            scores.score(i, fitted)
        if typed is not None:
            typed.score(i, fitted)
        # The tables of a model are the largest arrays, so the next part does not start before they are dropped.
        del fitted
        context.files.release()
    weights = choose(scored)
    # A first part that serves alone learned nothing that documents without a judgement lack.
    lift = NO_LIFT
    if weights[0] != 1:
        lift = lift_unjudged(scored, weights, recipe.auto.most_lost, typed is None)
    if typed is not None and lift != NO_LIFT:
        lift = typed.allowed(weights, lift, recipe.auto.most_lost)
    _log(run, parts, weights, lift)
    measured = [(scores, weights, lift) for scores in scored.measured]
    text_weights, scale = weights, 1.0
    if typed is not None:
        text_weights, scale = typed.choose(weights, lift)
        every = np.append(text_weights, scale)
        measured.append((typed.scores, every, NO_LIFT))
        measured += [(scores, every, NO_LIFT) for scores in typed.by_kind()]
        names = [part.name for part in parts]
        chosen = dict(zip(names, text_weights.round(4).tolist(), strict=True))
        run.reporter.log("typed blend", **chosen, **typed.counts)
    comparison = _compare(fit_part, trial_context, recipe, run, parts, measured)
    del scored, measured
    trial_context.clear_cache()
    context.files.release()
    used = np.flatnonzero(weights + text_weights)
    for i in np.flatnonzero(weights + text_weights == 0).tolist():
        final_context.forget_features(parts[i].model)
    finals = []
    learning = [i for i in used.tolist() if learns(parts[i])]
    for i in used.tolist():
        left = None
        if recipe.auto.seconds and i in learning:
            left = recipe.auto.seconds - (time.monotonic() - began)
            left /= len(learning[learning.index(i) :])
        settled, start = trials[i].last(left)
        own = replace(part_run(run, settled, f"final-{i}"), valid=None, start=start)
        # What the last fit is depends on the time of the trial and on what is left, which differ when it is resumed.
        own = replace(own, may_differ=bool(recipe.auto.seconds))
        final = fit_part(final_context, settled, own)
        finals.append(replace(final, documents=context.files.put_encoded(final.documents)))
        del final
        context.files.release()
    left_out = [
        what
        for i, final in zip(used.tolist(), finals, strict=True)
        if learns(parts[i]) and (what := _left_out(parts[i], trials[i], final.facts))
    ]
    if left_out:
        run.reporter.log(
            "warning",
            reason=f"the time limit of {recipe.auto.seconds:.0f} s left out: {'; '.join(left_out)}. "
            "A longer --time trains them",
        )
    facts = {
        "weights": {parts[i].name: float(weights[i]) for i in used.tolist()},
        "scaled": lift.factor,
        "raised": lift.added,
        "parts": [final.facts for final in finals],
        "trials": [trial.facts for trial in trials],
        "validation": [row.as_dict() for row in comparison],
        "left_out": left_out,
    }
    if typed is not None:
        facts["typed"] = {
            "weights": {parts[i].name: float(text_weights[i]) for i in used.tolist()},
            "scale": scale,
            "queries": dict(typed.counts),
        }
    total = blend_of(finals, facts, lift, final_context.corpus.unjudged)
    return replace(total, comparison=comparison)


def _last_context(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> TrainingContext:
    """Return what the last fits learn: with ``learn_valid``, validation queries too, but for those of the floor."""
    if not recipe.blend.learn_valid or run.valid is None:
        return context
    corpus = context.corpus
    learned = set(run.valid.rows.tolist()) - set(run.valid.spread(CALIBRATING).rows.tolist())
    valid = judged_pairs(corpus.collection, run.valid.split)
    valid = valid.keep(lambda query, rows: np.full(len(rows), query in learned))
    pairs = corpus.pairs.with_queries_of(valid)
    return context.with_corpus(replace(corpus, pairs=pairs, cache={}))


def _first_alone(
    fit_part: Fit,
    context: TrainingContext,
    parts: Sequence[Recipe],
    run: TrainingRun,
    reason: str,
) -> FittedModel:
    """Fit the first part when it cannot be compared with a blend, and those that count clicks."""
    run.reporter.log("warning", reason=f"{reason}, so {parts[0].name} serves alone")
    fitted = [
        fit_part(context, part, replace(part_run(run, part, f"final-{i}"), valid=None))
        for i, part in enumerate(parts)
    ]
    scale = math.log1p(len(context.corpus.collection.document_ids))
    weights = [1.0, scale * _MEMORY_SHARE, scale * _POPULARITY_SHARE][: len(parts)]
    facts: dict[str, Any] = {
        "weights": {part.name: weight for part, weight in zip(parts, weights, strict=True)},
        "parts": [part.facts for part in fitted],
        "trials": [],
        "validation": [],
    }
    if len(parts) == 1:
        return replace(fitted[0], facts=facts, settled=None)
    return add_up(fitted, weights, facts)


def _no_scores(held: HoldOut, context: TrainingContext, parts: int, share: float) -> Scored:
    """Make room for the scores of the parts for the queries set aside."""
    unjudged, files = context.corpus.unjudged, context.files
    # The last fit judges the documents set aside again, so other queries will meet them as judged documents.
    known, warm = (
        None if column is None else PartScores.empty(column, parts, unjudged, files)
        for column in (held.known, held.warm)
    )
    cold = None
    if held.cold is not None:
        cold = PartScores.empty(held.cold, parts, held.corpus.unjudged, files)
    return Scored(warm, cold, min(share, max(_LEAST_COLD, held.fresh)), known, held.repeated)


def _log_plan(run: TrainingRun, parts: Sequence[Recipe], seconds: float) -> None:
    planned = {
        part.name: f"{part.train.members} fits of {part.train.epochs} epochs"
        for part in parts
        if learns(part)
    }
    run.reporter.log("blend plan", **planned, most_s=seconds or None)


def _left_out(part: Recipe, trial: Trial, final: dict[str, Any]) -> str:
    """Return what the time limit left out of the fits of a part; empty if nothing."""
    members = final.get("members", [final])
    fits, planned = len(members), part.train.members
    found = [f"{planned - fits} of {planned} fits"] if fits < planned else []
    for name, facts in (("the trial", [trial.facts]), ("the last fits", members)):
        if any(epochs := [fact.get("left_out", 0) for fact in facts]):
            found.append(f"{max(epochs)} of {part.train.epochs} epochs of {name}")
    return f"{part.name} {', '.join(found)}" if found else ""


def _log(run: TrainingRun, parts: Sequence[Recipe], weights: Float64, lift: Lift) -> None:
    found = {
        part.name: round(float(weight), 4) for part, weight in zip(parts, weights, strict=True)
    }
    run.reporter.log("blend", **found, scaled=lift.factor, raised=round(lift.added, 4))
    if weights[0] == 1:
        run.reporter.log(
            "warning",
            reason=f"nothing is better than {parts[0].name} by a standard error on validation, so it serves alone",
        )


def _compare(
    fit_part: Fit,
    context: TrainingContext,
    recipe: Recipe,
    run: TrainingRun,
    parts: Sequence[Recipe],
    measured: Sequence[tuple[PartScores, Float64, Lift]],
) -> tuple[ResultRow, ...]:
    """Measure the blend and the baselines on each column, before the judgements set aside are put back."""
    tables = [[(recipe.name, scores.measures(weights, lift))] for scores, weights, lift in measured]
    columns = [scores for scores, _, _ in measured]
    for baseline in map(load_recipe, BASELINES):
        if baseline in parts:  # its scores are there
            alone = parts.index(baseline)
            lines = [scores.measures(np.eye(len(scores.parts))[alone]) for scores in columns]
        else:
            fitted = fit_part(
                context, baseline, part_run(run, baseline, f"baseline-{baseline.name}")
            )
            lines = [scores.of_other(fitted).measures(np.ones(1)) for scores in columns]
            del fitted
            context.forget_features(baseline.model)
        for table, measures in zip(tables, lines, strict=True):
            table.append((baseline.name, measures))
    if {bm25 := load_recipe("bm25"), POPULARITY} <= {*parts}:
        one = np.eye(len(parts))
        mixes = [one[parts.index(bm25)] + w * one[parts.index(POPULARITY)] for w in BESIDE_BM25]
        best = max(mixes, key=lambda mix: float(columns[0].average_precision(mix).mean()))
        for table, scores in zip(tables, columns, strict=True):
            table.append((f"bm25 + {POPULARITY.name}", scores.measures(best)))
    return tuple(
        ResultRow(system, scores.valid.split, len(scores.judgements), measures)
        for scores, table in zip(columns, tables, strict=True)
        for system, measures in table
    )


# The two fits of a part: a trial without the judgements set aside, and the last fit with all of them.


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
