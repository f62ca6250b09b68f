"""Experiment 4, across languages: Korean and Japanese queries on English pages, Japanese descriptions, mates.

    python -m benchmarks.experiments.cross_language [--only tldr/ko,tldr/ja,debian/ja] [--systems cross-language,cl-lsi]
                                        [--queries 2000] [--seconds 30] [--set key=value]... [--seed 1] [--out DIR]
                                        [--fresh] [--json | --markdown]

tldr       a sentence in Korean or Japanese, and the English page whose example it describes
debian/ja  the Japanese description of a package, and the English descriptions of its dependencies; the English
           description of the package itself, its mate, is not an answer
shares     1, 10 and 100 % of the cross-language pairs, with and without the monolingual task, which keeps all of its
           pairs: the English queries of tldr, the links of debian
mates      find the English description of a package by its Japanese one; split by package

The task on debian is that of Bai et al. 2010, section 4.3, on another corpus: 1.8 million articles of the English
Wikipedia, 135,737 with a Japanese mate, 8.1 million links. Compare the order of the systems. CL-LSI and word
translation (IBM Model 1) train on mates if there are any, else on judged pairs; the paper used a dictionary and two
translation services.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.harness.claims import Finding, compare
from benchmarks.harness.derive import (
    keep_share,
    links_of,
    mate_splits,
    write_described,
    write_splits,
)
from benchmarks.harness.lab import Lab, collection_folder, parser
from benchmarks.harness.store import Result
from benchmarks.harness.tables import NAMES, Table, figure, paper_figure, settled
from benchmarks.harness.task import System, Task

COLLECTIONS = ("tldr/ko", "tldr/ja", "debian/ja")
SECONDS = 30
MONOLINGUAL = {"tldr/ko": "tldr/en", "tldr/ja": "tldr/en", "debian/ja": "debian"}
MEASURES = ("rank_loss", "map")
SHOWN = ("rank_loss", "map", "p@10", "mrr")
SHOWN_MATES = ("rank_loss", "mrr", "ndcg@1")
SHARES = (1, 10, 100)
FEWEST = 50  # with fewer pairs neither model learns
SETTINGS = ("valid_queries=300",)

# Rank loss of the paper with one per cent of its pairs, without and with the monolingual task, as on debian.
PAPER_SHARE = {
    ("debian/ja", 1, "cross-language"): {"rank_loss": 0.0302},
    ("debian/ja", 1, "cross-language joint"): {"rank_loss": 0.0243},
}
PAPER_MATES = {"ssi": {"rank_loss": 0.0053}, "cl-lsi": {"rank_loss": 0.0081}}

_SSI = ("latent=learned", "loss=margin", "dimension=100", "epochs=30", "patience=4", "init=0.05")
_SSI_RATES = "rates=0.01,0.03,0.1,0.3"
_TRANSLATED = "α U_FᵀV_E + (1 − α) "


def _lsi(pairs: str, paper: Mapping[str, float] | None = None) -> System:
    own = ("tied=false", f"projection.pairs={pairs}")
    return System("cl-lsi", "cl-lsa", own, "CL-LSI", paper or {})


def translated_ssi(second: str) -> tuple[str, ...]:
    """Return settings that put UᵀV + I, trained on the second collection, behind the translation."""
    return (*_SSI, _SSI_RATES, f"monolingual={second}")


def systems(second: str, *, mates: bool) -> list[System]:
    """Return all systems on all pairs. ``second``: folder of the monolingual task."""
    behind = " ".join(("translation-tfidf", *translated_ssi(second)))
    return [
        System("tfidf", formula="I, not translated"),
        System("translation-tfidf", formula="I, words translated"),
        System(
            "translation-bm25", "translation-tfidf", ("match=bm25",), "BM25, words translated"
        ),
        System(
            "translation-ssi",
            "translation-tfidf",
            translated_ssi(second),
            "UᵀV + I, words translated",
        ),
        _lsi("mates" if mates else "judged"),
        System("cross-language", formula="U_FᵀV_E"),
        System("cross-language joint", "cross-language", (f"monolingual={second}",), "U_FᵀV_E, V_EᵀV_E"),
        System("cross-language-mixed", formula=f"{_TRANSLATED}I"),
        System(
            "mixed with translation-ssi",
            "cross-language-mixed",
            (f"mixed.recipes=cross-language;{behind}",),
            f"{_TRANSLATED}(UᵀV + I)",
        ),
        System("fielded", formula="UᵀV + Σ D_f + b, softmax"),
    ]  # fmt: skip


# (statement, the system that should be better, than which)
CHECKS = (
    ("cross-language", "cross-language", "translation-tfidf"),
    ("cross-language", "cross-language", "translation-ssi"),
    ("cross-language-lsi", "cross-language", "cl-lsi"),
    ("cross-language-mix", "cross-language-mixed", "cross-language"),
    ("cross-language-mix", "mixed with translation-ssi", "cross-language"),
)
MATES = (
    System("tfidf", formula="I, not translated"),
    System("translation-tfidf", formula="I, words translated"),
    _lsi("judged", PAPER_MATES["cl-lsi"]),
    System("cross-language", formula="U_FᵀV_E", paper=PAPER_MATES["ssi"]),
    # Most words of 60,000 descriptions occur in none of the 4,000 pairs; a small start keeps their weight low.
    System(
        "cross-language, init 0.01",
        "cross-language",
        ("init=0.01", "triples=20000", "rates=0.1,0.3"),
        "U_FᵀV_E",
        PAPER_MATES["ssi"],
        time_factor=4,
    ),
    System("fielded", formula="UᵀV + Σ D_f + b, softmax"),
)


def full(lab: Lab, name: str, folder: Path, second: Path) -> tuple[Table, list[Finding]]:
    """Measure every system on all pairs."""
    task = Task(name, folder, SETTINGS)
    chosen = systems(str(second), mates=name == "debian/ja")
    results = lab.run(task, chosen)
    found = [
        compare(claim, name, results, better, worse, measure)
        for measure in MEASURES
        for claim, better, worse in CHECKS
    ]
    return lab.table(task, chosen, results, measures=SHOWN), found


def shares(lab: Lab, name: str, folder: Path, second: Path) -> tuple[Table, list[Finding]]:
    """Measure decreasing shares of the cross-language pairs, with and without the monolingual task."""
    rows, found = [], []
    for percent in SHARES:
        if percent * len(links_of(lab.collection(folder), ["train"])) < 100 * FEWEST:
            continue
        task = share_task(lab, name, folder, percent)
        two = [
            System("cross-language"),
            System("cross-language joint", "cross-language", (f"monolingual={second}",)),
        ]
        results = lab.run(task, two)
        for system, result in results.items():
            paper = PAPER_SHARE.get((name, percent, system), {})
            rows.append(_share_row(f"{percent} %, {system}", result, paper))
        found += [
            compare(
                "multi-task", f"{name}, {percent} % of the pairs", results,
                "cross-language joint", "cross-language", measure,
            )
            for measure in MEASURES
        ]  # fmt: skip
    headings = ["pairs", NAMES["rank_loss"], "paper", NAMES["map"], "seconds", "settings"]
    return Table(f"{name}: the monolingual task, by share of the pairs", headings, rows), found


def _share_row(label: str, result: Result, paper: Mapping[str, float]) -> list[str]:
    rank_loss, average = (figure(result.estimate(measure), measure) for measure in MEASURES)
    reported = paper_figure(paper, "rank_loss")
    seconds = f"{result.facts['fit_seconds']:.0f}"
    return [label, rank_loss, reported, average, seconds, settled(result)]


def share_task(lab: Lab, name: str, folder: Path, percent: int) -> Task:
    """Return the collection with a share of its training pairs, on unchanged candidates."""
    if percent == 100:
        return Task(name, folder, SETTINGS)
    collection = lab.collection(folder)
    splits = keep_share(collection, percent / 100, lab.given.seed)
    write = write_described if collection.has_mates else write_splits
    target = write(folder, lab.scratch / f"{name.replace('/', '-')}-{percent}", splits)
    # An epoch is one pass, but at least long enough that measuring takes less time than training.
    triples = max(5_000, len(splits["train"]))
    return Task(
        f"{name}, {percent} % of the pairs",
        target,
        (*SETTINGS, f"triples={triples}"),
        exclude=("train", "valid", "unused"),
    )


def find_mates(lab: Lab, name: str, folder: Path) -> tuple[Table, list[Finding]]:
    """Measure the search for a document by its description in the other language."""
    splits = mate_splits(lab.collection(folder), lab.given.seed)
    target = write_splits(folder, lab.scratch / f"{name.replace('/', '-')}-mates", splits)
    task = Task(f"{name}, mates", target, SETTINGS)
    results = lab.run(task, MATES)
    found = [
        compare("mates", task.name, results, trained, "cl-lsi", measure)
        for trained in ("cross-language", "cross-language, init 0.01")
        for measure in ("rank_loss", "mrr")
    ]
    table = lab.table(task, MATES, results, measures=SHOWN_MATES)
    notes = [*table.notes, "one answer a query, so NDCG@1 is the share of mates ranked first"]
    return Table(table.title, table.headings, table.rows, notes, table.left), found


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, measure and report."""
    given = parser(__doc__, collections=COLLECTIONS, seconds=SECONDS).parse_args(arguments)
    tables: list[Table] = []
    found: list[Finding] = []
    folders = {name: collection_folder(name) for name in given.only}
    seconds = {name: collection_folder(MONOLINGUAL[name]) for name in given.only}
    with Lab("cross_language", given) as lab:
        for name, folder in folders.items():
            parts = [full(lab, name, folder, seconds[name])]
            parts.append(shares(lab, name, folder, seconds[name]))
            if lab.collection(folder).has_mates:
                parts.append(find_mates(lab, name, folder))
            tables += [table for table, _ in parts]
            found += [one for _, tested in parts for one in tested]
        lab.tell(tables, found)


if __name__ == "__main__":
    main()
