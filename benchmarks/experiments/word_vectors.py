"""Pretrained word vectors as a start: recipes with and without ``train.vectors`` on tldr/en.

    python -m benchmarks.experiments.word_vectors --words words.txt
    python -m benchmarks.experiments.word_vectors --vectors FILE [--seeds 3] [--systems fielded] [--queries 2000]
                                      [--set key=value]... [--seed 1] [--out DIR] [--fresh] [--json | --markdown]

The first command writes the words of the collection; ``benchmarks/experiments/distil.py`` makes a file of vectors of
them with a sentence encoder, or take any file that ``fullrank train --init`` reads.

shares      10 and 100 % of the training queries, the recipe fielded, mean of --seeds fits
clicked     all training queries, the recipe clicked, which is itself a mean of three fits

The gain is paired: the mean over test queries of the difference, where a query's value is its mean over the seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.derive import links_of, write_splits
from benchmarks.harness.lab import RESULTS, Lab, collection_folder, parser
from benchmarks.harness.store import Result
from benchmarks.harness.tables import NAMES, NOTHING, Table, figure
from benchmarks.harness.task import System, Task
from fullrank.measures import Float64, estimate
from fullrank_trainer.collection import Collection
from fullrank_trainer.features.corpus import count_collection

COLLECTIONS = ("tldr/en",)
SHARES = (10, 100)
MEASURES = ("mrr", "ndcg@10", "recall@100")
MAIN = "mrr"
# All validation queries, so that the figures on validation have little noise.
SETTINGS = ("valid_queries=0",)


@dataclass(frozen=True)
class Comparison:
    """One recipe with and without vectors on a share of the training queries."""

    recipe: str
    percent: int
    seeds: int

    def systems(self, vectors: Path) -> tuple[System, System]:
        """Return the recipe as it is, and with vectors."""
        return (
            System(self.recipe),
            System(f"{self.recipe} + vectors", self.recipe, (f"train.vectors={vectors}",)),
        )


def comparisons(seeds: int) -> list[Comparison]:
    """Return what is compared."""
    return [
        *(Comparison("fielded", percent, seeds) for percent in SHARES),
        Comparison("clicked", 100, 1),
    ]


def share_task(lab: Lab, name: str, folder: Path, percent: int) -> Task:
    """Return the collection with a share of its training queries; all documents stay candidates."""
    if percent == 100:
        return Task(name, folder, SETTINGS)
    collection = lab.collection(folder)
    splits = {split: links_of(collection, [split]) for split in collection.splits}
    splits["train"] = some_queries(splits["train"], percent)
    target = lab.scratch / f"{percent}-percent"
    return Task(f"{name}, {percent} %", write_splits(folder, target, splits), SETTINGS)


def some_queries(links: Sequence[tuple[str, str]], percent: int) -> list[tuple[str, str]]:
    """Return the links of a share of the queries, the same ones for every seed."""
    queries = sorted({query for query, _ in links})
    count = max(1, len(queries) * percent // 100)
    kept = {queries[i] for i in np.random.default_rng(0).permutation(len(queries))[:count].tolist()}
    return [link for link in links if link[0] in kept]


def mean_over_seeds(results: Sequence[Result], measure: str) -> Float64:
    """Return each query's mean value, float64 (queries,)."""
    return np.asarray(np.mean([result.values[measure] for result in results], axis=0))


def rows_of(
    label: str, systems: Sequence[str], found: Mapping[str, Sequence[Result]]
) -> list[list[str]]:
    """Return a row a system; the last one's gain is over the first."""
    rows = []
    for name in systems:
        if not found.get(name):
            continue
        gain = NOTHING
        if name != systems[0] and found.get(systems[0]):
            both = zip(found[name], found[systems[0]], strict=True)
            difference = np.mean([a.values[MAIN] - b.values[MAIN] for a, b in both], axis=0)
            paired = estimate(np.asarray(difference, np.float64))
            gain = f"{paired.mean:+.4f} ± {paired.standard_error:.4f}"
        facts: list[Mapping[str, Any]] = [result.facts for result in found[name]]
        valid = float(np.mean([one["valid"]["map"] for one in facts]))
        epochs = ", ".join(str(one["training"].get("best_epoch", NOTHING)) for one in facts)
        rows.append(
            [
                label,
                name,
                f"{valid:.4f}",
                *(figure(estimate(mean_over_seeds(found[name], m)), m) for m in MEASURES),
                gain,
                f"{np.mean([one['fit_seconds'] for one in facts]):.0f}",
                epochs,
            ]
        )
    return rows


def table_of(
    name: str, compared: Sequence[tuple[Comparison, Mapping[str, Sequence[Result]]]], vectors: Path
) -> Table:
    """Return one table of all comparisons."""
    rows, notes = [], []
    for one, found in compared:
        label = f"{one.percent} %, {one.seeds} seed{'s' if one.seeds > 1 else ''}"
        names = [system.name for system in one.systems(vectors)]
        rows += rows_of(label, names, found)
        for result in found.get(names[-1], [])[:1]:
            start = result.facts["training"]["vectors"]
            notes.append(
                f"{one.recipe}, {one.percent} %: {start['words']:,} of {start['of']:,} words have "
                f"one of the vectors of width {start['width']}"
            )
    headings = [
        "training queries", "system", "valid MAP", *(NAMES[m] for m in MEASURES),
        f"gain in {NAMES[MAIN]}", "seconds", "best epoch of each seed",
    ]  # fmt: skip
    return Table(f"{name}: pretrained word vectors as a start", headings, rows, notes, left=2)


def write_words(collection: Collection, file: Path) -> int:
    """Write the words of a collection, one a line; return their number."""
    words = count_collection(collection, processes=1).counts.words
    file.write_text("".join(f"{word}\n" for word in words), "utf-8")
    return len(words)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, measure and report."""
    options = parser(__doc__, collections=COLLECTIONS, seconds=0)
    options.add_argument("--vectors", type=Path, metavar="FILE", help="word vectors to start at")
    options.add_argument("--words", type=Path, metavar="FILE", help="only write all words here")
    options.add_argument("--seeds", type=int, default=3, help="fits of each system; default 3")
    given = options.parse_args(arguments)
    if (given.vectors is None) == (given.words is None):
        options.error("name either --vectors or --words")
    base = given.out or RESULTS / "word_vectors"
    tables = []
    for name in given.only:
        folder = collection_folder(name)
        if given.words is not None:
            with Lab("word_vectors", given) as lab:
                print(f"{write_words(lab.collection(folder), given.words):,} words")
            return
        tables.append(table_of(name, compare(given, base, name, folder), given.vectors))
    with Lab("word_vectors", argparse.Namespace(**{**vars(given), "out": base})) as lab:
        lab.tell(tables, vectors=given.vectors.name)


def compare(
    given: argparse.Namespace, base: Path, name: str, folder: Path
) -> list[tuple[Comparison, dict[str, list[Result]]]]:
    """Run every comparison with every seed, the quickest first; a seed has its own folder of results."""
    compared = []
    for one in comparisons(given.seeds):
        found: dict[str, list[Result]] = {}
        for seed in range(given.seed, given.seed + one.seeds):
            own = {**vars(given), "seed": seed, "out": base / f"seed-{seed}"}
            with Lab("word_vectors", argparse.Namespace(**own)) as lab:
                task = share_task(lab, name, folder, one.percent)
                for system, result in lab.run(task, one.systems(given.vectors)).items():
                    found.setdefault(system, []).append(result)
        compared.append((one, found))
    return compared


if __name__ == "__main__":
    main()
