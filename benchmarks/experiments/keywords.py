"""Experiment 3, keyword queries: k random words of an article find the articles that it links to.

    python -m benchmarks.experiments.keywords [--only wikispeedia,debian] [--systems tfidf,ssi] [--queries 2000]
                                  [--seconds 20] [--set key=value]... [--seed 1] [--out DIR] [--fresh]
                                  [--json | --markdown]

For k = 5, 10 and 20, the queries of all splits are k distinct words of each article, drawn once from its words among
the 30,000 most frequent of the corpus. Documents keep those 30,000 words, or all words in the last table. The paper's
figures (Bai et al. 2009, tables 6 and 7) are for Wikipedia: the same task on another corpus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.experiments.documents import FREQUENT, MEASURES, SETTINGS, paper
from benchmarks.harness.claims import Finding, compare
from benchmarks.harness.derive import write_keywords
from benchmarks.harness.lab import Lab, collection_folder, parser
from benchmarks.harness.store import Result
from benchmarks.harness.tables import Table
from benchmarks.harness.task import System, Task

COLLECTIONS = ("wikispeedia",)
SIZES = (5, 10, 20)
SECONDS = 20

_PAPER = {
    (5, "tfidf"): paper(21.6, 0.047, 0.023),
    (5, "lsi-tfidf"): paper(14.2, 0.049, 0.023),
    (5, "ssi-tied"): paper(4.80, 0.161, 0.079),
    (5, "ssi"): paper(4.37, 0.166, 0.083),
    (10, "tfidf"): paper(14.0, 0.083, 0.035),
    (10, "lsi-tfidf"): paper(9.73, 0.089, 0.037),
    (10, "ssi-tied"): paper(3.10, 0.2138, 0.095),
    (10, "ssi"): paper(2.91, 0.229, 0.100),
    (20, "tfidf"): paper(9.14, 0.128, 0.054),
    (20, "lsi-tfidf"): paper(6.36, 0.133, 0.059),
    (20, "ssi-tied"): paper(1.87, 0.287, 0.126),
    (20, "ssi"): paper(1.80, 0.302, 0.130),
}
_FORMULAS = {
    "tfidf": "I",
    "lsi-tfidf": "α LSI + (1 − α) I",
    "ssi-tied": "UᵀU + I",
    "ssi": "UᵀV + I",
}


def limited_systems(size: int) -> list[System]:
    """Return the systems of the paper's table 6 for one k."""
    return [
        System(name, formula=formula, paper=_PAPER.get((size, name), {}))
        for name, formula in _FORMULAS.items()
    ]


UNLIMITED = (
    System("tfidf", formula="I", paper=paper(12.86, 0.128, 0.035)),
    System(
        "lsi-tfidf",
        overrides=(f"latent_words={FREQUENT}",),
        formula="α LSI₃₀ₖ + (1 − α) I",
        paper=paper(8.95, 0.133, 0.051),
    ),
    System(
        "ssi-frequent n=30k",
        "ssi-frequent",
        (f"latent_words={FREQUENT}",),
        "(UᵀV)₃₀ₖ + I",
        paper(3.02, 0.261, 0.113),
    ),
    System("cfh-mixed", formula="(UᵀV)₃₀ₖ + I, CFH"),
    System("fielded", formula="UᵀV + Σ D_f + b"),
)


def limited_findings(task: Task, results: Mapping[str, Result]) -> list[Finding]:
    """Test the claims on 30,000 words."""
    checks = (
        ("supervision", "tfidf", "beats"),
        ("supervision", "lsi-tfidf", "beats"),
        ("asymmetric", "ssi-tied", "equals"),
    )
    return [
        compare(claim, task.name, results, "ssi", other, measure, rule=rule)
        for measure in MEASURES
        for claim, other, rule in checks
    ]


def unlimited_findings(task: Task, results: Mapping[str, Result]) -> list[Finding]:
    """Test the claims on all words."""
    own = "ssi-frequent n=30k"
    checks = (
        ("supervision", own, "tfidf"),
        ("supervision", own, "lsi-tfidf"),
        ("cfh-all", "cfh-mixed", own),
    )
    return [
        compare(claim, task.name, results, better, worse, measure)
        for measure in MEASURES
        for claim, better, worse in checks
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, measure and report."""
    options = parser(__doc__, collections=COLLECTIONS, seconds=SECONDS)
    given = options.parse_args(arguments)
    tables: list[Table] = []
    found: list[Finding] = []
    folders = {name: collection_folder(name) for name in given.only}
    with Lab("keywords", given) as lab:
        for name, folder in folders.items():
            lab.report.log("drawing", collection=name, sizes=SIZES)
            drawn = write_keywords(
                lab.collection(folder), lab.scratch / name, SIZES, known=FREQUENT, seed=given.seed
            )
            for size in SIZES:
                task = Task(f"{name}, k = {size}", drawn[size], (*SETTINGS, f"words={FREQUENT}"))
                systems = limited_systems(size)
                results = lab.run(task, systems)
                tables.append(lab.table(task, systems, results))
                found += limited_findings(task, results)
                if size != 10:
                    continue
                task = Task(f"{name}, k = 10, all words", drawn[size], (*SETTINGS, "words=0"))
                results = lab.run(task, UNLIMITED)
                tables.append(lab.table(task, UNLIMITED, results))
                found += unlimited_findings(task, results)
        lab.tell(tables, found)


if __name__ == "__main__":
    main()
