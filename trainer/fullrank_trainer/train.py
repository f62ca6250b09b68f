"""Train a bundle from a collection.

load recipe   ``settings_of``, ``validate``
read          ``read_collection``
count         ``Trainer``, which makes the context of all fits
hold out      the validation split; a blend also sets judgements aside (``hold_out``)
fit trials    those of a search, or the parts of a blend
choose        the best trial, or the weights of the parts
refit, sum    the parts of a blend on all judgements (``systems.blend.fit``)
compare       with the baselines on the same queries
write         the bundle and its card
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba

from fullrank.bundle import log_position_of, stream_bundle
from fullrank.bundle.manifest import LogPosition, check_name
from fullrank.errors import CollectionError, TrainingError
from fullrank.progress import Reporter
from fullrank_trainer.card import Sampled, model_card, newest_version
from fullrank_trainer.collection import Collection, count_answered, read_collection
from fullrank_trainer.collection.schema import field_uses
from fullrank_trainer.compiled import announced, clock
from fullrank_trainer.plan import describe, make_plan
from fullrank_trainer.recipes.recipe import Recipe, load_recipe, system_of, validate
from fullrank_trainer.training.checkpoint import training_folder
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import BASELINES, LEARNED_VALID, FittedModel, ResultRow
from fullrank_trainer.training.loop import Distribution, TrainingRun
from fullrank_trainer.training.validation import Validation, validation
from fullrank_trainer.training.warm import WarmStart, settings_of

if TYPE_CHECKING:
    from fullrank_trainer.rerank.decide import Decision


@dataclass(frozen=True, eq=False)
class TrainResult:
    """A written bundle."""

    path: Path
    table: list[ResultRow]
    seconds: float
    recipe: Recipe

    def as_dict(self) -> dict[str, Any]:
        return {
            "bundle": str(self.path),
            "version": self.path.name,
            "seconds": self.seconds,
            "table": [row.as_dict() for row in self.table],
        }


@dataclass(frozen=True, eq=False)
class Candidate:
    """One fitted recipe and its measures on validation; None without a validation split."""

    recipe: Recipe
    fitted: FittedModel
    row: ResultRow | None


MANY = 250
"""Queries of the split valid that make a second stage worth a try unasked."""


def train(
    collection: str | Path,
    out: str | Path,
    name: str,
    *,
    recipe: Recipe | str | Path | None = None,
    overrides: Sequence[str] = (),
    start: Path | None = None,
    seed: int = 1,
    threads: int | None = None,
    resume: bool = False,
    strict: bool = False,
    rerank: bool | None = None,
    exported_from: Path | None = None,
    fields: Sequence[str] | None = None,
    seconds: float | None = None,
    memory: int | None = None,
    distribution: Distribution | None = None,
    reporter: Reporter | None = None,
) -> TrainResult:
    """Train a recipe on a collection and write the bundle out/name/version.

    Args:
        recipe: itself, its name, or the path of a .toml file; by default that of ``start``, or auto.
        overrides: "key=value" settings of the recipe.
        start: a bundle of the same recipe, whose weights training goes on from in a few epochs; by default it starts
            anew.
        threads: of the kernels, and processes that count text; by default all cores. One thread and one seed
            reproduce the same bits.
        resume: continue an interrupted run of the same name, recipe, seed and collection.
        strict: refuse judgements of unknown queries or documents; by default they are skipped and counted.
        rerank: also train a second stage (fullrank_trainer.rerank), and keep it if it gains enough in little time;
            None: do so for a blend that starts anew without a time limit, if LightGBM is installed and the collection
            has queries of its own without weights, MANY of them in valid.
        exported_from: the bundle that the corpus was exported from, if it was.
        fields: the text fields to read, in this order; by default the collection's schema.json and the
            rule of ``fullrank_trainer.collection.schema`` decide.
        seconds: time limit from the call to the written bundle; by default the recipe's own holds for its fits.
        memory: the most memory, bytes, by the estimate of ``fullrank_trainer.plan``; by default any.
        distribution: takes the steps of the fits, and may count the texts; by default this process does.
        reporter: receives progress; by default it prints to stderr.

    Raises:
        CollectionError: the collection cannot be read.
        RecipeError: the recipe is unknown or its settings do not go together.
        TrainingError: there is nothing to learn from, training diverges, it does not fit into ``memory``, or ``start``
            has another recipe.
            Interrupted: Ctrl-C.
        BundleError: the bundle cannot be written.

    Examples:
        >>> result = train("shop", "bundles", "shop", overrides=["auto.seconds=60"])
        >>> result.path
        PosixPath('bundles/shop/shop-20260102t030405z-1a2b3c4d')
    """
    began, started = time.monotonic(), clock()
    # Refuse a bad name or recipe before reading the collection, which may take minutes.
    check_name(name)
    chosen, warm = settings_of(recipe, overrides, start)
    validate(chosen)
    if distribution is not None:
        distribution.validate(chosen)
    log_position = None if exported_from is None else log_position_of(exported_from, name)
    with reporter or Reporter() as reporter, announced(reporter):
        threads = _set_threads(threads)
        source = read_collection(collection, strict=strict, fields=fields)
        sizes = {"documents": len(source.documents), "queries": len(source.query_ids)}
        splits = {"splits": ",".join(source.splits)}
        reporter.log("read", **sizes | splits | source.report.counts())
        reporter.log("fields", **field_uses(source.fields))
        if (skipped := source.report.unknown_remark()) is not None:
            if not any(source.report.judgements.values()):
                raise CollectionError(
                    f"{collection}: no judgement is left to learn from; {skipped}"
                )
            reporter.say("warning", f"{skipped}; --strict refuses them")
        if rerank:
            from fullrank_trainer.rerank.decide import require_queries, unlearned

            require_queries(source)
            chosen = unlearned(chosen, warm)
        elif rerank is None and start is None and seconds is None:
            rerank = _can_gain_by_reordering(source, chosen, reporter)
        if warm is not None and not warm.has_matrix:
            reporter.say("warning", f"{warm.version} learned no matrix, so training starts anew")
            warm = None
        trainer = Trainer(
            source, reporter, Path(out), name, seed, threads, resume, warm, distribution
        )
        with training_folder(trainer.checkpoints):
            chosen = trainer.plan(chosen, started, seconds, memory)
            best = trainer.search(chosen)
            table = trainer.compare(best)
            second = trainer.second_stage(best) if rerank else None
            # There must be memory to write the bundle.
            trainer.context.clear_cache()
            best = replace(best, fitted=best.fitted.in_files(trainer.context.files))
            path = trainer.write(best, table, began, log_position, second)
        reporter.log("written", version=path.name, seconds=time.monotonic() - began)
    return TrainResult(path, table, time.monotonic() - began, best.recipe)


def _can_gain_by_reordering(collection: Collection, recipe: Recipe, reporter: Reporter) -> bool:
    system = system_of(recipe)
    if not system.reorders or collection.queries is None:
        return False
    if collection.weights or "valid" not in collection.splits:
        return False  # where people decide by their clicks, the blend has the counts
    if count_answered(collection.qrels("valid")) < MANY:
        return False
    try:
        import fullrank_trainer.rerank.boosting  # noqa: F401
    except (ImportError, TrainingError):
        reporter.log("second stage", decision="not tried, as LightGBM (extra rerank) is missing")
        return False
    return True


def _set_threads(threads: int | None) -> int:
    """Set the threads of the kernels, at most one a core; return their number."""
    limit: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    most = min(len(os.sched_getaffinity(0)), limit)
    chosen = min(threads or most, most)
    numba.set_num_threads(chosen)
    return chosen


@dataclass(eq=False)
class Trainer:
    """One training command: it counts the collection once and runs all trials on it."""

    collection: Collection
    reporter: Reporter
    out: Path
    name: str
    seed: int
    threads: int
    resume: bool
    warm: WarmStart | None = None
    distribution: Distribution | None = None

    def __post_init__(self) -> None:
        self.checkpoints = self.out / ".training" / self.name
        counting = None if self.distribution is None else self.distribution.counting
        self.context = TrainingContext(
            self.collection, self.reporter, self.seed, self.threads, self.checkpoints, counting
        )
        self.corpus = self.context.corpus
        self.ends: float | None = None
        self._valid: dict[int, Validation | None] = {}

    def plan(
        self, recipe: Recipe, started: float, seconds: float | None, memory: int | None
    ) -> Recipe:
        """Fit a recipe into the limits of ``train``, and report what it takes. ``started`` is of ``clock``.

        Raises TrainingError.
        """
        left = None if seconds is None else seconds - (clock() - started)
        found = make_plan(self.corpus, recipe, self.threads, left, memory)
        if found.limit:
            self.ends = clock() + found.limit
        facts = dict(describe(found))
        if self.warm is not None:
            del facts["seconds"]  # of a training that starts anew
        self.reporter.log("plan", **facts)
        return found.recipe

    def valid(self, recipe: Recipe) -> Validation | None:
        """Return the validation queries that a recipe uses; None without a validation split."""
        limit = recipe.train.valid_queries
        if limit not in self._valid:
            self._valid[limit] = validation(self.corpus, limit)
        return self._valid[limit]

    def search(self, recipe: Recipe) -> Candidate:
        """Fit a recipe; if it is a search, fit every trial and return the best."""
        if not recipe.auto.trials:
            return self.fit(recipe, 0, 0.0)
        if self.valid(recipe) is None:
            self.reporter.say(
                "warning",
                "there is no qrels/valid.tsv to compare trials by, so only the first one is trained",
            )
            return self.fit(recipe.override(recipe.auto.trials[0].split(",")), 0, 0.0)
        ends = clock() + recipe.auto.seconds
        best: Candidate | None = None
        trials = []
        for i, overrides in enumerate(recipe.auto.trials):
            left = 0.0
            if recipe.auto.seconds:
                left = max(1.0, ends - clock()) / (len(recipe.auto.trials) - i)
            candidate = self.fit(recipe.override(overrides.split(",")), i, left, f"{overrides} ")
            if candidate.row is None:  # nothing can be compared, so the first trial stands
                return candidate
            score = candidate.row.measures["map"].mean
            trials.append({"overrides": overrides, "map": score})
            self.reporter.log("trial", overrides=overrides, map=score)
            if best is None or best.row is None or score > best.row.measures["map"].mean:
                best = candidate
        assert best is not None
        facts = {**best.fitted.facts, "trials": trials}
        return replace(best, fitted=replace(best.fitted, facts=facts))

    def fit(self, recipe: Recipe, trial: int, seconds: float, label: str = "") -> Candidate:
        """Fit one model and measure it on validation; 0 seconds keep the recipe's own limit."""
        if seconds:
            recipe = recipe.with_train(seconds=seconds)
        run = TrainingRun(
            recipe,
            self.valid(recipe),
            self.seed,
            self.collection.fingerprint,
            self.reporter,
            self.checkpoints / f"{trial}.npz",
            self.resume,
            label,
            ends=self.ends,
            warm=self.warm,
            distribution=self.distribution,
        )
        fitted = self.context.fit(recipe, run)
        if fitted.comparison:
            return Candidate(recipe, fitted, fitted.comparison[0])
        valid = self.valid(recipe)
        if valid is None or fitted.facts.get(LEARNED_VALID):
            return Candidate(recipe, fitted, None)
        row = ResultRow(
            recipe.name, valid.split, len(valid.judgements), valid.measure_fitted(fitted)
        )
        return Candidate(recipe, fitted, row)

    def compare(self, best: Candidate) -> list[ResultRow]:
        """Return the table: the model and the baselines on the same queries. Warn if a baseline is better."""
        if best.row is None:
            return []
        if best.fitted.comparison:
            for line in best.fitted.comparison:
                self.reporter.log("measured", **line.as_dict())
            return list(best.fitted.comparison)
        table = [best.row]
        for baseline in BASELINES if self.warm is None else ():
            if baseline == best.recipe.name:
                continue
            limit = best.recipe.train.valid_queries
            row = self.fit(load_recipe(baseline).with_train(valid_queries=limit), 0, 0.0).row
            if row is not None:
                table.append(row)
        for row in table:
            self.reporter.log("measured", **row.as_dict())
            if row.measures["map"].mean > table[0].measures["map"].mean:
                self.reporter.say(
                    "warning",
                    f"{row.system} ranks better than {best.recipe.name} on validation; "
                    f"--recipe {row.system} trains it",
                )
        return table

    def second_stage(self, best: Candidate) -> Decision:
        """Train a second stage over the best model, and log whether the bundle gets it."""
        # Imported here: LightGBM is an extra of its own.
        from fullrank_trainer.rerank.decide import second_stage

        found = second_stage(
            self.corpus, best.fitted, self.reporter, seed=self.seed, threads=self.threads
        )
        self.reporter.log("second stage", decision=found.reason)
        return found

    def write(
        self,
        best: Candidate,
        table: Sequence[ResultRow],
        began: float,
        log_position: LogPosition | None,
        second: Decision | None = None,
    ) -> Path:
        """Write the bundle and its model card, and remove the checkpoints; ``began`` is of the monotonic clock."""
        fitted = best.fitted
        card = {
            **model_card(self.collection, best.recipe, fitted.facts, table),
            "seed": self.seed,
            "threads": self.threads,
            "seconds": round(time.monotonic() - began, 1),
            "parent": newest_version(self.out, self.name),
        }
        sampled = Sampled(self.corpus, fitted.model, self.valid(best.recipe))
        floor = sampled.floor(fitted.documents)
        card["floor"] = None if floor is None else floor.card()
        if self.distribution is not None:
            card["distribution"] = self.distribution.identity
        if second is not None:
            card["second_stage"] = second.card
        kept = second if second is not None and second.on else None
        with self.reporter.callback() as progress:
            path = stream_bundle(
                self.out,
                self.name,
                model=fitted.model,
                batches=[(self.collection.documents, fitted.documents)],
                golden_queries=sampled.golden(),
                sample_queries=sampled.tuning(),
                card=card,
                log_position=log_position,
                second_stage=None if kept is None else kept.stage,
                facts=[] if kept is None else [kept.facts],
                floor=None if floor is None else floor.floor,
                progress=self.context.files.releasing(progress),
            )
        for checkpoint in self.checkpoints.glob("*.npz"):
            checkpoint.unlink()
        return path
