"""Quality of the default recipe with one command, next to BM25, and the cost of that command.

    python -m benchmarks.performance.quality [--json] [--only "tldr/en,tldr/en cold"] [--seeds 1,2,3] [--cost]
        [--out DIR]

For each collection under FULLRANK_DATA (default ../shared/data): `fullrank train` in its own process, with the default
recipe and no overrides, then `fullrank evaluate` of its bundle on test, without links of train and valid, all documents
as candidates. bm25s, with its defaults, is measured on the same queries, candidates and words
(benchmarks.peers.bm25), and tf-idf as a bundle of its own.

train_seconds      wall time of the training process: reading, counting, training, writing
train_peak_gib     largest sum of resident memory of that process and its children, sampled from /proc
                   (shared pages count twice)
value              the mean over the seeds; `values` has each, and the seconds and memory are the largest
query_us           with --cost: µs to encode and search one query, exact, ten documents, on one thread; and those of the
                   recipe `clicked`, one model, query by query in turn

`NAME cold` measures the same on documents that nobody clicked yet: a tenth of the documents, chosen by a hash of their
ids, is never judged in training or validation and is all that the test asks for; every document stays a candidate
(benchmarks.harness.derive.cold_splits).

A collection passes if value >= floor, train_seconds <= 180 and train_peak_gib <= 4. The exit code is 1 if one fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.harness.derive import cold_splits, write_splits
from benchmarks.harness.processes import run_measured
from benchmarks.harness.report import Table, data_folder, machine, numbers, print_tables, show
from benchmarks.peers.bm25 import fit_bm25
from benchmarks.peers.protocol import measure, read_peer_data
from fullrank.measures import estimate
from fullrank_trainer.collection import read_collection

MAX_SECONDS = 180.0
MAX_GIB = 4.0
EXCLUDED = ("train", "valid")
_REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Floor:
    """The floors and limits of a collection."""

    metric: str
    value: float


FLOORS = {
    "tldr/en": Floor("mrr", 0.60),
    "tldr/ko": Floor("mrr", 0.57),
    "wikispeedia": Floor("map", 0.41),
    "debian": Floor("map", 0.375),
    "tldr/en cold": Floor("mrr", 0.596),
    "tldr/ko cold": Floor("mrr", 0.444),
    "wikispeedia cold": Floor("map", 0.153),
    "debian cold": Floor("map", 0.155),
}
COLD = " cold"


def evaluate(bundle: str, collection: Path) -> dict[str, Any]:
    """Return the output of `fullrank evaluate --json` for a bundle on test."""
    excluded = [word for split in EXCLUDED for word in ("--exclude-split", split)]
    arguments = ["evaluate", bundle, str(collection), "--split", "test", *excluded, "--json"]
    found: dict[str, Any] = json.loads(run_measured(arguments).out)
    return found


def folder_of(name: str, data: Path, scratch: Path) -> Path:
    """Return the folder of a collection; a cold one is written first."""
    source = (data / name.removesuffix(COLD)).resolve()
    if not name.endswith(COLD):
        return source
    splits = cold_splits(read_collection(source))
    return write_splits(source, scratch / "cold" / name.replace("/", "-"), splits)


def query_cost(bundle: str, one_model: str, folder: Path) -> dict[str, float]:
    """Return the time of a query in the bundle and in that of one model, µs, and their ratio."""
    command = [sys.executable, "-m", "benchmarks.performance.query_cost", bundle, one_model]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    done = subprocess.run(
        [*command, "--collection", str(folder)],
        env=os.environ | threads, cwd=_REPOSITORY, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout)
    return found


def run_collection(
    name: str, folder: Path, out: Path, recipe: str | None, seeds: Sequence[int], cost: bool
) -> dict[str, Any]:
    """Return one row of the table."""
    floor = FLOORS[name]
    label = name.replace("/", "-").replace(" ", "-")
    train = ["train", str(folder), "--json", "--out", str(out), "--name"]
    chosen = ["--recipe", recipe] if recipe else []
    runs = [run_measured([*train, label, *chosen, "--seed", str(seed)]) for seed in seeds]
    bundles = [json.loads(run.out)["bundle"] for run in runs]
    evaluations = [evaluate(bundle, folder) for bundle in bundles]
    found = tfidf = evaluations[0]
    if recipe != "tfidf":
        plain = run_measured([*train, f"{label}-tfidf", "--recipe", "tfidf"])
        tfidf = evaluate(json.loads(plain.out)["bundle"], folder)

    began = time.perf_counter()
    data = read_peer_data(folder)
    ranked = measure(fit_bm25(data, {}).score, data, data.asked("test"))
    peer = estimate(ranked[floor.metric]).as_dict()
    peer_seconds = time.perf_counter() - began
    values = [evaluation["measures"][floor.metric]["mean"] for evaluation in evaluations]
    seconds, peak = max(run.seconds for run in runs), max(run.peak_gib for run in runs)
    held = {
        "value": fmean(values) >= floor.value,
        "train_seconds": seconds <= MAX_SECONDS,
        "train_peak_gib": peak <= MAX_GIB,
    }
    query_us = None
    if cost:
        one = run_measured([*train, f"{label}-one", "--recipe", "clicked"])
        query_us = query_cost(bundles[0], json.loads(one.out)["bundle"], folder)
    return {
        "metric": floor.metric,
        "floor": floor.value,
        "value": fmean(values),
        "values": values,
        "seeds": list(seeds),
        "standard_error": found["measures"][floor.metric]["standard_error"],
        "query_us": query_us,
        "bm25s": peer["mean"],
        "bm25s_standard_error": peer["standard_error"],
        "bm25s_seconds": round(peer_seconds, 1),
        "tfidf": tfidf["measures"][floor.metric]["mean"],
        "train_seconds": round(seconds, 1),
        "train_peak_gib": round(peak, 2),
        "passed": all(held.values()),
        "held": held,
        "split": "test",
        "excluded_splits": list(EXCLUDED),
        "queries": found["queries"],
        "documents": found["documents"],
        "measures": found["measures"],
        "bundle": bundles[0],
        "bundles": bundles,
    }


def quality_table(collections: dict[str, Any]) -> Table:
    """Return a row for each collection."""
    rows = [
        [
            name, line["metric"], f"{line['floor']:.2f}", f"{line['value']:.4f}", f"{line['standard_error'] or 0:.4f}",
            f"{line['bm25s']:.4f}", f"{line['tfidf']:.4f}", f"{line['train_seconds']:.0f}",
            f"{line['train_peak_gib']:.2f}", "passed" if line["passed"] else "FAILED",
        ]
        for name, line in collections.items()
    ]  # fmt: skip
    headings = ["metric", "floor", "value", "± s.e.", "bm25s", "tf-idf", "seconds", "GiB", ""]
    return Table("default recipe, split test", ["collection", *headings], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, measure and print; exit 1 if a floor or limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--only", help="collections, comma-separated")
    parser.add_argument("--out", type=Path, help="folder that keeps the bundles; default none")
    parser.add_argument("--recipe", help="another than the default (said in the result)")
    parser.add_argument(
        "--seeds", type=numbers, default=[1], help="of the training, comma-separated"
    )
    parser.add_argument("--cost", action="store_true", help="also time queries")
    given = parser.parse_args(arguments)

    data = data_folder()
    names = given.only.split(",") if given.only else list(FLOORS)
    for name in names:
        if name not in FLOORS:
            sys.exit(f"no collection {name!r}; there are: {', '.join(FLOORS)}")
        source = data / name.removesuffix(COLD)
        if not source.is_dir():
            sys.exit(f"the collection {name} is not at {source} (set FULLRANK_DATA)")
    with tempfile.TemporaryDirectory(prefix="fullrank-quality-") as scratch:
        out = (given.out or Path(scratch)).resolve()
        result: dict[str, Any] = {
            "benchmark": "quality",
            "machine": machine(["fullrank", "numpy", "scipy", "numba", "bm25s"]),
            "recipe": given.recipe or "default",
            "collections": {
                name: run_collection(
                    name,
                    folder_of(name, data, Path(scratch)),
                    out,
                    given.recipe,
                    given.seeds,
                    given.cost,
                )
                for name in names
            },
        }
    result["passed"] = all(line["passed"] for line in result["collections"].values())
    if given.json:
        show(result, True)
    else:
        print_tables([quality_table(result["collections"])], False)
    sys.exit(0 if result["passed"] else 1)


if __name__ == "__main__":
    main()
