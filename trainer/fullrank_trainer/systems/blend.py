"""Fit a blend f = Σ_m w_m f_m of recipes.

1. Hold out a tenth of the judged documents, and some queries. For clicks, also hold out clicks on queries that stay.
2. Fit a trial of every part without what is held out.
3. Choose the weights by the quality on known queries, new queries and cold documents, and how much to raise
   documents without a judgement. If documents are the queries, choose weights for typed text by queries made of the
   documents.
4. Refit the parts that have a weight on all judgements, with what validation chose. A part whose matrices read no
   judgement goes on from its trial if there is no time to start anew. With ``learn_valid`` these fits also learn the
   clicks of the validation split: the weights are chosen by then.
5. Sum them up.

After a warm start only the refits are made, with the weights of the bundle: it has learned the judgements that a choice
would have to hold out, so all learned parts would look better than they are.
"""

from __future__ import annotations

import math
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
from fullrank_trainer.compiled import clock
from fullrank_trainer.features.corpus import Corpus, relevant_pairs
from fullrank_trainer.features.fields import titles_of
from fullrank_trainer.recipes.recipe import Recipe, learns, load_recipe
from fullrank_trainer.recipes.settings import require, setting
from fullrank_trainer.recipes.systems import Cost, System
from fullrank_trainer.systems.blend_weights import (
    PartScores,
    Scored,
    Typed,
    choose,
    lift_unjudged,
    most_queries,
)
from fullrank_trainer.systems.memory import BESIDE_BM25, LINKS, MEMORY, POPULARITY
from fullrank_trainer.systems.mentions import MENTIONS
from fullrank_trainer.systems.mixed import add_up, load_part, validate_parts
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import (
    BASELINES,
    LEARNED_VALID,
    FittedModel,
    Learned,
    ResultRow,
)
from fullrank_trainer.training.loop import TrainingRun
from fullrank_trainer.training.validation import CALIBRATING, HoldOut, Validation, hold_out

# Weights of memory and popularity beside BM25 where there are too few clicks to choose them, as shares of
# ln(1 + documents): idf grows with it.
_MEMORY_SHARE, _POPULARITY_SHARE = 3 / 4, 1 / 8
_LEAST_COLD = 0.02  # share of cold documents in the quality, however rarely people click new ones
# Share of the time limit for the trials of the parts that learn in epochs: more if the last fits continue from trials,
# because such fits take less.
_SHARE, _CONTINUED_SHARE = 0.4, 0.6
# Epochs of a last fit that continues from a trial: enough to learn the judgements that were set aside.
_LAST_EPOCHS = 2


@dataclass(frozen=True)
class BlendSettings:
    """A sum of several recipes; validation on clicked and on never clicked documents chooses the weights."""

    # recipes; overrides of each follow its name after spaces. The first is served if the sum is no better
    recipes: tuple[str, ...] = setting(("bm25", "clicked"))
    # the same where the documents are the queries: whole documents have too many words for word translation,
    # and titles of linking documents as clicked text lower the quality
    linked: tuple[str, ...] = setting(("bm25", "fielded"))
    # where documents are the queries and have titles, one more part: the documents whose titles a text says
    mentions: bool = setting(False)
    # where judgements have weights, which are clicks, two more parts: what people clicked after the same query, and how
    # often they clicked a document at all; where documents are the queries, what those link to that link alike
    clicks: bool = setting(False)
    # learning rates of a part whose last fit can go on from the first: each is tried for an epoch, and the best
    # one on validation goes on; empty: the part's own
    linked_rates: tuple[float, ...] = setting((), high=1000)
    # where judgements have weights, which are clicks: after the choice, memory and popularity also count the clicks of
    # valid, and the other parts learn all but the 200 queries of it that calibrate the floor
    learn_valid: bool = setting(True)


def validate(recipe: Recipe) -> None:
    for key in ("recipes", "linked"):
        texts: tuple[str, ...] = getattr(recipe.own, key)
        names = {text.split()[0] for text in texts if text.strip()}
        require(len(texts) >= 2, f"blend.{key}: name two recipes or more")
        require(len(names) == len(texts), f"blend.{key}: name every recipe once")
        validate_parts(recipe, f"blend.{key}", texts)


def parts_of(recipe: Recipe, documents_are_queries: bool) -> tuple[str, tuple[str, ...]]:
    """Return the setting that lists the parts, and their texts."""
    key = "linked" if documents_are_queries else "recipes"
    return f"blend.{key}", getattr(recipe.own, key)


@dataclass(frozen=True, eq=False)
class Final:
    """A part of the sum; without a trial after a warm start, and where nothing can be measured.

    ``run`` returns the run of the last fit, given one of the part and the seconds for it: negative if the time is over,
    None without a limit.
    """

    number: int
    part: Recipe
    run: Callable[[TrainingRun, float | None], TrainingRun]
    trial: Trial | None = None


@dataclass(frozen=True, eq=False)
class Choice:
    """The parts of the sum, and how to add them up; ``facts`` are for the model card."""

    finals: Sequence[Final]
    facts: dict[str, Any]
    lift: Lift = NO_LIFT
    comparison: tuple[ResultRow, ...] = ()


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    began = clock()
    parts, alone = _parts(context, recipe)
    last, counted = context, context
    if learned := _learned_of_valid(context, recipe, run):
        last, counted = (context.with_corpus(corpus) for corpus in learned)
        run = replace(run, fingerprint=f"{run.fingerprint} learn-valid")
    has_pairs = len(context.corpus.pairs) > 0
    if run.warm is not None:
        choice = _from_bundle(parts, recipe, run)
    elif not has_pairs:
        choice = _first_alone(
            context, alone, run, "there are no clicks or judgements to learn from"
        )
    elif not (held := hold_out(context.corpus, recipe.train.valid_queries)).is_measurable:
        reason = "there are too few clicks or judgements to compare models by"
        choice = _first_alone(context, alone, run, reason)
    else:
        choice = _choose_by_trials(context, held, parts, recipe, run)
    fitted = _refit(last, counted, recipe, run, began, choice.finals)
    facts = choice.facts | {"parts": [final.facts for final in fitted]}
    if learned:
        facts[LEARNED_VALID] = len(counted.corpus.pairs.rows) - len(context.corpus.pairs.rows)
    if choice.comparison:
        facts["left_out"] = _left_out(choice.finals, fitted, recipe.auto.seconds, run)
    total = blend_of(fitted, facts, choice.lift, last.corpus.unjudged)
    return replace(total, comparison=choice.comparison)


def _parts(context: TrainingContext, recipe: Recipe) -> tuple[list[Recipe], list[Recipe]]:
    """Return all parts, and those that serve where nothing can be measured: the first, and those that count clicks."""
    linked, pairs = context.corpus.collection.documents_are_queries, context.corpus.pairs
    parts = [load_part(text, recipe) for text in parts_of(recipe, linked)[1]]
    if not titles_of(context.corpus.sources):
        parts = [part for part in parts if part.model.fields != "titles"]
    elif recipe.own.mentions and linked:
        parts.append(MENTIONS)
    alone = parts[:1]
    # Without judgements the clicks of a service will be the first.
    has_clicks = not len(pairs) or (pairs.weights is not None and not linked)
    if recipe.own.clicks and has_clicks:
        alone += [MEMORY, POPULARITY]
        parts += alone[1:]
    elif recipe.own.clicks and linked:
        parts.append(LINKS)
    return parts, alone


def _learned_of_valid(
    context: TrainingContext, recipe: Recipe, run: TrainingRun
) -> tuple[Corpus, Corpus] | None:
    """Return what the last fits learn and what memory and popularity count; None: only the training split.

    Queries that calibrate the floor are only counted, because calibration leaves memory aside.
    """
    corpus = context.corpus
    if not recipe.own.learn_valid or run.valid is None or corpus.pairs.weights is None:
        return None
    valid = relevant_pairs(corpus.collection, run.valid.split)
    calibrates = np.isin(valid.owners, run.valid.spread(CALIBRATING).rows)
    learned, counted = (
        replace(corpus, pairs=corpus.pairs.with_queries_of(pairs), cache={})
        for pairs in (valid.where(~calibrates), valid)
    )
    return learned, counted


def _choose_by_trials(
    context: TrainingContext,
    held: HoldOut,
    parts: Sequence[Recipe],
    recipe: Recipe,
    run: TrainingRun,
) -> Choice:
    trial_context = context.with_corpus(held.corpus)
    seconds = recipe.auto.seconds / max(1, sum(map(learns, parts)))
    # The last fit judges the documents held out again, so other queries will meet them as judged documents.
    judged, unjudged = context.corpus.unjudged, held.corpus.unjudged
    known, warm, cold = (
        None if column is None else PartScores.empty(column, len(parts), among, context.files)
        for column, among in ((held.known, judged), (held.warm, judged), (held.cold, unjudged))
    )
    share = min(recipe.auto.cold, max(_LEAST_COLD, held.fresh))
    scored = Scored(warm, cold, share, known, held.repeated)
    planned = {
        part.name: f"{part.train.members} fits of {part.train.epochs} epochs"
        for part in parts
        if learns(part)
    }
    run.reporter.log("blend plan", **planned, most_s=recipe.auto.seconds or None)
    linked = context.corpus.collection.documents_are_queries
    typed = Typed.empty(context, len(parts)) if linked else None
    trials = []
    for i, part in enumerate(parts):
        own = part_run(run, part, f"trial-{i}")
        trial, fitted = try_part(trial_context, own, held.warm, recipe.own.linked_rates, seconds)
        trials.append(trial)
        for scores in scored.measured:
            scores.score(i, fitted)
        if typed is not None:
            typed.score(i, fitted)
        # The tables of a model are the largest arrays, so the next part does not start before they are dropped.
        del fitted
        context.files.release()
    weights, lift, most_lost = choose(scored), NO_LIFT, recipe.auto.most_lost
    # A first part that serves alone learned nothing that documents without a judgement lack.
    if weights[0] != 1:
        lift = lift_unjudged(scored, weights, most_lost, typed is None)
    if typed is not None and lift != NO_LIFT:
        lift = typed.allowed(weights, lift, most_lost)
    found = {part.name: round(float(w), 4) for part, w in zip(parts, weights, strict=True)}
    run.reporter.log("blend", **found, scaled=lift.factor, raised=round(lift.added, 4))
    if weights[0] == 1:
        run.reporter.say(
            "warning",
            f"nothing ranks better than {parts[0].name} by a standard error on validation, so {parts[0].name} "
            "serves alone; more clicks or judgements may change that",
        )
    measured = [(scores, weights, lift) for scores in scored.measured]
    every = weights
    facts: dict[str, Any] = {}
    if typed is not None:
        text_weights, scale = typed.choose(weights, lift)
        for_typed = np.append(text_weights, scale)
        measured.append((typed.scores, for_typed, NO_LIFT))
        measured += [(scores, for_typed, NO_LIFT) for scores in typed.by_kind()]
        names = [part.name for part in parts]
        chosen = dict(zip(names, text_weights.round(4).tolist(), strict=True))
        run.reporter.log("typed blend", **chosen, **typed.counts)
        every = weights + text_weights
        facts["typed"] = {
            "weights": {
                parts[i].name: float(text_weights[i]) for i in np.flatnonzero(every).tolist()
            },
            "scale": scale,
            "queries": dict(typed.counts),
        }
    comparison = _compare(trial_context, recipe, run, parts, measured)
    del scored, measured
    trial_context.clear_cache()
    context.files.release()
    used = np.flatnonzero(every).tolist()
    facts |= {
        "weights": {parts[i].name: float(weights[i]) for i in used},
        "scaled": lift.factor,
        "raised": lift.added,
        "trials": [trial.facts for trial in trials],
        "validation": [row.as_dict() for row in comparison],
    }

    def last_run(trial: Trial) -> Callable[[TrainingRun, float | None], TrainingRun]:
        def last(own: TrainingRun, left: float | None) -> TrainingRun:
            settled, start = trial.last(left)
            # What the last fit is depends on the time of the trial and on what is left, which differ when it is
            # resumed.
            return replace(own, recipe=settled, start=start, may_differ=bool(recipe.auto.seconds))

        return last

    finals = [Final(i, parts[i], last_run(trials[i]), trials[i]) for i in used]
    return Choice(finals, facts, lift, comparison)


def _compare(
    context: TrainingContext,
    recipe: Recipe,
    run: TrainingRun,
    parts: Sequence[Recipe],
    measured: Sequence[tuple[PartScores, Float64, Lift]],
) -> tuple[ResultRow, ...]:
    """Measure the blend and the baselines on each column, before the judgements held out are put back."""
    tables = [[(recipe.name, scores.measures(weights, lift))] for scores, weights, lift in measured]
    columns = [scores for scores, _, _ in measured]
    for baseline in map(load_recipe, BASELINES):
        if baseline in parts:  # its scores are there
            alone = parts.index(baseline)
            lines = [scores.measures(np.eye(len(scores.parts))[alone]) for scores in columns]
        else:
            own = part_run(run, baseline, f"baseline-{baseline.name}")
            fitted = context.fit(baseline, own)
            lines = [scores.of_other(fitted).measures(np.ones(1)) for scores in columns]
            del fitted
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


def _first_alone(
    context: TrainingContext, parts: Sequence[Recipe], run: TrainingRun, reason: str
) -> Choice:
    """Let the first part serve when it cannot be compared with a blend, and those that count clicks."""
    counts = "; clicks are counted, not learned" if parts[1:] else ""
    run.reporter.say(
        "warning",
        f"{reason}, so {parts[0].name} serves{counts}. Train again when there are more",
    )
    scale = math.log1p(len(context.corpus.collection.document_ids))
    weights = [1.0, scale * _MEMORY_SHARE, scale * _POPULARITY_SHARE]
    names = [part.name for part in parts]
    facts = {"weights": dict(zip(names, weights, strict=False)), "trials": [], "validation": []}
    return Choice([Final(i, part, lambda own, _: own) for i, part in enumerate(parts)], facts)


def _from_bundle(parts: Sequence[Recipe], recipe: Recipe, run: TrainingRun) -> Choice:
    """Take the weights of the bundle that training goes on from. Raises TrainingError if it has other parts."""
    warm = run.warm
    assert warm is not None
    known: dict[str, float] = warm.facts["weights"]
    used = [part for part in parts if part.name in known]
    if not len(used) == len(known) == len(warm.models):
        raise TrainingError(
            f"{warm.version} is a sum of {', '.join(known)}, and {recipe.name} has other parts here; "
            "train without --from"
        )
    weights = {part.name: float(known[part.name]) for part in used}
    run.reporter.log("blend", **weights, warm_start=warm.version)
    lift = Lift(float(warm.facts.get("scaled", 1.0)), float(warm.facts.get("raised", 0.0)))
    facts = {"weights": weights, "scaled": lift.factor, "raised": lift.added, "warm": warm.version}
    if "typed" in warm.facts:
        facts["typed"] = warm.facts["typed"]
    finals = []
    starts = warm.parts([part.model.bias for part in used])
    for i, (part, start) in enumerate(zip(used, starts, strict=True)):
        settled = _settled(part, start.model)

        def last(
            own: TrainingRun, left: float | None, settled: Recipe = settled, start: Any = start
        ) -> TrainingRun:
            if left is not None:
                settled = settled.with_train(seconds=max(1.0, left))
            return replace(own, recipe=settled, warm=start)

        finals.append(Final(i, part, last))
    return Choice(finals, facts, lift)


def _settled(part: Recipe, model: Model) -> Recipe:
    """Return a part with what validation chose for the model of the bundle."""
    if not isinstance(model, LanguageModel):
        return part
    settings = model.settings
    chosen = replace(
        part.own,
        stem=settings.get("stem", "none"),
        lambda1=(float(settings["lambda1"]),),
        lambda2=(float(settings["lambda2"]),),
    )
    return replace(part, own=chosen)


def _refit(
    context: TrainingContext,
    counted: TrainingContext,
    recipe: Recipe,
    run: TrainingRun,
    began: float,
    finals: Sequence[Final],
) -> list[FittedModel]:
    """Fit the parts on all judgements; those that learn share the time that is left. Memory counts ``counted``."""
    found, learning = [], sum(learns(final.part) for final in finals)
    for final in finals:
        left = None
        if recipe.auto.seconds and learns(final.part):
            left = (recipe.auto.seconds - (clock() - began)) / learning
            learning -= 1
        own = replace(part_run(run, final.part, f"final-{final.number}"), valid=None)
        own = final.run(own, left)
        of = counted if final.part.system == MEMORY.system else context
        fitted = of.fit(own.recipe, own)
        found.append(replace(fitted, documents=context.files.put_encoded(fitted.documents)))
        del fitted
        context.files.release()
    return found


def _left_out(
    finals: Sequence[Final], fitted: Sequence[FittedModel], seconds: float, run: TrainingRun
) -> list[str]:
    """Return what the time limit left out of the fits of each part, and warn about it."""
    found = []
    for final, model in zip(finals, fitted, strict=True):
        if not learns(final.part) or final.trial is None:
            continue
        train = final.part.train
        members = model.facts.get("members", [model.facts])
        lacks = []
        if len(members) < train.members:
            lacks.append(f"{train.members - len(members)} of {train.members} fits")
        for name, facts in (("the trial", [final.trial.facts]), ("the last fits", members)):
            if any(epochs := [fact.get("left_out", 0) for fact in facts]):
                lacks.append(f"{max(epochs)} of {train.epochs} epochs of {name}")
        if lacks:
            found.append(f"{final.part.name} {', '.join(lacks)}")
    if found:
        run.reporter.say(
            "warning",
            f"the time limit of {seconds:.0f} s left out {'; '.join(found)}; the model may rank better with "
            "a longer --time",
        )
    return found


def blend_of(
    parts: Sequence[FittedModel],
    facts: dict[str, Any],
    lift: Lift,
    unjudged: npt.NDArray[np.bool_],
) -> FittedModel:
    """Return the blend of some parts; ``facts`` and ``lift`` are those of a Choice."""
    weights, typed = list(facts["weights"].values()), facts.get("typed")
    if typed is not None and (len(parts) > 1 or typed["scale"] != 1):
        scale = typed["scale"]
        lift = lift._replace(added=scale * lift.added)
        scaled = [scale * weight for weight in weights]
        return add_up(parts, list(typed["weights"].values()), facts, lift, unjudged, scaled)
    if len(parts) == 1 and lift == NO_LIFT:
        return replace(parts[0], facts=facts, settled=None)
    return add_up(parts, weights, facts, lift, unjudged)


@dataclass(frozen=True, eq=False)
class Trial:
    """The first fit of a part, with the learning rate that was chosen; the fitted model is scored and dropped."""

    part: Recipe
    facts: dict[str, Any]
    settled: Recipe | None
    learned: Learned | None
    seconds: float

    def last(self, left: float | None) -> tuple[Recipe, Learned | None]:
        """Return the recipe of the last fit, and where it goes on from; None: it starts anew."""
        if not learns(self.part):
            return self.settled or self.part, None
        train, learned = self.part.train, self.learned
        seconds = 0.0 if left is None else max(1.0, left)
        earlier = int(self.facts.get("rate_epochs", 0))  # chose the rate, before the history
        if learned is not None:
            best: int = self.facts["best_epoch"]
            untaken = train.epochs - earlier - learned.epochs
            cut_short = untaken > 0 and learned.epochs - best < train.patience
            # Or the time does not suffice for a new fit.
            if cut_short or (left is not None and self.seconds * best / learned.epochs > left):
                epochs = max(_LAST_EPOCHS, untaken)
                return self.part.with_train(epochs=epochs, seconds=seconds, members=1), learned
        settled, members = self.settled or self.part, train.members
        if left is not None:
            members = max(1, min(members, int(left / max(self.seconds, 1e-3))))
        epochs = settled.train.epochs + earlier
        return settled.with_train(epochs=epochs, seconds=seconds, members=members), None


def try_part(
    context: TrainingContext,
    run: TrainingRun,
    valid: Validation | None,
    rates: Sequence[float],
    seconds: float,
) -> tuple[Trial, FittedModel]:
    """Fit a part for the first time, without the judgements held out.

    ``rates`` are chosen from if the last fit can go on from this one. ``seconds`` is the time limit of all parts that
    learn in epochs, over their number; 0: no limit.
    """
    began = clock()
    part = run.recipe
    # Members of an average would all go on from the same fit.
    keeps_state = part.train.members == 1 and context.reads_no_judgement(part.model)
    run = replace(run, valid=valid, keeps_state=keeps_state)
    if learns(part):
        share = _CONTINUED_SHARE if keeps_state else _SHARE
        recipe = part.with_train(seconds=share * seconds, members=1)
        run = replace(run, recipe=recipe, rates=tuple(rates) if keeps_state else ())
    fitted = context.fit(run.recipe, run)
    part, taken = part.with_train(rate=fitted.facts.get("rate", part.train.rate)), clock()
    return Trial(part, fitted.facts, fitted.settled, fitted.learned, taken - began), fitted


def part_run(run: TrainingRun, part: Recipe, name: str) -> TrainingRun:
    """Return the run of one fit of a part, with a checkpoint and a label of its own."""
    path = run.path.with_name(f"{run.path.stem}-{name}.npz")
    fingerprint = f"{run.fingerprint} {name}"
    return replace(
        run, recipe=part, path=path, fingerprint=fingerprint, label=f"{name} {part.name} "
    )


def cost(corpus: Corpus, recipe: Recipe) -> Cost:
    """Return the size of the scores of all parts, warm and cold; each part has a trial and a last fit."""
    documents = len(corpus.collection.documents)
    parts = parts_of(recipe, corpus.collection.documents_are_queries)[1]
    queries = min(recipe.train.valid_queries or documents, most_queries(documents))
    return Cost(scratch=2 * len(parts) * queries * documents * 4, fits=2)


SYSTEM = System("blend", fit, validate, "blend", BlendSettings, parts_of, reorders=True, cost=cost)
