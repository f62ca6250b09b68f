"""Training by slices against one machine: quality on validation, and the processor time of an epoch.

    python -m benchmarks.fleet.training [--only tldr/en] [--recipe fielded] [--set epochs=8]
        [--slices 1,4] [--rounds 1] [--squares mean] [--steps root] [--seed 1]

Fits the recipe on one machine, then once for each combination of the four lists, with one thread and no time limit.
Tasks run one after another in this process: the result does not depend on where they run. The JSON lines on stdout
have the MRR on all validation queries with its standard error, its difference to that of one machine in standard
errors of the latter, the best epoch, the seconds of the fit, and the bytes of the files: what slices train on, written
once, and what the last round wrote.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numba

from benchmarks.harness.report import data_folder, numbers
from fullrank.progress import Reporter
from fullrank_fleet.jobs.tasks import InProcess
from fullrank_fleet.remote import Folder
from fullrank_fleet.training.learner import Slices
from fullrank_trainer.collection import read_collection
from fullrank_trainer.recipes.recipe import Recipe, load_recipe
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.loop import TrainingRun
from fullrank_trainer.training.validation import validation


def run(options: argparse.Namespace, recipe: Recipe, scratch: Path) -> Iterator[dict[str, Any]]:
    """Yield one line a fit."""
    reporter = Reporter()
    source = read_collection(data_folder() / options.only)
    context = TrainingContext(source, reporter, options.seed, 1, scratch)
    stopping, judged = (
        validation(context.corpus, recipe.train.valid_queries),
        validation(context.corpus, 0),
    )
    assert judged is not None
    context.features(recipe.model)
    alone = (math.nan, math.nan)
    ways = product(options.slices, options.rounds, options.squares, options.steps)
    for slices, rounds, squares, steps in [(0, 1, "mean", "mean"), *ways]:
        distribution = None
        if slices:
            folder = Folder(str(scratch / "job"))
            distribution = Slices(
                folder, InProcess(), slices, rounds=rounds, squares=squares, steps=steps
            )
        began, processor = time.monotonic(), time.process_time()
        path, fingerprint = scratch / "0.npz", source.fingerprint
        given = TrainingRun(
            recipe, stopping, options.seed, fingerprint, reporter, path, resume=False
        )
        given = replace(given, distribution=distribution)
        fitted = context.fit(recipe, given)
        seconds, processor = time.monotonic() - began, time.process_time() - processor
        found = judged.measure_fitted(fitted)
        mrr = found["mrr"].as_dict()
        if not slices:
            alone = (mrr["mean"] or 0.0, mrr["standard_error"] or math.nan)
        yield {
            "collection": options.only,
            "recipe": " ".join([options.recipe, *options.set]),
            "slices": slices,
            "rounds": rounds,
            "squares": squares,
            "steps": steps,
            "mrr": mrr,
            "difference": round(((mrr["mean"] or 0.0) - alone[0]) / alone[1], 2),
            "best_epoch": fitted.facts.get("best_epoch"),
            "valid_map": [line["valid_map"] for line in fitted.facts.get("history", [])],
            "seconds": round(seconds, 1),
            "processor_seconds": round(processor, 1),
            "inputs_mb": _megabytes(scratch / "job" / "inputs"),
            "last_round_mb": _megabytes(scratch / "job" / "epochs"),
            "load": os.getloadavg()[0],
        }


def main() -> None:
    """Print one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="tldr/en", help="collection under FULLRANK_DATA")
    parser.add_argument("--recipe", default="fielded")
    parser.add_argument(
        "--set", action="append", default=[], help="override a setting of the recipe"
    )
    parser.add_argument("--slices", type=numbers, default=[1, 4])
    parser.add_argument("--rounds", type=numbers, default=[1])
    parser.add_argument("--squares", type=lambda text: text.split(","), default=["mean"])
    parser.add_argument("--steps", type=lambda text: text.split(","), default=["root"])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    numba.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        for line in run(options, load_recipe(options.recipe).override(options.set), Path(scratch)):
            print(json.dumps(line), flush=True)


def _megabytes(folder: Path) -> float:
    return round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6, 1)


if __name__ == "__main__":
    main()
