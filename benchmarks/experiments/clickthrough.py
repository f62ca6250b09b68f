"""Experiment 6, query to text with clicks: the topic, translation and projection models and DSSM on tldr/en.

    python -m benchmarks.experiments.clickthrough [--systems bm25,unigram,bltm-pr] [--queries 2000] [--seconds 90]
                                      [--set key=value]... [--seed 1] [--out DIR] [--fresh] [--json | --markdown]

A query is a sentence that describes one example on a command's page; that page counts as clicked. Gao, Toutanova and
Yih 2011 rank about 15 judged titles per query with five grades. Here all 7,425 pages are candidates and one is
relevant, so a model without the words themselves has a far harder task: compare the order of the systems, not their
figures. Their documents are titles; here the title of a page is only the name of its command, so all its text is
read.

The weights of a mix (λ₁, λ₂ of the language models, α of the projections) come from two-fold cross validation on the
test queries, as in the paper; everything else is learned on train. "Alone" is λ₂ = 0, the model without the words of
the document. Differences are tested by a paired, two-sided t-test.

The paper's documents have no clicks in training. Here nearly all pages were clicked for other queries, so a model of
words learns which queries lead to the rare words of a page. Queries whose page was never clicked in training are the
paper's case and get their own column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.experiments.crossing import crossed_alpha, crossed_weights
from benchmarks.experiments.folds import paired_t_test
from benchmarks.harness import plots
from benchmarks.harness.claims import Finding, compare
from benchmarks.harness.lab import Lab, collection_folder, parser
from benchmarks.harness.store import Result, folder_fingerprint
from benchmarks.harness.tables import NOTHING, Table, figure
from benchmarks.harness.task import System, Task
from fullrank.measures import Float64, estimate

COLLECTIONS = ("tldr/en",)
SECONDS = 90
MEASURES = ("ndcg@1", "ndcg@3", "ndcg@10", "mrr")
MAIN = "ndcg@10"
# One value of each weight, because nothing is chosen on validation here.
FIXED = ("lambda1=0.2", "valid_queries=50")
MIX = "model.alpha=0.5"


def paper(*figures: float) -> dict[str, float]:
    """Return a row of the paper's tables: NDCG@1, NDCG@3, NDCG@10."""
    return dict(zip(MEASURES, figures, strict=False))


def _alone(name: str, formula: str, *figures: float) -> System:
    return System(f"{name} alone", name, (*FIXED, "lambda2=0"), formula, paper(*figures))


def _mixed(name: str, formula: str, *figures: float) -> System:
    return System(name, "", (*FIXED, "lambda2=0.5"), formula, paper(*figures))


def _with_tfidf(name: str, formula: str, *figures: float) -> System:
    mix = f"trials={MIX}"
    return System(f"{name}-tfidf", "", (mix,), f"α {formula} + (1 − α) I", paper(*figures))


LANGUAGE = (
    System("unigram", overrides=FIXED, formula="UM", paper=paper(0.308, 0.373, 0.454)),
    _alone("plsa", "PLSA", 0.295, 0.371, 0.456),
    _mixed("plsa", "UM + PLSA", 0.325, 0.391, 0.470),
    _alone("bltm", "BLTM", 0.330, 0.399, 0.476),
    _mixed("bltm", "UM + BLTM", 0.338, 0.404, 0.479),
    _alone("bltm-pr", "BLTM-PR", 0.334, 0.403, 0.479),
    _mixed("bltm-pr", "UM + BLTM-PR", 0.342, 0.406, 0.482),
    _alone("bltm-pr-1v", "BLTM-PR-1V", 0.337, 0.403, 0.480),
    _mixed("bltm-pr-1v", "UM + BLTM-PR-1V", 0.344, 0.407, 0.483),
    _alone("word-translation", "WTM", 0.332, 0.400, 0.478),
    _mixed("word-translation", "UM + WTM", 0.338, 0.404, 0.480),
    System(
        "bltm-pr, 300 topics",
        "bltm-pr",
        ("model.dimension=300", *FIXED, "lambda2=0.5"),
        "UM + BLTM-PR",
    ),
)
ALONE = (
    System("tfidf", formula="VSM", paper=paper(0.313, 0.379, 0.460)),
    System("lsa", formula="LSA", paper=paper(0.298, 0.372, 0.455)),
    System("cl-lsa", formula="CL-LSA", paper=paper(0.298, 0.370, 0.454)),
    System("opca", formula="OPCA", paper=paper(0.306, 0.373, 0.454)),
    System("s2net", formula="S2Net", paper=paper(0.329, 0.401, 0.479)),
)
MIXED = (
    _with_tfidf("lsa", "LSA", 0.330, 0.396, 0.474),
    _with_tfidf("cl-lsa", "CL-LSA", 0.330, 0.396, 0.474),
    _with_tfidf("opca", "OPCA", 0.328, 0.395, 0.473),
    _with_tfidf("s2net", "S2Net", 0.340, 0.407, 0.483),
)
OTHERS = (
    System("bm25", overrides=("spelling=0", "title=1", "title_forms=false"), formula="BM25"),
    System("dssm", overrides=("train.epochs=60",), formula="DSSM", time_factor=3),
    System("dssm-batch", formula="DSSM, in-batch negatives"),
    System("dssm-modern", formula="the same beside the fielded model"),
    System("fielded", formula="UᵀV + Σ D_f + b"),
    System("clicked", formula="the same with clicked text, mean of three fits"),
    System("best", formula="clicked text, mixed with WTM"),
)
LINEAR = (
    "tfidf", "bm25", "lsa", "cl-lsa", "opca", "s2net", *(s.name for s in MIXED), "fielded", "clicked"
)  # fmt: skip

# (statement, the system that should be better, than which, how)
CHECKS = (
    ("bltm-unigram", "bltm-pr", "unigram", "beats"),
    ("bltm-pr", "bltm-pr", "bltm", "equals"),
    ("bltm-pr", "bltm-pr alone", "bltm alone", "equals"),
    ("bltm", "bltm", "plsa", "equals"),
    ("bltm", "bltm alone", "plsa alone", "equals"),
    ("bltm-pr-1v", "bltm-pr-1v", "bltm-pr", "equals"),
    ("bltm-pr-translation", "bltm-pr", "word-translation", "beats"),
    *(
        ("mixture", mixed, "unigram", "beats")
        for mixed in ("plsa", "bltm", "bltm-pr-1v", "word-translation")
    ),
    ("s2net", "s2net", "opca", "beats"),
    ("s2net", "s2net", "cl-lsa", "beats"),
    ("s2net", "s2net-tfidf", "opca-tfidf", "beats"),
    ("s2net", "s2net-tfidf", "cl-lsa-tfidf", "beats"),
    *(
        ("dssm-linear", dssm, linear, "beats")
        for dssm in ("dssm", "dssm-batch", "dssm-modern")
        for linear in ("lsa", "cl-lsa", "opca", "s2net")
    ),
)


def clicked(lab: Lab, task: Task) -> npt.NDArray[np.bool_]:
    """Return which measured queries have only relevant pages that were not clicked in training."""

    def work() -> tuple[list[str], dict[str, Float64], dict[str, Any]]:
        trained = lab.trainer(task.folder).corpus.pairs.relevant.values()
        known = np.unique(np.concatenate(list(trained)))
        judgements, _ = lab.judgements(task)
        seen = [bool(np.isin(judgement.relevant, known).all()) for judgement in judgements]
        values = {"clicked": np.array(seen, np.float64)}
        return [judgement.query for judgement in judgements], values, {}

    identity = {"collection": folder_fingerprint(task.folder), "queries": lab.given.queries}
    return lab.keep(task.name, "clicked pages", identity, work).values["clicked"] > 0


def by_clicks(
    where: str, results: Mapping[str, Result], seen: npt.NDArray[np.bool_]
) -> list[Table]:
    """Return NDCG@10 of queries with pages clicked in training and of the others, if both exist."""
    if seen.all() or not seen.any():
        return []
    everything = np.ones_like(seen)
    rows = [
        [name, *(figure(estimate(found.values[MAIN][p]), MAIN) for p in (seen, ~seen, everything))]
        for name, found in results.items()
    ]
    counts = [f"{int(part.sum()):,}" for part in (seen, ~seen)]
    headings = ["system", f"clicked ({counts[0]} queries)", f"never ({counts[1]} queries)", "all"]
    return [Table(f"{where}: NDCG@10 by whether the page was clicked in training", headings, rows)]


def findings(where: str, results: Mapping[str, Result]) -> list[Finding]:
    """Test the paper's statements by NDCG@10, and the distance of DSSM from the best linear model."""
    found = [
        compare(claim, where, results, better, worse, MAIN, rule=rule)
        for claim, better, worse, rule in CHECKS
    ]
    best = "fielded"
    if set(LINEAR) <= set(results):
        best = max(LINEAR, key=lambda name: results[name].estimate("mrr").mean)
    near = compare(
        "dssm-best", where, results, "dssm-modern", best, "mrr", rule="equals", margin=0.03
    )
    return [*found, near]


def against_each_other(where: str, results: Mapping[str, Result]) -> Table:
    """Return p of the paired t-test of every two systems, by NDCG@10: + if the row is better than the column."""
    names = sorted(results, key=lambda name: -results[name].estimate(MAIN).mean)
    rows = []
    for i, name in enumerate(names):
        cells = [_cell(results, name, other) if other != name else "" for other in names]
        rows.append([str(i + 1), name, f"{results[name].estimate(MAIN).mean:.3f}", *cells])
    headings = ["", "system", "NDCG@10", *(str(i + 1) for i in range(len(names)))]
    notes = ["two-sided, over the same queries; + the line is better, − the column is"]
    return Table(f"{where}: p of the paired t-test", headings, rows, notes, left=2)


def _cell(results: Mapping[str, Result], name: str, other: str) -> str:
    found = paired_t_test(results[name].values[MAIN], results[other].values[MAIN])
    p = "<.001" if found.p < 0.001 else f"{found.p:.3f}".removeprefix("0")
    return ("+" if found.difference > 0 else "−") + p


def chosen_weights(result: Result) -> str:
    """Describe the weights that the two halves of the queries were measured with; "" if none were chosen."""
    parts = {"λ₁": "lambda1", "λ₂": "lambda2", "α": "alpha"}
    return ", ".join(
        f"{sign} = {' and '.join(f'{weight:g}' for weight in np.unique(result.values[key]))}"
        for sign, key in parts.items()
        if key in result.values
    )


def projection_cost(lab: Lab, results: Mapping[str, Result]) -> list[Path]:
    """Plot the dual and the evaluations of its gradient per pair, by iteration: the paper's figure 2."""
    panels = {}
    for name in ("bltm-pr", "bltm-pr-1v"):
        if name in results:
            values = np.array(results[name].facts["training"]["evaluations"])
            values = values[values[:, 0] > 0]
            iterations = list(range(1, len(values) + 1))
            panels[name] = {
                "function": (iterations, values[:, 0].tolist()),
                "gradient": (iterations, values[:, 1].tolist()),
            }
    if not panels:
        return []
    path = lab.store.folder / "projection.svg"
    return [plots.curves(path, panels, x="iteration of EM", y="evaluations a pair")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, measure and report."""
    given = parser(__doc__, collections=COLLECTIONS, seconds=SECONDS).parse_args(arguments)
    tables: list[Table] = []
    found: list[Finding] = []
    drawn: list[Path] = []
    folders = {name: collection_folder(name) for name in given.only}
    with Lab("clickthrough", given) as lab:
        for name, folder in folders.items():
            task = Task(name, folder)
            language = lab.run(task, LANGUAGE, crossed_weights)
            projected = lab.run(task, ALONE) | lab.run(task, MIXED, crossed_alpha)
            results = language | projected | lab.run(task, OTHERS)
            for title, systems in (
                (f"{name}, language models", LANGUAGE),
                (f"{name}, projections", (*ALONE, *MIXED)),
                (f"{name}, others", OTHERS),
            ):
                table = lab.table(task, systems, results, measures=MEASURES, title=title)
                tables.append(_with_weights(table, results))
            tables += by_clicks(name, results, clicked(lab, task))
            tables.append(against_each_other(name, results))
            found += findings(name, results)
            drawn += projection_cost(lab, results)
        lab.tell(tables, found, drawn)


def _with_weights(table: Table, results: Mapping[str, Result]) -> Table:
    """Return a table whose second column names the model, and whose last has the cross-validated weights."""
    headings = ["model" if heading == "W" else heading for heading in table.headings]
    rows = []
    for row in table.rows:
        crossed = chosen_weights(results[row[0]]) if row[0] in results else ""
        settings = row[-1].removesuffix(MIX).removesuffix(", ").replace(NOTHING, "")
        rows.append([*row[:-1], ", ".join(filter(None, (settings, crossed))) or NOTHING])
    return replace(table, headings=headings, rows=rows)


if __name__ == "__main__":
    main()
