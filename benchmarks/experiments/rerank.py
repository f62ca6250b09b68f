"""The second stage: what LambdaMART over the first 100 documents gains, and what it costs.

    python -m benchmarks.experiments.rerank [--only tldr/en,tldr/ko] [--systems auto,fielded,clicked] [--json]

Each system is trained, and a second stage is fitted on its validation queries by five-fold cross-fitting, as
`fullrank train --rerank` does. The gain on validation decides; the test split is measured once, with the second stage
that the bundle would get.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.harness.lab import Lab, collection_folder, parser
from benchmarks.harness.report import Table
from benchmarks.harness.store import Result, System, Task, folder_fingerprint, recipe_identity
from fullrank.measures import Float64, estimate
from fullrank.retrieval import Retriever
from fullrank_trainer.evaluation.evaluate import Judgement, query_texts
from fullrank_trainer.rerank.candidates import collect
from fullrank_trainer.rerank.decide import Decision, second_stage
from fullrank_trainer.train import Trainer
from fullrank_trainer.training.fitted import FittedModel

COLLECTIONS = ("tldr/en", "tldr/ko")
SYSTEMS = (System("auto"), System("fielded"), System("clicked"))
MEASURE = "map"
SECONDS = 0.0
HEADINGS = (
    "system", "valid MAP", "with", "gain", "test MAP", "with", "gain",
    "trees", "ms", "decision",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, measure and report."""
    options = parser(__doc__, collections=COLLECTIONS, seconds=SECONDS, queries=0)
    given = options.parse_args(arguments)
    tables = []
    with Lab("rerank", given) as lab:
        for name in given.only:
            task = Task(name, collection_folder(name))
            systems = [s for s in SYSTEMS if not given.systems or s.name in given.systems]
            results = {system.name: measured(lab, task, system) for system in systems}
            tables.append(table(task, results))
        lab.tell(tables)


def measured(lab: Lab, task: Task, system: System) -> Result:
    """Train a system with a second stage, or return the stored result."""
    recipe = lab.recipe(system, task)

    def work() -> tuple[Sequence[str], Mapping[str, Float64], Mapping[str, Any]]:
        trainer = lab.trainer(task.folder)
        fitted = trainer.search(recipe).fitted
        found = second_stage(
            trainer.corpus, fitted, lab.report, seed=trainer.seed, threads=trainer.threads
        )
        judgements, _ = lab.judgements(task)
        first, second = on_test(trainer, fitted, judgements, found)
        values = {"first": found.first[MEASURE], "second": found.second[MEASURE]}
        return found.queries, values, {**found.card, "test": gain_of(first, second)}

    identity = {
        "recipe": recipe_identity(recipe),
        "collection": folder_fingerprint(task.folder),
        "queries": lab.given.queries,
    }
    return lab.keep(task.name, system.name, identity, work)


def on_test(
    trainer: Trainer, fitted: FittedModel, judgements: Sequence[Judgement], found: Decision
) -> tuple[Float64, Float64]:
    """Return MAP of each test query by the first stage and with the second."""
    corpus, documents = trainer.corpus, fitted.documents
    place = corpus.query_ids.rows
    ids = [judgement.query for judgement in judgements]
    rows = np.array([place[query] for query in ids], np.int64)
    candidates = collect(
        Retriever(documents, fitted.model.scorer(documents)),
        fitted.encode(rows),
        query_texts(corpus.collection, fitted.model, ids),
        judgements,
        found.stage,
        found.facts,
    )
    scores = [found.stage.trees.predict(features) for features in candidates.features]
    return candidates.measure()[MEASURE], candidates.measure(scores)[MEASURE]


def gain_of(first: Float64, second: Float64) -> dict[str, Any]:
    """Return both means, and the gain with its standard error over queries."""
    gain = estimate(second - first)
    return {
        "queries": len(first),
        "first": float(first.mean()),
        "second": float(second.mean()),
        "gain": gain.mean,
        "gain_se": gain.standard_error,
    }


def table(task: Task, results: Mapping[str, Result]) -> Table:
    """Return a table with one row a system."""
    rows = []
    for name, result in results.items():
        valid = gain_of(result.values["first"], result.values["second"])
        cells = [name]
        for found in (valid, result.facts["test"]):
            cells += [f"{found['first']:.3f}", f"{found['second']:.3f}"]
            cells.append(f"{found['gain']:+.3f} ± {found['gain_se']:.3f}")
        decision = "on" if result.facts["on"] else "off"
        rows.append([*cells, str(result.facts["trees"]), f"{result.facts['ms']:.2f}", decision])
    counted = next(iter(results.values()))
    title = (
        f"{task.name}: {len(counted.values['first']):,} queries of valid, "
        f"{counted.facts['test']['queries']:,} of test"
    )
    return Table(title, HEADINGS, rows)


if __name__ == "__main__":
    main()
