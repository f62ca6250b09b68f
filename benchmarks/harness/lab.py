"""The harness of the experiments: train systems, measure each once, store and report the results.

    with Lab("documents", given) as lab:
        results = lab.run(Task("wikispeedia", folder), [System("ssi", formula="UᵀV + I"), ...])
        lab.tell([table])

A collection is read and counted once. A system is a recipe with overrides: it trains on ``train``, ``valid`` selects
its epoch, and ``test`` measures it over all documents, without the links of the other splits, through the code that
serves. At most --queries test queries are measured, evenly spread; all systems get the same ones.

Every result is a file in --out, so a stopped run continues where it stopped. A result is computed again when its
settings, seed or data change, or with --fresh. ``Lab.keep`` does the same for an experiment's own measurements.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from benchmarks.harness.report import (
    NAMES,
    NOT_THERE,
    Table,
    data_folder,
    machine,
    print_tables,
    show,
)
from benchmarks.harness.store import (
    Result,
    Store,
    System,
    Task,
    file_fingerprint,
    folder_fingerprint,
    recipe_identity,
    write_json,
)
from fullrank.errors import FullrankError
from fullrank.measures import Float64
from fullrank.progress import Reporter
from fullrank.retrieval import Retriever
from fullrank.storage.encoding import Encoded
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.evaluation.evaluate import Judgement, evenly_spread, judge, measure_rankings
from fullrank_trainer.recipes.recipe import Recipe, load_recipe, recipe_names
from fullrank_trainer.train import Trainer
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.loop import Interrupted

Measure = Callable[[Trainer, FittedModel, Sequence[Judgement]], dict[str, Float64]]
"""Per-query values of a trained model, in the order of the judgements."""


def ranked(
    trainer: Trainer, found: FittedModel, judgements: Sequence[Judgement]
) -> dict[str, Float64]:
    """Measure rankings of the whole collection, with the code that serves."""
    return measure_rankings(
        retriever_of(found),
        encode_queries(trainer, found, judgements),
        judgements,
        documents=len(found.documents),
    )


def encode_queries(
    trainer: Trainer, found: FittedModel, judgements: Sequence[Judgement]
) -> Encoded:
    """Return the judged queries as encoded by the model."""
    place = trainer.corpus.query_ids.rows
    return found.encode(np.array([place[judgement.query] for judgement in judgements], np.int64))


def retriever_of(found: FittedModel) -> Retriever:
    """Return the retriever that would serve the model."""
    return Retriever(found.documents, found.model.scorer(found.documents))


def spread(judgements: Sequence[Judgement], limit: int) -> list[Judgement]:
    """Return at most ``limit`` judgements (0: all), evenly spread."""
    return [judgements[i] for i in evenly_spread(len(judgements), limit).tolist()]


def limited(recipe: Recipe, seconds: float) -> Recipe:
    """Return the recipe with a time limit of ``seconds`` per fit (0: unchanged)."""
    train, auto = recipe.train, recipe.auto
    if not seconds or (recipe.system == "linear" and train.loss == "none"):
        return recipe
    train = replace(train, seconds=min(train.seconds or seconds, seconds))
    if auto.trials:
        most = seconds * len(auto.trials)
        auto = replace(auto, seconds=min(auto.seconds or most, most))
    elif recipe.system == "blend":
        auto = replace(auto, seconds=min(auto.seconds or seconds, seconds))
    return replace(recipe, train=train, auto=auto)


def resident_gib() -> float:
    """Return the memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**30


RESULTS = Path(__file__).resolve().parents[2] / "out"
_PACKAGES = ("fullrank", "numpy", "scipy", "numba")
_KEPT_GIB = (
    6.0  # above this, caches that systems share (features, projections) are dropped between two
)


def basic_parser(doc: str, seconds: float) -> argparse.ArgumentParser:
    """Return the options of every command that has a Lab. ``doc`` is the module's; its first line is shown."""
    found = argparse.ArgumentParser(description=doc.splitlines()[0])
    form = found.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--markdown", action="store_true", help="the tables as Markdown")
    found.add_argument("--seed", type=int, default=1)
    found.add_argument("--out", type=Path, help="folder of results; default out/<experiment>")
    found.add_argument(
        "--seconds", type=float, default=seconds, help=f"of one fit; 0: no limit; default {seconds}"
    )
    found.set_defaults(set=[], fresh=False, systems=None)
    return found


def parser(
    doc: str,
    *,
    collections: Sequence[str],
    seconds: float,
    queries: int = 2000,
    default: Sequence[str] | None = None,
) -> argparse.ArgumentParser:
    """Return the options that all experiments share. ``doc`` is the module's; its first line is shown.

    default  collections where --only is not given; default all
    """
    usual = list(default or collections)
    found = basic_parser(doc, seconds)
    found.add_argument(
        "--only",
        type=_listed(collections, "collection"),
        default=usual,
        metavar="NAME,...",
        help=f"collections of {', '.join(collections)}; default {', '.join(usual)}",
    )
    found.add_argument(
        "--systems", type=lambda text: text.split(","), metavar="NAME,...", help="default all"
    )
    found.add_argument(
        "--queries", type=int, default=queries, help=f"test queries; 0: all; default {queries}"
    )
    found.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="setting of every system"
    )
    found.add_argument("--fresh", action="store_true", help="train what is already there again")
    return found


def _listed(known: Sequence[str], what: str) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"no {what} {name!r}; there are: {', '.join(known)}"
                )
        return text.split(",")

    return parse


def collection_folder(name: str) -> Path:
    """Return the folder of a shared collection; exit if it is missing."""
    folder = data_folder() / name
    if not folder.is_dir():
        sys.exit(f"the collection {name} is not at {folder} (set FULLRANK_DATA)")
    return folder


class Lab:
    """One run of an experiment.

    Ctrl-C ends it with exit code 130; what is finished is kept. A system that failed makes the
    exit code 1 in the end.
    """

    def __init__(self, experiment: str, given: argparse.Namespace) -> None:
        self.experiment, self.given = experiment, given
        self.store = Store(given.out or RESULTS / experiment)
        self.machine = machine(_PACKAGES)
        self._began = time.perf_counter()
        self.missing: dict[tuple[str, str], str] = {}
        self.report = Reporter()
        self._trained_on: tuple[Path, Trainer] | None = None
        self._judged: dict[tuple[Path, str, tuple[str, ...]], tuple[list[Judgement], int]] = {}
        self._collections: dict[Path, Collection] = {}

    def __enter__(self) -> Lab:
        self._scratch = tempfile.TemporaryDirectory(prefix=f"fullrank-{self.experiment}-")
        self.scratch = Path(self._scratch.name)
        self.report.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.report.__exit__()
        self._scratch.cleanup()
        if isinstance(error, KeyboardInterrupt | Interrupted):
            print("stopped; run it again to go on", file=sys.stderr)
            sys.exit(130)
        if error is None and any(reason != NOT_THERE for reason in self.missing.values()):
            sys.exit(1)

    # -- running ------------------------------------------------------------------------------

    def run(
        self, task: Task, systems: Iterable[System], measure: Measure | None = None
    ) -> dict[str, Result]:
        """Return results of the systems of --systems, in order; run those that are not stored.

        A system whose recipe is not there, or that cannot be trained, is left out; ``missing``
        says why.
        """
        found: dict[str, Result] = {}
        for system in systems:
            if self.given.systems and system.name not in self.given.systems:
                continue
            try:
                recipe = self.recipe(system, task)
                found[system.name] = self._result(task, system, recipe, measure or ranked)
            except Interrupted:
                raise
            except Exception as error:  # A failing system must not stop the others.
                absent = system.recipe_name not in recipe_names()
                said = str(error) if isinstance(error, FullrankError) else repr(error)
                reason = NOT_THERE if absent else said
                self.missing[task.name, system.name] = reason
                self.report.log("missing", system=system.name, task=task.name, reason=reason)
        return found

    def recipe(self, system: System, task: Task) -> Recipe:
        """Return the settings of a system on a task. Raises RecipeError."""
        recipe = load_recipe(system.recipe_name)
        recipe = recipe.override([*task.overrides, *system.overrides])
        return limited(recipe, system.time_factor * self.given.seconds).override(self.given.set)

    def keep(
        self,
        task: str,
        system: str,
        identity: Mapping[str, Any],
        work: Callable[[], tuple[Sequence[str], Mapping[str, Float64], Mapping[str, Any]]],
    ) -> Result:
        """Return the stored result of an identity, or the one that ``work`` computes.

        identity  all that the figures depend on, JSON values; the seed is added
        work      gives ids of the queries, measure → float64 per query, and further facts
        """
        identity = {**identity, "seed": self.given.seed}
        stored = None if self.given.fresh else self.store.load(task, system, identity)
        if stored is not None:
            self.report.log("kept", system=system, task=task)
            return stored
        self.report.log("system", system=system, task=task)
        queries, values, facts = work()
        result = self.store.save(
            task, system, identity, queries, values, {**facts, "machine": machine(_PACKAGES)}
        )
        means = {name: result.estimate(name).mean for name in values if name in NAMES}
        self.report.log("result", system=system, task=task, **means)
        return result

    def _result(self, task: Task, system: System, recipe: Recipe, measure: Measure) -> Result:
        identity = {
            "recipe": recipe_identity(recipe),
            "collection": folder_fingerprint(task.folder),
            "split": task.split,
            "exclude": task.exclude,
            "queries": self.given.queries,
            "measure": getattr(measure, "__name__", type(measure).__name__),
        }
        if recipe.train.vectors:
            identity["vectors"] = file_fingerprint(Path(recipe.train.vectors))

        def work() -> tuple[Sequence[str], Mapping[str, Float64], Mapping[str, Any]]:
            trainer = self.trainer(task.folder)
            if resident_gib() > _KEPT_GIB:
                trainer.context.clear_cache()
            judgements, total = self.judgements(task)
            began = time.perf_counter()
            candidate = trainer.search(recipe)
            fitted = time.perf_counter()
            values = measure(trainer, candidate.fitted, judgements)
            facts = {
                "recipe": system.recipe_name,
                "overrides": [*task.overrides, *system.overrides, *self.given.set],
                "settings": recipe_identity(candidate.recipe),
                "training": candidate.fitted.facts,
                "valid": None if candidate.row is None else candidate.row.as_dict(),
                "documents": len(candidate.fitted.documents),
                "queries_in_split": total,
                "fit_seconds": round(fitted - began, 2),
                "measure_seconds": round(time.perf_counter() - fitted, 2),
            }
            return [judgement.query for judgement in judgements], values, facts

        return self.keep(task.name, system.name, identity, work)

    def trainer(self, folder: Path) -> Trainer:
        """Return the counted collection; the last one is cached."""
        if self._trained_on is None or self._trained_on[0] != folder:
            self._trained_on = None
            cores = self.machine["cores"]
            collection = self.collection(folder)
            self.report.log("counting", collection=str(folder))
            trainer = Trainer(
                collection,
                self.report,
                self.scratch,
                self.experiment,
                self.given.seed,
                cores,
                False,
            )
            self._trained_on = (folder, trainer)
        return self._trained_on[1]

    def collection(self, folder: Path) -> Collection:
        """Return the collection; the last one is cached."""
        if folder not in self._collections:
            self._collections = {folder: read_collection(folder)}
        return self._collections[folder]

    def judgements(self, task: Task) -> tuple[list[Judgement], int]:
        """Return the measured test queries and the number of all."""
        key = (task.folder, task.split, task.exclude)
        if key not in self._judged:
            collection = self.collection(task.folder)
            exclude = [name for name in task.exclude if name in collection.splits]
            judgements, _ = judge(collection, task.split, exclude)
            self._judged[key] = spread(judgements, self.given.queries), len(judgements)
        return self._judged[key]

    # -- telling ------------------------------------------------------------------------------

    def tell(self, tables: Sequence[Table], **more: Any) -> None:
        """Print tables in the requested form, and store them in --out."""
        self.report.__exit__()  # closes the progress bar before the tables
        result = {
            "benchmark": self.experiment,
            "machine": self.machine,
            "settings": {
                "queries": self.given.queries,
                "seed": self.given.seed,
                "seconds": self.given.seconds,
                "overrides": self.given.set,
            },
            "seconds": round(time.perf_counter() - self._began, 1),
            "tables": [table.as_dict() for table in tables],
            "missing": [
                {"task": task, "system": system, "reason": reason}
                for (task, system), reason in self.missing.items()
            ],
            **more,
        }
        write_json(self.store.folder / "summary.json", result)
        if self.given.json:
            show(result, True)
        else:
            print_tables(tables, self.given.markdown)
