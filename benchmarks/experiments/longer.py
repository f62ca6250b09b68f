"""Experiment 1 for ten times as long, with harder negatives, and the candidates of the papers.

    python -m benchmarks.experiments.longer [--words 30000,0] [--hardest 1,8,32] [--systems ssi,ssi-hardest-8]
                                   [--seconds 250] [--set key=value]... [--folder DIR] [--out DIR] [--json | --markdown]

The systems of tables 3 and 4 of Bai et al. 2009 on debian under the margin loss; linear ones once for each k of
``--hardest``: the negative is the hardest of k random documents. --seconds are processor seconds of one thread, so
other programs on the machine do not shorten a fit; set NUMBA_NUM_THREADS=1 and OMP_NUM_THREADS=1. 250 allow seven to
ten times the passes of the 20 s of ``documents``.

The papers rank the linked documents among 10,000 random others for MAP and P@10, not among all documents. The measures
"MAP of 10k" and "P@10 of 10k" do the same; a query has the same candidates for every system.

--folder measures another linked collection instead, such as that of ``benchmarks.performance.linked``.

The findings are tested twice: with k = 1, as in the papers, and with the k of the best MAP on validation.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np

from benchmarks.experiments.documents import (
    FREQUENT,
    LIMITED,
    LIMITED_CHECKS,
    SETTINGS,
    UNLIMITED,
    UNLIMITED_CHECKS,
)
from benchmarks.harness.claims import Finding, compare
from benchmarks.harness.lab import Lab, collection_folder, parser
from benchmarks.harness.measuring import encode_queries, ranked, retriever_of
from benchmarks.harness.report import numbers
from benchmarks.harness.store import Result
from benchmarks.harness.tables import NAMES, NOTHING, Table, figure, paper_figure
from benchmarks.harness.task import System, Task
from fullrank.encoding import Float32
from fullrank.measures import Float64, average_precision, precision
from fullrank_trainer.evaluation.judgement import Judgement
from fullrank_trainer.train import Trainer
from fullrank_trainer.training import loop
from fullrank_trainer.training.fitted import FittedModel

COLLECTIONS = ("debian", "wikispeedia")
SECONDS = 250
QUERIES = 1000
HARDEST = (1, 8, 32)
# One epoch is two passes over the links of debian, so that validation takes less of the time.
LONGER = (*SETTINGS, "triples=240000", "epochs=1000", "patience=10")
CANDIDATES = 10_000
MAP_OF, P10_OF = "MAP of 10k", "P@10 of 10k"
# Measure → the key of the paper's figure.
SHOWN = {"rank_loss": "rank_loss", "map": "", MAP_OF: "map", P10_OF: "p@10"}
TESTED = ("rank_loss", "map", MAP_OF)
_BATCH = 64


@contextmanager
def processor_clock() -> Iterator[None]:
    """Let the time limit of a fit count the processor time of this process."""
    with patch.object(loop, "time", SimpleNamespace(monotonic=time.process_time)):
        yield


def among_few(
    trainer: Trainer, found: FittedModel, judgements: Sequence[Judgement]
) -> dict[str, Float64]:
    """Measure rankings of the whole collection, and MAP and P@10 as in the papers."""
    values = ranked(trainer, found, judgements)
    values |= {name: np.zeros(len(judgements)) for name in (MAP_OF, P10_OF)}
    retriever, queries = retriever_of(found), encode_queries(trainer, found, judgements)
    for start in range(0, len(judgements), _BATCH):
        batch = judgements[start : start + _BATCH]
        scores = retriever.scores(queries.slice(start, start + len(batch)))
        for i, judgement in enumerate(batch):
            grades = grades_among(scores[i], judgement, CANDIDATES)
            average = average_precision(grades, len(judgement.relevant))
            values[MAP_OF][start + i] = average
            values[P10_OF][start + i] = precision(grades, 10)
    return values


def grades_among(scores: Float32, judgement: Judgement, others: int) -> np.ndarray:
    """Return 1 or 0 at every rank: the relevant documents and ``others`` random ones, by score; ties by row.

    The random documents depend on the query's id only.
    """
    drawn = np.random.default_rng(zlib.crc32(judgement.query.encode())).permutation(len(scores))
    taken = np.concatenate([judgement.relevant, judgement.excluded])
    drawn = drawn[~np.isin(drawn, taken)][:others]
    rows = np.sort(np.concatenate([judgement.relevant, drawn]))
    order = rows[np.argsort(-scores[rows], kind="stable")]
    return np.isin(order, judgement.relevant).astype(np.int64)


def variants(
    lab: Lab, task: Task, systems: Sequence[System], choices: Sequence[int]
) -> list[System]:
    """Return the systems without training or with the margin loss; linear ones once for each k."""
    found = []
    for system in systems:
        recipe = lab.recipe(system, task)
        if recipe.system not in ("linear", "pairs") or recipe.train.loss == "softmax":
            continue
        takes = recipe.system == "linear" and recipe.train.loss == "margin"
        found += [harder(system, k) for k in (choices if takes else (1,))]
    return found


def harder(system: System, k: int) -> System:
    """Return the system with the hardest of k negatives."""
    if k == 1:
        return system
    return replace(
        system,
        name=f"{system.name}-hardest-{k}",
        recipe=system.recipe_name,
        overrides=(*system.overrides, f"hardest_of={k}"),
    )


def valid_map(result: Result) -> float:
    """Return the MAP on validation."""
    return float(result.facts["valid"]["map"])


def chosen(results: Mapping[str, Result], choices: Sequence[int]) -> dict[str, Result]:
    """Return the result of each system at the k with the best MAP on validation."""
    found: dict[str, Result] = {}
    for name, result in results.items():
        base = name.partition("-hardest-")[0]
        if base not in found or valid_map(result) > valid_map(found[base]):
            found[base] = result
    return found


def table(task: Task, systems: Sequence[System], results: Mapping[str, Result]) -> Table:
    """Return a row for each result, with the paper's figures next to the measures that they belong to."""
    headings = ["system", "W", "k"]
    for measure, key in SHOWN.items():
        headings += [NAMES.get(measure, measure)] + (["paper"] if key else [])
    headings += ["MAP on valid", "processor s", "rate, best epoch of all"]
    rows = []
    for system in systems:
        result = results.get(system.name)
        if result is None:
            continue
        facts = result.facts["training"]
        k = result.facts["settings"]["train"]["hardest_of"]
        row = [system.name.partition("-hardest-")[0], system.formula, str(k)]
        for measure, key in SHOWN.items():
            row.append(figure(result.estimate(measure), measure))
            row += [paper_figure(system.paper, key)] if key else []
        history = facts.get("history", [])
        spent = f"{sum(line['seconds'] for line in history):.0f}" if history else NOTHING
        tried = {r: e for r, e in result.facts["rates_tried"].items() if e is not None}
        rate = min(tried, key=tried.__getitem__) if tried else NOTHING
        ended = f"{rate}, {facts['best_epoch']} of {len(history)}" if history else NOTHING
        rows.append([*row, f"{valid_map(result):.3f}", spent, ended])
    return Table(task.name, headings, rows, left=2)


def findings(where: str, words: int, results: Mapping[str, Result]) -> list[Finding]:
    """Test the papers' statements."""
    checks = LIMITED_CHECKS if words else UNLIMITED_CHECKS
    return [
        compare(claim, where, results, better, worse, measure, rule=rule)
        for claim, better, worse, rule in checks
        if {better, worse} <= set(results)
        for measure in TESTED
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, measure and report."""
    options = parser(
        __doc__, collections=COLLECTIONS, seconds=SECONDS, queries=QUERIES, default=("debian",)
    )
    options.add_argument(
        "--words", type=numbers, default=[FREQUENT, 0], help="words kept, 0: all; default 30000,0"
    )
    options.add_argument(
        "--hardest", type=numbers, default=list(HARDEST), help="k of the negatives; default 1,8,32"
    )
    options.add_argument("--folder", type=Path, help="a collection to measure instead of --only")
    given = options.parse_args(arguments)
    tables: list[Table] = []
    found: list[Finding] = []
    folders = (
        {given.folder.name: given.folder}
        if given.folder
        else {name: collection_folder(name) for name in given.only}
    )
    with Lab("longer", given) as lab, processor_clock():
        for name, folder in folders.items():
            for words in given.words:
                setting = f"{words:,} words" if words else "all words"
                where = f"{name}, {setting}"
                task = Task(where, folder, (*LONGER, f"words={words}"))
                systems = variants(lab, task, LIMITED if words else UNLIMITED, given.hardest)
                results = lab.run(task, systems, among_few)
                tables.append(table(task, systems, results))
                plain = {name: one for name, one in results.items() if "-hardest-" not in name}
                found += findings(f"{where}, k = 1", words, plain)
                found += findings(f"{where}, best k", words, chosen(results, given.hardest))
        lab.tell(tables, found)


if __name__ == "__main__":
    main()
