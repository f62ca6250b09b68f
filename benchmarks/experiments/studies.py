"""Experiment 2, why UᵀV + I works: identity, dimension, start, split, number of links, when to stop.

    python -m benchmarks.experiments.studies [--only wikispeedia,debian] [--studies split,dimension,...]
                                 [--queries 2000]
                                 [--seconds 20] [--set key=value]... [--seed 1] [--out DIR] [--fresh]
                                 [--json | --markdown]

identity    UᵀV + I against UᵀV, and LSI with tf-idf against LSI
dimension   N = 50, 100, 200, 500
start       the standard deviation of U and V at the start, 1 (the paper's) to 0.01; rates below the one that training
            error selects; ten times the training time; and the same models with the softmax loss
split       the same test links with a model trained on other links of their documents, and with one trained on as
            many links that touch none of these documents
share       1, 4, 10, 30 and 100 % of the training links, for the margin loss and for the softmax loss
curves      training loss and validation MAP against the number of triples, for three shares and three dimensions,
            beyond the epoch that early stopping selects (starred)

30,000 words throughout, as in the paper (Bai et al. 2009, tables 5 and 9, section 4.1; 2010, section 4.5).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from benchmarks.experiments.documents import FREQUENT, MEASURES, SETTINGS, SOFTMAX, paper
from benchmarks.harness import plots
from benchmarks.harness.claims import Finding, compare, observed
from benchmarks.harness.derive import keep_share, split_two_ways, write_splits
from benchmarks.harness.lab import Lab, collection_folder, parser
from benchmarks.harness.store import Result
from benchmarks.harness.tables import NAMES, SHOWN, Table, figure, paper_figure, settled
from benchmarks.harness.task import System, Task

COLLECTIONS = ("wikispeedia", "debian")
SECONDS = 20
SHARES = (1, 4, 10, 30, 100)
SHARES_PAPER = {1: 0.025, 4: 0.020, 10: 0.014, 30: 0.011}
CURVES = {"shares": (1, 10, 100), "dimensions": (50, 100, 500)}
CURVE_TRIPLES = 7_000
# "Alike" allows half a percent of rank loss and a hundredth of MAP in either direction.
ALIKE = {"rank_loss": 0.005, "map": 0.01}


def limited(name: str) -> tuple[str, ...]:
    """Return the settings of every system on a collection."""
    return (*SETTINGS, f"words={FREQUENT}")


@dataclass
class StudyReport:
    """Tables, findings and plots of the studies."""

    tables: list[Table] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    plots: list[Path] = field(default_factory=list)


def base(name: str, folder: Path) -> Task:
    """Return the unchanged collection."""
    return Task(f"{name}, 30,000 words", folder, limited(name))


def identity(lab: Lab, name: str, folder: Path, report: StudyReport) -> None:
    """Compare models with and without the identity."""
    systems = [
        System("ssi", formula="UᵀV + I", paper={"map": 0.51}),
        System("ssi no identity", "ssi", ("match=none",), "UᵀV", {"map": 0.42}),
        System("lsi-tfidf", formula="α LSI + (1 − α) I", paper=paper(1.28, 0.346, 0.170)),
        System("lsi", formula="LSI", paper=paper(4.79, 0.158, 0.098)),
    ]
    task = base(name, folder)
    results = lab.run(task, systems)
    report.tables.append(lab.table(task, systems, results, title=f"identity: {task.name}"))
    for measure in MEASURES:
        report.findings += [
            compare("identity", task.name, results, "ssi", "ssi no identity", measure),
            compare("identity-lsi", task.name, results, "lsi-tfidf", "lsi", measure),
        ]


def dimension(lab: Lab, name: str, folder: Path, report: StudyReport) -> None:
    """Compare N = 50..500. The default, 100, is the fit of the identity study."""
    figures = {100: 0.0039, 200: 0.0030, 500: 0.0031}
    systems = [
        System(
            "ssi" if N == 100 else f"ssi N={N}",
            "ssi",
            () if N == 100 else (f"dimension={N}",),
            f"UᵀV + I, N = {N}",
            {"rank_loss": figures[N]} if N in figures else {},
        )
        for N in (50, 100, 200, 500)
    ]
    task = base(name, folder)
    results = lab.run(task, systems)
    report.tables.append(lab.table(task, systems, results, title=f"dimension: {task.name}"))
    report.findings += [
        compare(
            "dimension", task.name, results, first, second, measure,
            rule="alike", margin=ALIKE[measure],
        )
        for first, second in (("ssi N=200", "ssi"), ("ssi N=500", "ssi N=200"))
        for measure in MEASURES
    ]  # fmt: skip


def start(lab: Lab, name: str, folder: Path, report: StudyReport) -> None:
    """Vary scale of the start, rate, time and loss, to explain what is not reproduced."""
    softmax = ("train.loss=softmax", "epochs=8", "word_dropout=0.2")
    systems = [
        System("tfidf", formula="I"),
        *(
            System(
                "ssi" if scale == 0.05 else f"ssi init={scale:g}",
                "ssi",
                () if scale == 0.05 else (f"init={scale:g}",),
                f"UᵀV + I, Normal(0, {scale:g}²)",
            )
            for scale in (1.0, 0.2, 0.05, 0.01)
        ),
        *(
            System(f"ssi rate={rate:g}", "ssi", (f"rates={rate:g}",), f"UᵀV + I, rate {rate:g}")
            for rate in (0.003, 0.03)
        ),
        System(
            "ssi long",
            "ssi",
            ("epochs=1000", "patience=1000"),
            "UᵀV + I, ten times",
            time_factor=10,
        ),
        System("ssi softmax", "ssi", (*softmax, "init=0.1"), "UᵀV + I, softmax"),
        System("ssi-diagonal softmax", "ssi-diagonal", (*softmax, "init=0.1"), "UᵀV + D, softmax"),
    ]
    task = base(name, folder)
    results = lab.run(task, systems)
    report.tables.append(lab.table(task, systems, results, title=f"start and loss: {task.name}"))
    report.findings += [
        compare("supervision", task.name, results, system.name, "tfidf", measure)
        for system in systems[1:]
        for measure in MEASURES
    ]


def split(lab: Lab, name: str, folder: Path, report: StudyReport) -> None:
    """Compare splits by links and by documents, also for the softmax loss and the fielded model."""
    systems = [
        System("ssi", formula="UᵀV + I"),
        System("ssi softmax", "ssi", SOFTMAX, "UᵀV + I, softmax"),
        System("fielded", formula="UᵀV + Σ D_f + b"),
    ]
    ways = split_two_ways(lab.collection(folder), lab.given.seed)
    figures = {"links": paper(0.407, 0.506, 0.225), "documents": paper(0.401, 0.503, 0.225)}
    results: dict[str, dict[str, Result]] = {system.name: {} for system in systems}
    rows = []
    for way, splits in zip(figures, ways, strict=True):
        target = write_splits(folder, lab.scratch / f"{name}-by-{way}", splits)
        task = Task(
            f"{name}, partitioned by {way}",
            target,
            limited(name),
            exclude=("train", "valid", "other"),
        )
        for system, found in lab.run(task, systems).items():
            results[system][f"by {way}"] = found
            told_by = figures[way] if system == "ssi" else {}
            rows.append(_row(f"{system}, partitioned by {way}", found, told_by, SHOWN))
    title = f"split: {name}, the same test links"
    report.tables.append(Table(title, _headings("training links", SHOWN), rows))
    report.findings += [
        compare(
            "split", f"{name}, {system}", found, "by documents", "by links", measure,
            rule="alike", margin=ALIKE[measure],
        )
        for system, found in results.items()
        for measure in MEASURES
    ]  # fmt: skip


def share(lab: Lab, name: str, folder: Path, report: StudyReport) -> None:
    """Increase the share of training links."""
    systems = [System("ssi", formula="UᵀV + I"), System("fielded", formula="UᵀV + Σ D_f + b")]
    by_system: dict[str, dict[str, Result]] = {system.name: {} for system in systems}
    rows = []
    for percent in SHARES:
        task = share_task(lab, name, folder, percent)
        for system, result in lab.run(task, systems).items():
            by_system[system][f"{percent} %"] = result
    for system, results in by_system.items():
        for label, result in results.items():
            percent = int(label.split()[0])
            told_by = SHARES_PAPER.get(percent) if system == "ssi" else None
            line = {} if told_by is None else {"rank_loss": told_by}
            rows.append(_row(f"{system}, {label}", result, line, SHOWN))
    report.tables.append(
        Table(f"share of the training links: {name}", _headings("share", SHOWN), rows)
    )
    for system, results in by_system.items():
        if not results:
            continue
        report.findings += [
            compare("data", f"{name}, {system}", results, f"{more} %", f"{less} %", measure)
            for less, more in pairwise(SHARES)
            for measure in MEASURES
        ]
    lines = {
        system: (
            [float(label.split()[0]) for label in results],
            [100 * result.estimate("rank_loss").mean for result in results.values()],
        )
        for system, results in by_system.items()
        if results
    }
    if lines:
        path = lab.store.folder / f"share-{name}.svg"
        title = f"{name}: rank loss on test"
        report.plots.append(
            plots.curves(
                path, {title: lines}, x="% of the training links", y="rank loss, %", log_x=True
            )
        )


def share_task(lab: Lab, name: str, folder: Path, percent: int) -> Task:
    """Return the collection with a share of its training links, on unchanged candidates."""
    if percent == 100:
        return base(name, folder)
    splits = keep_share(lab.collection(folder), percent / 100, lab.given.seed)
    target = write_splits(folder, lab.scratch / f"{name}-{percent}", splits)
    # An epoch is half a pass, but at least long enough that measuring takes less time than training.
    triples = max(3_000, len(splits["train"]) // 2)
    return Task(
        f"{name}, {percent} % of the links",
        target,
        (*limited(name), f"triples={triples}"),
        exclude=("train", "valid", "unused"),
    )


def curves(lab: Lab, name: str, folder: Path, report: StudyReport) -> None:
    """Measure training loss and validation MAP per epoch, beyond the best one."""
    endless = (f"triples={CURVE_TRIPLES}", "epochs=1000", "patience=1000")
    systems = [
        System(f"curve N={N}", "ssi", (f"dimension={N}", *endless)) for N in CURVES["dimensions"]
    ]
    loss: dict[str, dict[str, plots.Curve]] = {}
    score: dict[str, dict[str, plots.Curve]] = {}
    stars: dict[str, dict[str, tuple[float, float]]] = {}
    rows, falls = [], {}
    for percent in CURVES["shares"]:
        title = f"{percent} % of the links"
        loss[title], score[title], stars[title] = {}, {}, {}
        task = share_task(lab, name, folder, percent)
        for system, result in lab.run(task, systems).items():
            history = result.facts["training"]["history"]
            line = system.removeprefix("curve ")
            seen = [epoch["epoch"] * CURVE_TRIPLES / 1000 for epoch in history]
            averages = [epoch["valid_map"] for epoch in history]
            loss[title][line] = (seen, [epoch["loss"] for epoch in history])
            score[title][line] = (seen, averages)
            best = max(averages)
            stars[title][line] = (seen[averages.index(best)], best)
            falls[percent, line] = (best - averages[-1]) / best if best else 0.0
            rows.append(
                [
                    f"{title}, {line}",
                    f"{len(history)}",
                    f"{stars[title][line][0]:.0f}k of {seen[-1]:.0f}k",
                    f"{history[-1]['loss']:.3f}",
                    f"{best:.3f}",
                    f"{averages[-1]:.3f}",
                ]
            )
    headings = ["fit", "epochs", "best after triples", "last loss", "best valid MAP", "last"]
    report.tables.append(Table(f"learning curves of UᵀV + I: {name}", headings, rows))
    if not any(loss.values()):
        return
    place = lab.store.folder
    x = "triples seen, thousands"
    report.plots += [
        plots.curves(place / f"curves-loss-{name}.svg", loss, x=x, y="training loss (mean hinge)"),
        plots.curves(
            place / f"curves-map-{name}.svg", score, x=x, y="MAP on validation", marks=stars
        ),
    ]
    few, many = CURVES["shares"][0], CURVES["shares"][-1]
    for N in CURVES["dimensions"]:
        line = f"N={N}"
        both = (few, line) in falls and (many, line) in falls
        report.findings.append(
            observed(
                "overfitting",
                name,
                f"{line}: fall of MAP after its best with {few} % > with {many} %",
                falls[few, line] > falls[many, line] if both else None,
                measure="fall of valid MAP",
                figures={f"{s} %": falls[s, line] for s in (few, many)} if both else None,
            )
        )


def _headings(first: str, measures: Sequence[str]) -> list[str]:
    pairs = [heading for measure in measures for heading in (NAMES[measure], "paper")]
    return [first, *pairs, "seconds", "settings"]


def _row(
    label: str, result: Result, reported: dict[str, float], measures: Sequence[str]
) -> list[str]:
    cells = [label]
    for measure in measures:
        cells += [figure(result.estimate(measure), measure), paper_figure(reported, measure)]
    return [*cells, f"{result.facts['fit_seconds']:.0f}", settled(result)]


STUDIES: dict[str, Callable[[Lab, str, Path, StudyReport], None]] = {
    "identity": identity,
    "dimension": dimension,
    "start": start,
    "split": split,
    "share": share,
    "curves": curves,
}


def _studies(text: str) -> list[str]:
    for name in text.split(","):
        if name not in STUDIES:
            raise argparse.ArgumentTypeError(f"no study {name!r}; there are: {', '.join(STUDIES)}")
    return text.split(",")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, measure and report."""
    options = parser(__doc__, collections=COLLECTIONS, seconds=SECONDS, default=COLLECTIONS[:1])
    options.add_argument(
        "--studies", type=_studies, default=list(STUDIES), help=f"of {', '.join(STUDIES)}"
    )
    given = options.parse_args(arguments)
    folders = {name: collection_folder(name) for name in given.only}
    report = StudyReport()
    with Lab("studies", given) as lab:
        for name, folder in folders.items():
            for study in given.studies:
                STUDIES[study](lab, name, folder, report)
        lab.tell(report.tables, report.findings, report.plots)


if __name__ == "__main__":
    main()
