"""The papers' own setting: 30,000 words, fields joined, margin loss, measured by rank loss.

    python -m benchmarks.papers [--json] [--only wikispeedia,debian] [--systems tfidf,lsi,ssi]
                                [--queries 2000] [--words 30000] [--set key=value]... [--seed 1]

Each system is a recipe of the same name with ``words`` set; ``--set`` overrides any other knob of
all of them. A collection is read and counted once, then each system is trained on ``train``, its
epoch and its mixing weight are chosen on ``valid``, and it is measured on ``test`` with the links
of train and valid taken out, over all documents, through the code that serves. At most ``--queries``
test queries are measured, evenly spread over the collection; all systems get the same ones.

A difference is paired: the mean over queries of (system − other), with its standard error. The
claim holds on a collection when UᵀV + I has the lower rank loss than W = I and than LSI.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.report import data_folder, machine, show
from fullrank.retrieval import Retriever
from trainer.collection import Collection, read_collection
from trainer.evaluate import Judgement, judge, measure_rankings
from trainer.fitted import Fitted
from trainer.metrics import Float64, estimate
from trainer.progress import Reporter
from trainer.recipe import Recipe, load_recipe
from trainer.train import Trainer

COLLECTIONS = ("wikispeedia", "debian")
FORMULAS = {
    "tfidf": "W = I",
    "lsi": "LSI",
    "lsi-tfidf": "α LSI + (1 − α) I",
    "ssi": "UᵀV + I",
    "ssi-tied": "UᵀU + I",
    "diagonal": "W = D",
    "ssi-diagonal": "UᵀV + D",
}
SHOWN = ("rank_loss", "map", "p@10")
CLAIM, AGAINST = "ssi", ("tfidf", "lsi")


def test_queries(collection: Collection, limit: int) -> tuple[list[Judgement], int]:
    """At most ``limit`` queries of test (0: all), evenly spread, and how many there are."""
    exclude = [name for name in ("train", "valid") if name in collection.splits]
    judgements, _ = judge(collection, "test", exclude)
    total = len(judgements)
    if limit and total > limit:
        chosen = np.linspace(0, total - 1, limit).round().astype(int)
        judgements = [judgements[i] for i in chosen.tolist()]
    return judgements, total


@contextmanager
def rates_tried() -> Iterator[dict[str, float]]:
    """Collects the training error of each rate that the margin loss tries."""
    tried: dict[str, float] = {}

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if isinstance(record.args, tuple) and len(record.args) == 2:
                rate, error = record.args
                tried[f"{rate:g}"] = round(float(str(error)), 4)

    log, listener = logging.getLogger("trainer.margin"), Listener()
    before = log.level
    log.addHandler(listener)
    log.setLevel(logging.INFO)
    try:
        yield tried
    finally:
        log.removeHandler(listener)
        log.setLevel(before)


def measure(trainer: Trainer, found: Fitted, judgements: Sequence[Judgement]) -> dict[str, Any]:
    """Per-query measures of a trained model."""
    place = {query: row for row, query in enumerate(trainer.corpus.query_ids)}
    rows = np.array([place[judgement.query] for judgement in judgements], np.int64)
    documents = found.documents
    retriever = Retriever(documents, found.model.scorer(documents))
    return measure_rankings(retriever, found.encode(rows), judgements, documents=len(documents))


def settings_of(recipe: Recipe, facts: dict[str, Any], tried: dict[str, float]) -> dict[str, Any]:
    """The knobs that made a model what it is."""
    model, train = recipe.model, recipe.train
    found: dict[str, Any] = {"words": model.words}
    if model.latent != "none":
        found["dimension"] = model.dimension
    if model.latent == "lsi" and model.match != "none":
        found["alpha"] = model.alpha
    if train.loss == "margin":
        finite = {rate: error for rate, error in tried.items() if np.isfinite(error)}
        found["rates_tried"] = tried
        found["rate"] = float(min(finite, key=finite.__getitem__)) if finite else train.rates[0]
        found["init"] = train.init if model.latent == "learned" else None
        found["epochs"] = len(facts["history"])
        found["best_epoch"] = facts["best_epoch"]
    return found


def run_system(
    trainer: Trainer, name: str, overrides: Sequence[str], judgements: Sequence[Judgement]
) -> tuple[dict[str, Any], dict[str, Float64]]:
    """Train and measure one system: its line of the table and its per-query values."""
    recipe = load_recipe(name).override(overrides)
    began = time.perf_counter()
    with rates_tried() as tried:
        found = trainer.search(recipe)
    seconds = time.perf_counter() - began
    values = measure(trainer, found.fitted, judgements)
    line: dict[str, Any] = {"formula": FORMULAS[name]}
    line |= {measured: estimate(values[measured]).as_dict() for measured in SHOWN}
    line |= {
        "train_seconds": round(seconds, 1),
        "settings": settings_of(found.recipe, found.fitted.facts, tried),
    }
    return line, values


def compare(per_query: dict[str, dict[str, Float64]]) -> dict[str, Any]:
    """Paired differences in rank loss between UᵀV + I and what it must beat."""
    found: dict[str, Any] = {}
    for other in AGAINST:
        if CLAIM in per_query and other in per_query:
            difference = per_query[CLAIM]["rank_loss"] - per_query[other]["rank_loss"]
            paired = estimate(difference).as_dict()
            found[f"{CLAIM} - {other}"] = {**paired, "below": bool(difference.mean() < 0)}
    return found


def run_collection(
    folder: Path, systems: Sequence[str], overrides: Sequence[str], queries: int, seed: int
) -> dict[str, Any]:
    """Every system on one collection."""
    collection = read_collection(folder)
    judgements, total = test_queries(collection, queries)
    lines: dict[str, Any] = {}
    per_query: dict[str, dict[str, Float64]] = {}
    with tempfile.TemporaryDirectory(prefix="fullrank-papers-") as out, Reporter() as report:
        threads = machine([])["cores"]
        trainer = Trainer(collection, report, Path(out), "papers", seed, threads, False)
        for name in systems:
            report.say("system", name=name, collection=folder.name)
            lines[name], per_query[name] = run_system(trainer, name, overrides, judgements)
            report.say("result", name=name, **{m: lines[name][m]["mean"] for m in SHOWN})
    comparison = compare(per_query)
    return {
        "documents": len(collection.documents),
        "split": "test",
        "excluded_splits": ["train", "valid"],
        "queries": len(judgements),
        "queries_in_split": total,
        "sampled": len(judgements) < total,
        "systems": lines,
        "rank_loss_differences": comparison,
        "holds": all(line["below"] for line in comparison.values()) if comparison else None,
    }


def show_tables(result: dict[str, Any]) -> None:
    """The same for people."""
    console = Console(highlight=False)
    for name, found in result["collections"].items():
        table = Table(
            title=f"{name}: {found['queries']:,} of {found['queries_in_split']:,} test queries, "
            f"{found['documents']:,} documents",
            title_style="",
        )
        for heading in ("system", "W", *SHOWN, "seconds"):
            table.add_column(heading, justify="left" if heading in ("system", "W") else "right")
        for system, line in found["systems"].items():
            cells = [f"{line[m]['mean']:.4f} ± {line[m]['standard_error'] or 0:.4f}" for m in SHOWN]
            table.add_row(system, line["formula"], *cells, f"{line['train_seconds']:.0f}")
        console.print(table)
        for pair, line in found["rank_loss_differences"].items():
            verdict = "below" if line["below"] else "NOT below"
            console.print(
                f"rank loss, {pair}: {line['mean']:+.4f} ± {line['standard_error'] or 0:.4f}: "
                f"UᵀV + I is {verdict} {FORMULAS[pair.split(' - ')[1]]}"
            )


def _names(text: str | None, known: Sequence[str], what: str) -> list[str]:
    names = text.split(",") if text else list(known)
    for name in names:
        if name not in known:
            sys.exit(f"no {what} {name!r}; there are: {', '.join(known)}")
    return names


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, measure, print. Exit code 1 when the claim was tested and does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--only", help="collections, comma-separated")
    parser.add_argument("--systems", help="recipes, comma-separated")
    parser.add_argument("--queries", type=int, default=2000, help="test queries; 0: all")
    parser.add_argument("--words", type=int, default=30_000)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)

    data = data_folder()
    overrides = [f"words={given.words}", *given.set]
    collections = _names(given.only, COLLECTIONS, "collection")
    systems = _names(given.systems, list(FORMULAS), "system")
    for name in collections:
        if not (data / name).is_dir():
            sys.exit(f"the collection {name} is not at {data / name} (set FULLRANK_DATA)")
    result: dict[str, Any] = {
        "benchmark": "papers",
        "machine": machine(["fullrank", "numpy", "scipy", "numba"]),
        "settings": {"fields": "joined", "seed": given.seed, "overrides": overrides},
        "collections": {
            name: run_collection(data / name, systems, overrides, given.queries, given.seed)
            for name in collections
        },
    }
    held = [found["holds"] for found in result["collections"].values()]
    result["holds"] = None if None in held else all(held)
    if given.json:
        show(result, True)
    else:
        show_tables(result)
    sys.exit(1 if result["holds"] is False else 0)


if __name__ == "__main__":
    main()
