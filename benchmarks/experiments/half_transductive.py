"""Experiment 7, half transductive ranking without labels: articles by category, digits by a graph.

    python -m benchmarks.experiments.half_transductive [--only wikispeedia,digits] [--systems lsi,htr-reconstruction]
                                           [--queries 0] [--seconds 120] [--splits 5] [--set key=value]...
                                           [--seed 1] [--out DIR] [--fresh] [--json | --markdown]

**wikispeedia**: held-out articles are queries, the other articles documents; relevance is the share of the category
path that two articles have in common. No model sees a category; other held-out articles select the epoch and the mix
with tf-idf. The plot is the mean relevance of the first k documents against k (the paper's figure 1, on another
corpus).

**digits**: the graph model on scikit-learn's digits, over random splits. The paper's figures (table 1) are for USPS,
with four times the pixels and five times the digits: the same task on other data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.experiments import digits as handwriting
from benchmarks.experiments.categories import GRADES, graded_precision, write_categories
from benchmarks.harness import plots
from benchmarks.harness.claims import Finding, compare
from benchmarks.harness.lab import Lab, collection_folder, parser
from benchmarks.harness.measuring import encode_queries, retriever_of
from benchmarks.harness.store import Result
from benchmarks.harness.tables import NOTHING, Table, figure, paper_figure
from benchmarks.harness.task import System, Task
from fullrank.measures import Float64
from fullrank_trainer.evaluation.judgement import Judgement
from fullrank_trainer.train import Trainer
from fullrank_trainer.training.fitted import FittedModel

COLLECTIONS = ("wikispeedia", "digits")
SECONDS = 120
DIMENSION = 100  # N of every model, as in the paper

SYSTEMS = (
    System("tfidf", formula="tf-idf"),
    System("lsi", formula="cos(Bᵀq, Bᵀd)"),
    System("eigenmaps", formula="cos(Pq, Pd)"),
    System("htr-reconstruction", formula="cos(v_i, Wq), reconstruction"),
    System(
        "htr-reconstruction γ=0",
        "htr-reconstruction",
        ("htr.gamma=0",),
        "cos(v_i, Wq), hinge alone",
    ),
    System("htr-graph", formula="v_iᵀWq, graph of neighbours"),
)
DEPTHS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000, 2000)
SHOWN = (1, 10, 100, 1000)
_CHECKS = tuple(("htr-reconstruction", other) for other in ("lsi", "tfidf"))


def name_of(depth: int) -> str:
    """Return the name of the measure."""
    return f"relevance@{depth}"


def graded(
    trainer: Trainer, found: FittedModel, judgements: Sequence[Judgement]
) -> dict[str, Float64]:
    """Return the mean relevance of the first k documents of each query, for every k of DEPTHS."""
    queries, retriever = encode_queries(trainer, found, judgements), retriever_of(found)
    parts = []
    for start in range(0, len(judgements), 100):
        batch = judgements[start : start + 100]
        relevant = np.zeros((len(batch), len(found.documents)))
        for line, judgement in zip(relevant, batch, strict=True):
            line[judgement.relevant] = judgement.grades / GRADES
        scores = retriever.scores(queries.slice(start, start + len(batch)))
        parts.append(graded_precision(np.asarray(scores, np.float64), relevant, DEPTHS))
    values = np.concatenate(parts)
    return {name_of(depth): values[:, i].copy() for i, depth in enumerate(DEPTHS)}


def articles(lab: Lab, folder: Path) -> tuple[Table, list[Finding], list[Path]]:
    """Return table, findings and curve of the articles."""
    lab.report.log("deriving", collection=folder.name)
    target = write_categories(
        lab.collection(folder), folder / "categories.tsv", lab.scratch / "categories",
        seed=lab.given.seed,
    )  # fmt: skip
    settings = ("words=30000", f"model.dimension={DIMENSION}", "valid_queries=0")
    task = Task("wikispeedia, categories", target, settings, exclude=())
    results = lab.run(task, SYSTEMS, graded)
    table = lab.table(
        task, SYSTEMS, results, measures=[name_of(depth) for depth in SHOWN]
    )  # fmt: skip
    found = [
        compare("reconstruction", task.name, results, better, worse, name_of(depth))
        for better, worse in _CHECKS
        for depth in SHOWN[1:]
    ]
    if not results:
        return table, found, []
    lines = {
        name: (DEPTHS, [result.estimate(name_of(depth)).mean for depth in DEPTHS])
        for name, result in results.items()
    }
    drawn = plots.curves(
        lab.store.folder / "precision.svg",
        {"wikispeedia, categories": lines},
        x="documents retrieved",
        y="mean relevance",
        log_x=True,
    )
    return table, found, [drawn]


def splits(lab: Lab, count: int) -> dict[str, Result]:
    """Return the error of each method on each split."""
    seeds = [lab.given.seed + i for i in range(count)]
    found: dict[str, Result] = {}
    for name, (method, _) in handwriting.METHODS.items():
        if lab.given.systems and name not in lab.given.systems:
            continue

        def work(
            method: handwriting.Method = method,
        ) -> tuple[list[str], dict[str, Float64], dict[str, Any]]:
            errors = [method(handwriting.split(seed), DIMENSION) for seed in seeds]
            return [f"split {seed}" for seed in seeds], {"1nn_error": np.array(errors)}, {}

        identity = {
            "data": "scikit-learn digits",
            "splits": seeds,
            "dimension": DIMENSION,
            "neighbours": handwriting.NEIGHBOURS,
            "sigma": handwriting.SIGMA,
            "smallest": handwriting.SMALLEST,
            "linear": handwriting.LINEAR,
            "rbf": handwriting.RBF,
        }
        found[name] = lab.keep("digits", name, identity, work)
    return found


def digits_table(results: Mapping[str, Result]) -> Table:
    """Return a row per method; the error is the mean over splits."""
    rows = []
    for name, result in results.items():
        paper = handwriting.METHODS[name][1]
        paper_figures = {} if paper is None else {"1nn_error": paper}
        values = result.values["1nn_error"]
        rows.append(
            [
                name,
                figure(result.estimate("1nn_error"), "1nn_error"),
                paper_figure(paper_figures, "1nn_error"),
                " ".join(f"{100 * value:.2f}" for value in values) or NOTHING,
            ]
        )
    some = next(iter(results.values()), None)
    sizes = "" if some is None else f": {len(some.queries)} splits, N = {DIMENSION}"
    return Table(f"digits{sizes}", ("method", "1-NN error %", "paper, USPS", "each split"), rows)


def embedded(lab: Lab) -> Path:
    """Plot two dimensions: v_i of training digits, Wφ(x) of test digits, the same split."""
    one = handwriting.split(lab.given.seed)
    train, test = handwriting.half_transductive(one, 2, "rbf", handwriting.PLANE)
    return plots.points(
        lab.store.folder / "digits.svg",
        {
            "training digits, v_i": (train[::3], one.train_class[::3]),
            "test digits, Wφ(x)": (test, one.test_class),
        },
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, measure and report."""
    options = parser(__doc__, collections=COLLECTIONS, seconds=SECONDS, queries=0)
    options.add_argument("--splits", type=int, default=5, help="of the digits; default 5")
    given = options.parse_args(arguments)
    tables: list[Table] = []
    found: list[Finding] = []
    drawn: list[Path] = []
    with Lab("half_transductive", given) as lab:
        if "wikispeedia" in given.only:
            table, findings, paths = articles(lab, collection_folder("wikispeedia"))
            tables.append(table)
            found += findings
            drawn += paths
        if "digits" in given.only:
            results = splits(lab, given.splits)
            tables.append(digits_table(results))
            found.append(
                compare(
                    "graph", "digits", results, "half transductive, RBF", "eigenmaps, extended",
                    "1nn_error", rule="equals",
                )
            )  # fmt: skip
            if not given.systems:
                drawn.append(embedded(lab))
        lab.tell(tables, found, drawn)


if __name__ == "__main__":
    main()
