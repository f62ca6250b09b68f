"""Training at scale: links a second, memory, quality by minute, and what the second core adds.

    python -m benchmarks.performance.training [--json] [--documents 1000000] [--links 10000000,24700000]
        [--seconds 120] [--forms margin,softmax] [--work DIR]
    python -m benchmarks.performance.training --pages 48000 [--recipe auto] [--work DIR] [--json]

For each number of links, benchmarks.performance.planted writes a collection (see there how links are drawn so that they
can be learned), and each form trains on it in a process of its own, with one thread and with all:

    margin    UᵀV + I, the papers' loss (recipe ssi, one rate)
    softmax   the recipe fielded

links_per_second   training links whose step was taken, over the seconds of the steps. An epoch of all links is
                   extrapolated from the links that `--seconds` of steps take; epoch_minutes says how long it is.
quality            MAP of the validation queries over all documents at the start and after a quarter, a half and all of
                   the seconds
peaks_gib          largest resident memory of the process (VmHWM) while it reads the collection, counts its texts, makes
                   the matrices, measures and takes steps; peak_gib is the largest of them
data_gib           corpus, queries and qrels on disk; parameter_gib: U, V, D, bias
memory_ratio       (peak − parameters) / data
second_core        links a second with all threads over those with one

With --pages, so many pages that link each other are written (benchmarks.performance.planted) and `fullrank train` runs
on them: train_seconds and train_peak_gib as benchmarks.harness.processes measures them. 48,000 must train within 300
seconds and 3 GiB.
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
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.processes import Peaks, run_measured
from benchmarks.harness.report import machine, numbers, show
from benchmarks.performance.planted import write_pages, write_planted
from fullrank_trainer.threads import SLEEPING

FORMS = {
    "margin": ("ssi", ["rates=0.03", "valid_queries=100"]),
    "softmax": ("fielded", ["sampled_from=judged", "valid_queries=100"]),
}
_POINTS = (0.25, 0.5, 1.0)


def measure(folder: Path, form: str, seconds: float, threads: int) -> Any:
    """Train one form in this process for some seconds of steps; return its figures."""
    import numba

    from fullrank.progress import Reporter
    from fullrank_trainer.collection import read_collection
    from fullrank_trainer.recipes.recipe import load_recipe
    from fullrank_trainer.systems.linear.parameters import level_biases
    from fullrank_trainer.systems.linear.system import learner_of
    from fullrank_trainer.training.context import TrainingContext
    from fullrank_trainer.training.memory import map_large_blocks
    from fullrank_trainer.training.validation import validation

    numba.set_num_threads(threads)
    map_large_blocks()  # as `fullrank train` does
    name, overrides = FORMS[form]
    recipe = load_recipe(name).override(overrides)
    began, peaks = time.monotonic(), Peaks()
    collection = read_collection(folder)
    peaks.end("read")
    context = TrainingContext(collection, Reporter(quiet=True), 1, threads)
    read_s = time.monotonic() - began
    peaks.end("count")
    features = context.features(recipe.model)
    featurised_s = time.monotonic() - began - read_s
    peaks.end("matrices")
    valid = validation(context.corpus, recipe.train.valid_queries)
    assert valid is not None
    learner = learner_of(features, recipe, np.random.default_rng(1))
    quality = [[0.0, round(learner.measure(valid), 4)]]
    peaks.end("measure")
    # A step before the clock starts compiles the kernels.
    pieces = learner.steps(0.0, 1.0)
    next(pieces)
    links = len(features.pairs) / learner.per_epoch
    done, spent, points = 0, 0.0, list(_POINTS)
    while points:
        start = time.monotonic()
        count, _ = next(pieces, (0, 0.0))
        if not count:
            pieces = learner.steps(0.0, 1.0)
            continue
        spent, done = spent + time.monotonic() - start, done + count
        if spent >= points[0] * seconds:
            points.pop(0)
            peaks.end("steps")
            if form == "softmax":  # as the end of an epoch does
                level_biases(features, learner.values)
            quality.append([round(spent / 60, 3), round(learner.measure(valid), 4)])
            peaks.end("measure")
    parameters = sum(array.nbytes for array in learner.parameters().values())
    per_second = done * links / spent
    return {
        "threads": threads,
        "links_per_second": round(per_second, 1),
        "links_taken": round(done * links),
        "epoch_minutes": round(len(features.pairs) / per_second / 60, 2),
        "quality": quality,
        "read_and_count_s": round(read_s, 1),
        "featurise_s": round(featurised_s, 1),
        "peak_gib": peaks.largest,
        "peaks_gib": peaks.gib,
        "parameter_gib": round(parameters / 2**30, 3),
    }


def _child(threads: int, arguments: list[str]) -> Any:
    """Run ``measure`` in a process whose matrix products have as many threads as its kernels.

    Waiting threads sleep, as in ``fullrank train``.
    """
    count = str(threads)
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.performance.training", "--child", *arguments],
        check=True, stdout=subprocess.PIPE, text=True,
        env={**os.environ, **SLEEPING, "OPENBLAS_NUM_THREADS": count, "OMP_NUM_THREADS": count},
    )  # fmt: skip
    return json.loads(found.stdout.splitlines()[-1])


def compare(folder: Path, form: str, seconds: float, threads: int) -> dict[str, Any]:
    """Measure a form with one thread and with all."""
    data = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 2**30
    one, many = (_child(n, [str(folder), form, str(seconds), str(n)]) for n in (1, threads))
    many["data_gib"] = round(data, 3)
    many["memory_ratio"] = round((many["peak_gib"] - many["parameter_gib"]) / data, 2)
    many["second_core"] = round(many["links_per_second"] / one["links_per_second"], 2)
    return {**many, "one_thread": one}


def train_pages(work: Path, documents: int, recipe: str | None) -> dict[str, Any]:
    """Write pages, train on them by the command, return the figures."""
    folder = work / f"pages-{documents}"
    links = write_pages(folder, documents)
    size = (folder / "corpus.jsonl").stat().st_size
    words = ["--json", "--name", "pages", "--out", str(work / "out")]
    trained = run_measured(
        ["train", str(folder), *words, *(["--recipe", recipe] if recipe else [])]
    )
    return {
        "benchmark": "pages",
        "machine": machine(["fullrank", "numpy", "numba"]),
        "recipe": recipe or "default",
        "documents": documents,
        "links": links,
        "kilobytes_a_document": round(size / documents / 1000, 2),
        "train_seconds": round(trained.seconds, 1),
        "train_peak_gib": round(trained.peak_gib, 2),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on one line")
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--links", type=numbers, default=[10_000_000, 24_700_000])
    parser.add_argument("--seconds", type=float, default=120.0, help="of steps for each form")
    parser.add_argument("--forms", default=",".join(FORMS), help="only these; default %(default)s")
    parser.add_argument("--work", type=Path, help="folder for the collections, kept")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--pages", type=int, help="train on so many pages instead")
    parser.add_argument("--recipe", help="for the pages; default that of fullrank train")
    given = parser.parse_args(arguments)
    if given.child:
        folder, form, seconds, threads = given.child
        print(json.dumps(measure(Path(folder), form, float(seconds), int(threads))))
        return
    if given.pages:
        with tempfile.TemporaryDirectory() as temporary:
            work = (given.work or Path(temporary)).resolve()
            show(train_pages(work, given.pages, given.recipe), given.json)
        return
    asked = given.forms.split(",")
    if unknown := sorted(set(asked) - set(FORMS)):
        parser.error(f"no form {unknown[0]!r}; there are: {', '.join(FORMS)}")
    threads = len(os.sched_getaffinity(0))
    result: dict[str, Any] = {
        "benchmark": "training",
        "machine": machine(["numpy", "numba"]),
        "settings": {"documents": given.documents, "seconds": given.seconds, "threads": threads},
        "links": {},
    }
    with tempfile.TemporaryDirectory() as temporary:
        for links in given.links:
            folder = (given.work or Path(temporary)) / f"{given.documents}-{links}" / "collection"
            if not (folder / "qrels" / "valid.tsv").is_file():
                write_planted(folder, given.documents, links)
            result["links"][str(links)] = {
                **{form: compare(folder, form, given.seconds, threads) for form in asked},
            }
    show(result, given.json)


if __name__ == "__main__":
    main()
