"""Training that goes on from a bundle against training anew, when a tenth of the queries is new.

    python -m benchmarks.performance.warm_start [--only tldr/en] [--seed 1] [--out DIR]

1. `fullrank train` on nine tenths of the training queries, chosen by a hash, with the default recipe.
2. The other tenth is added, and `fullrank train` runs twice: anew, and with `--from` the bundle of step 1.

All three are measured on all queries of valid, without links of train; test is not read. The JSON on stdout has the
wall time of each command in seconds, the MRR with its standard error, and the difference of the last two.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness.commands import run_measured
from benchmarks.harness.derive import Link, links_of, write_splits
from benchmarks.harness.report import data_folder
from fullrank.bundle import open_bundle
from fullrank.measures import estimate
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.evaluation.evaluate import Evaluation, evaluate
from fullrank_trainer.training.holdout import falls_into

_NEW = 0.1


def splits_of(collection: Collection) -> dict[str, dict[str, list[Link]]]:
    """Return the splits before and after the new queries."""
    train, valid = links_of(collection, ["train"]), links_of(collection, ["valid"])
    old = [link for link in train if not falls_into(link[0], _NEW, b"warm-start")]
    return {"before": {"train": old, "valid": valid}, "after": {"train": train, "valid": valid}}


def run(name: str, source: Path, seed: int, out: Path) -> dict[str, Any]:
    """Train three bundles and measure them."""
    collections = {
        when: write_splits(source, out / "collections" / when, splits)
        for when, splits in splits_of(read_collection(source)).items()
    }
    bundles, judged = out / "bundles", read_collection(collections["after"])
    facts: dict[str, Any] = {"collection": name, "seed": seed}
    measured: dict[str, Evaluation] = {}
    for system, when in (("before", "before"), ("anew", "after"), ("warm", "after")):
        start = ["--from", facts["before"]["bundle"]] if system == "warm" else []
        arguments = ["train", str(collections[when]), "--out", str(bundles), "--name", system]
        done = run_measured([*arguments, "--seed", str(seed), "--json", *start])
        path = json.loads(done.out)["bundle"]
        measured[system] = evaluate(open_bundle(Path(path)), judged, "valid", ("train",))
        mrr = measured[system].measures["mrr"].as_dict()
        facts[system] = {"bundle": path, "seconds": round(done.seconds, 1), "mrr": mrr}
    change = measured["warm"].per_query["mrr"] - measured["anew"].per_query["mrr"]
    return {
        **facts,
        "queries": measured["warm"].queries,
        "warm_minus_anew": estimate(change).as_dict(),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="tldr/en", help="collection under FULLRANK_DATA")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="keep bundles and collections here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = options.out or Path(scratch)
        source = (data_folder() / options.only).resolve()
        print(json.dumps(run(options.only, source, options.seed, out.resolve()), indent=2))


if __name__ == "__main__":
    main()
