"""From a collection to a bundle: count, fit, compare with the baselines, write."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numba

from fullrank.bundle.catalog import find_bundle, live_in, write_bundle
from fullrank.bundle.manifest import LogPosition, is_name
from fullrank.errors import BundleError, BundleNotFound
from trainer.collection import Collection, read_collection
from trainer.evaluation.evaluate import query_texts
from trainer.features.corpus import Corpus
from trainer.progress import Reporter
from trainer.recipes.recipe import Recipe, load_recipe
from trainer.systems import fit, system_of
from trainer.training.fitted import Fitted
from trainer.training.loop import Run
from trainer.training.validation import Row, Validation, validation
from trainer.workshop import Workshop

_GOLDEN = 20  # queries replayed at every load
_GOLDEN_CHARACTERS = 400
# Queries that tune the fast mode and measure it, half each.
_TUNING = 400
BASELINES = ("tfidf", "bm25")


@dataclass(frozen=True, eq=False)
class TrainResult:
    """A written bundle and its table, the model's own line first."""

    path: Path
    table: list[Row]
    seconds: float
    recipe: Recipe

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "bundle": str(self.path),
            "version": self.path.name,
            "seconds": self.seconds,
            "table": [row.as_dict() for row in self.table],
        }


@dataclass(frozen=True, eq=False)
class Candidate:
    """One fitted recipe, measured on validation where there is one."""

    recipe: Recipe
    fitted: Fitted
    row: Row | None


def train(
    collection: str | Path,
    out: str | Path,
    name: str,
    *,
    recipe: str | Path = "auto",
    overrides: Sequence[str] = (),
    seed: int = 1,
    threads: int | None = None,
    resume: bool = False,
    exported_from: Path | None = None,
    reporter: Reporter | None = None,
) -> TrainResult:
    """Train a recipe on a collection and write out/name/version.

    threads   of the numba kernels, and processes that count text; default all cores. One thread and
              one seed give the same bits twice.
    resume    continue an interrupted run of the same name, recipe, seed and collection
    exported_from  the bundle that the corpus was exported from, where it was

    Raises CollectionError, RecipeError, TrainingError (Interrupted on Ctrl-C), BundleError.
    """
    began = time.monotonic()
    # A name or a recipe that cannot work is refused before a collection is read.
    if not is_name(name):
        raise BundleError(f"{name!r} cannot name a bundle: a-z, 0-9, '.', '_', '-', at most 100")
    chosen = load_recipe(recipe).override(overrides)
    system_of(chosen)
    held = None if exported_from is None else live_in(exported_from, name)
    with reporter or Reporter() as report:
        threads = _set_threads(threads)
        source = read_collection(collection)
        report.say("read", **_facts(source))
        trainer = Trainer(source, report, Path(out), name, seed, threads, resume)
        best = trainer.search(chosen)
        table = trainer.compare(best)
        path = trainer.write(best, table, began, held)
        trainer.forget()
        report.say("written", version=path.name, seconds=time.monotonic() - began)
    return TrainResult(path, table, time.monotonic() - began, best.recipe)


def _set_threads(threads: int | None) -> int:
    limit: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    most = min(len(os.sched_getaffinity(0)), limit)
    chosen = min(threads or most, most)
    numba.set_num_threads(chosen)
    return chosen


def _facts(collection: Collection) -> dict[str, Any]:
    queries = collection.queries
    return {
        "documents": len(collection.documents),
        "queries": len(collection.documents if queries is None else queries),
        "splits": ",".join(collection.splits),
        **{k: v for k, v in vars(collection.report).items() if isinstance(v, int) and v},
    }


class Trainer:
    """One training command: a collection counted once, features and trials made from it."""

    def __init__(
        self,
        collection: Collection,
        report: Reporter,
        out: Path,
        name: str,
        seed: int,
        threads: int,
        resume: bool,
    ) -> None:
        self.collection, self.report, self.out, self.name = collection, report, out, name
        self.seed, self.threads, self.resume = seed, threads, resume
        self.workshop = Workshop(collection, report, seed, threads)
        self._valid: dict[int, Validation | None] = {}

    @property
    def corpus(self) -> Corpus:
        """The collection, counted."""
        return self.workshop.corpus

    @property
    def _checkpoints(self) -> Path:
        return self.out / ".training" / self.name

    def valid(self, recipe: Recipe) -> Validation | None:
        """The validation queries a recipe asks for."""
        limit = recipe.train.valid_queries
        if limit not in self._valid:
            self._valid[limit] = validation(self.corpus, limit)
        return self._valid[limit]

    def search(self, recipe: Recipe) -> Candidate:
        """Fit the recipe; where it is a search, every trial in turn, and keep the best."""
        if not recipe.auto.trials:
            return self.fit(recipe, 0, 0.0)
        if self.valid(recipe) is None:
            self.report.say("warning", reason="no split 'valid': the first trial is taken")
            return self.fit(recipe.override(recipe.auto.trials[0].split(",")), 0, 0.0)
        ends = time.monotonic() + recipe.auto.seconds
        best: Candidate | None = None
        trials = []
        for i, overrides in enumerate(recipe.auto.trials):
            left = max(1.0, ends - time.monotonic()) / (len(recipe.auto.trials) - i)
            candidate = self.fit(recipe.override(overrides.split(",")), i, left, f"{overrides} ")
            assert candidate.row is not None
            score = candidate.row.measures["map"].mean
            trials.append({"overrides": overrides, "map": score})
            self.report.say("trial", overrides=overrides, map=score)
            if best is None or best.row is None or score > best.row.measures["map"].mean:
                best = candidate
        assert best is not None
        facts = {**best.fitted.facts, "trials": trials}
        return replace(best, fitted=replace(best.fitted, facts=facts))

    def fit(self, recipe: Recipe, trial: int, seconds: float, label: str = "") -> Candidate:
        """One model: fitted and measured on validation."""
        if seconds:
            recipe = replace(recipe, train=replace(recipe.train, seconds=seconds))
        run = Run(
            recipe,
            self.valid(recipe),
            self.seed,
            self.collection.fingerprint,
            self.report,
            self._checkpoints / f"{trial}.npz",
            self.resume,
            label,
        )
        fitted = fit(self.workshop, recipe, run)
        return Candidate(recipe, fitted, self._row(recipe, fitted))

    def _row(self, recipe: Recipe, fitted: Fitted) -> Row | None:
        valid = self.valid(recipe)
        if valid is None:
            return None
        measures = valid.measure_fitted(fitted)
        return Row(recipe.name, valid.split, len(valid.judgements), measures)

    def compare(self, best: Candidate) -> list[Row]:
        """The model's line, then tf-idf's and BM25's on the same queries; says when it loses."""
        if best.row is None:
            return []
        table = [best.row]
        for baseline in BASELINES:
            if baseline == best.recipe.name:
                continue
            recipe = load_recipe(baseline)
            queries = replace(recipe.train, valid_queries=best.recipe.train.valid_queries)
            row = self.fit(replace(recipe, train=queries), 0, 0.0).row
            if row is not None:
                table.append(row)
        for row in table:
            self.report.say("measured", **row.as_dict())
            if row.measures["map"].mean > table[0].measures["map"].mean:
                self.report.say(
                    "warning", reason=f"{best.recipe.name} loses to {row.system} on validation"
                )
        return table

    def write(
        self,
        best: Candidate,
        table: Sequence[Row],
        began: float,
        held: LogPosition | None,
    ) -> Path:
        """The bundle, with its card; held: which live documents the collection has."""
        card = {
            "recipe": best.recipe.as_dict(),
            "seed": self.seed,
            "threads": self.threads,
            "collection": {
                "fingerprint": self.collection.fingerprint,
                "documents": len(self.collection.documents),
                "splits": list(self.collection.splits),
            },
            "table": [row.as_dict() for row in table],
            "training": best.fitted.facts,
            "seconds": round(time.monotonic() - began, 1),
            "parent": self._parent(),
        }
        with self.report.parts() as progress:
            return write_bundle(
                self.out,
                self.name,
                model=best.fitted.model,
                encoded=best.fitted.documents,
                documents=self.collection.documents,
                golden_queries=self._golden(best),
                sample_queries=self._held_out(best),
                card=card,
                log_position=held,
                progress=progress,
            )

    def _parent(self) -> str | None:
        """The version of this name that the new one follows."""
        try:
            return find_bundle(self.out, self.name).name
        except BundleNotFound:
            return None

    def _golden(self, best: Candidate) -> list[str]:
        ids = self.corpus.query_ids
        spread = ids[:: max(1, len(ids) // _GOLDEN)][:_GOLDEN]
        texts = query_texts(self.collection, best.fitted.model, spread)
        return [text[:_GOLDEN_CHARACTERS] for text in texts]

    def _held_out(self, best: Candidate) -> list[str]:
        """Queries of the validation split, which tune the bundle's fast mode; without it, any."""
        valid = self.valid(best.recipe)
        ids = self.corpus.query_ids if valid is None else [j.query for j in valid.judgements]
        spread = ids[:: max(1, len(ids) // _TUNING)][:_TUNING]
        texts = query_texts(self.collection, best.fitted.model, spread)
        return [text[:_GOLDEN_CHARACTERS] for text in texts]

    def forget(self) -> None:
        """Remove the checkpoints: what they led to is written."""
        for path in self._checkpoints.glob("*.npz"):
            path.unlink()
        for folder in (self._checkpoints, self._checkpoints.parent):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
