"""Experiment 1, document to document: every system of the papers on wikispeedia and debian.

    python -m benchmarks.experiments.documents [--only wikispeedia,debian] [--words 30000,0] [--systems tfidf,ssi]
                                   [--queries 1000] [--seconds 20] [--set key=value]...
                                   [--seed 1] [--out DIR] [--fresh] [--json | --markdown]

Two settings, as in the papers: the 30,000 most frequent words (``--words 30000``) and all words (``--words 0``), all
fields of a document joined. The tables show the figures of Bai et al. 2009 (tables 3 and 4) and Bai et al. 2010 on half
transductive ranking (tables 2 and 3): the same task on 1.8 million articles of Wikipedia, so compare the order of the
systems, not their figures.

Rare words: the quarter of the queries with the most tf-idf weight on words beyond the 30,000 most frequent, for which
correlated feature hashing is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import plots
from benchmarks.harness.claims import Finding, compare
from benchmarks.harness.lab import Lab, collection_folder, parser
from benchmarks.harness.report import numbers
from benchmarks.harness.store import Result, folder_fingerprint, slug
from benchmarks.harness.tables import Table
from benchmarks.harness.task import System, Task
from fullrank.measures import Float64
from fullrank.text.features import tfidf_idf

COLLECTIONS = ("wikispeedia", "debian")
SETTINGS = ("valid_queries=300", "trial=5000")
MEASURES = ("rank_loss", "map")
FREQUENT = 30_000
PLOTTED = 500  # queries in the scatter plots
SECONDS = 20
QUERIES = 1000


def paper(rank_loss: float, mean_precision: float, p10: float) -> dict[str, float]:
    """Return a row of the papers' tables: rank loss in percent, MAP, P@10."""
    return {"rank_loss": rank_loss / 100, "map": mean_precision, "p@10": p10}


# The same model with the softmax loss.
SOFTMAX = ("loss=softmax", "train.rate=0.05", "word_dropout=0.2", "epochs=8")

LIMITED = (
    System("tfidf", formula="I", paper=paper(1.62, 0.329, 0.163)),
    System("query-expansion", formula="I, twice", paper=paper(1.62, 0.330, 0.163)),
    System("lsi", formula="LSI", paper=paper(4.79, 0.158, 0.098)),
    System("lsi-tfidf", formula="α LSI + (1 − α) I", paper=paper(1.28, 0.346, 0.170)),
    System("eigenmaps", formula="Laplacian eigenmaps"),
    System("diagonal", formula="D", paper=paper(1.41, 0.355, 0.177)),
    System("ssi-dense", formula="W", paper=paper(0.41, 0.477, 0.212)),
    System("ssi-dense-zero-diagonal", formula="W, Wᵢᵢ = 0", paper={"rank_loss": 0.0069}),
    *(
        System(
            f"ssi-sparse p={p}",
            "ssi-sparse",
            (f"pairs.keep={p}",),
            f"W, {p} a row",
            time_factor=2.5,
        )
        for p in (1000, 100, 10)
    ),
    System("ssi-tied", formula="UᵀU + I", paper=paper(0.41, 0.506, 0.225)),
    System("ssi", formula="UᵀV + I", paper=paper(0.30, 0.517, 0.229)),
    System("ssi-diagonal", formula="UᵀV + D"),
    System("ssi no identity", "ssi", ("match=none",), "UᵀV", {"map": 0.42}),
    System("ssi softmax", "ssi", SOFTMAX, "UᵀV + I, softmax"),
    System("htr", formula="½-transductive", paper=paper(0.202, 0.557, 0.241)),
    System("htr γ=0", "htr", ("htr.gamma=0",), "½-transductive, γ = 0", {"rank_loss": 0.0038}),
    System("htr-identity", formula="½-transductive + I"),
)

HASHED = {
    1: paper(2.98, 0.239, 0.127),
    3: paper(1.75, 0.301, 0.152),
    6: paper(1.37, 0.335, 0.164),
}
HASHED_IDENTITY = {
    1: paper(0.525, 0.466, 0.207),
    3: paper(0.370, 0.474, 0.211),
    6: paper(0.347, 0.485, 0.215),
}


def _slots(millions: int) -> tuple[str, ...]:
    return (f"pairs.slots={millions}000000",)


UNLIMITED = (
    System("tfidf", formula="I", paper=paper(0.842, 0.432, 0.193)),
    System("query-expansion", formula="I, twice", paper=paper(0.842, 0.432, 0.193)),
    System(
        "lsi-tfidf",
        overrides=(f"latent_words={FREQUENT}",),
        formula="α LSI₃₀ₖ + (1 − α) I",
        paper=paper(0.721, 0.433, 0.193),
    ),
    System("diagonal", formula="D"),
    System("ssi-tied", formula="UᵀU + I", paper=paper(0.200, 0.503, 0.220)),
    System("ssi-frequent n=5k", "ssi-frequent", ("latent_words=5000",), "(UᵀV)₅ₖ + I"),
    System("ssi-frequent n=10k", "ssi-frequent", ("latent_words=10000",), "(UᵀV)₁₀ₖ + I"),
    System(
        "ssi-frequent n=30k",
        "ssi-frequent",
        ("latent_words=30000",),
        "(UᵀV)₃₀ₖ + I",
        paper(0.158, 0.547, 0.239),
    ),
    System(
        "ssi-frequent n=100k",
        "ssi-frequent",
        ("latent_words=100000",),
        "(UᵀV)₁₀₀ₖ + I",
        paper(0.178, 0.536, 0.233),
    ),
    System("ssi", formula="UᵀV + I"),
    System("ssi softmax", "ssi", SOFTMAX, "UᵀV + I, softmax"),
    *(
        System(f"hash-kernels {size}M", "hash-kernels", _slots(size), f"W, {size}M", reported)
        for size, reported in HASHED.items()
    ),
    *(
        System(
            f"hash-kernels {size}M + αI",
            "hash-kernels-identity",
            _slots(size),
            f"W, {size}M + αI",
            reported,
        )
        for size, reported in HASHED_IDENTITY.items()
    ),
    System("cfh", formula="CFH, 1 bin"),
    System("cfh-multiple", formula="CFH, 5 bins"),
    # Hashing helps if few words have their own rows: F = 3,000, with the softmax loss.
    System("few", "ssi-frequent", ("latent_words=3000", *SOFTMAX), "(UᵀV)₃ₖ + I, softmax"),
    System("few, cfh", "cfh", ("bin_words=3000", *SOFTMAX), "CFH, F = 3k, softmax"),
    System(
        "few, cfh-mixed",
        "cfh-mixed",
        ("bin_words=3000", *SOFTMAX),
        "(UᵀV)₃ₖ + I, CFH, softmax",
    ),
    System("cfh-2grams", formula="CFH, 2-grams", paper=paper(0.149, 0.559, 0.249)),
    System("cfh-mixed", formula="(UᵀV)₃₀ₖ + I, CFH", paper=paper(0.119, 0.614, 0.263)),
    System("htr", formula="½-transductive", paper=paper(0.106, 0.613, 0.256)),
    System("htr γ=0", "htr", ("htr.gamma=0",), "½-transductive, γ = 0"),
    System("htr-identity", formula="½-transductive + I"),
    System("fielded", formula="UᵀV + Σ D_f + b"),
    System("dssm-modern", formula="two towers"),
)

# (statement, the system that should be better, than which, how)
LIMITED_CHECKS = (
    ("supervision", "ssi", "tfidf", "beats"),
    ("supervision", "ssi", "lsi", "beats"),
    ("supervision", "ssi", "lsi-tfidf", "beats"),
    ("supervision", "ssi-tied", "tfidf", "beats"),
    ("softmax", "ssi softmax", "tfidf", "beats"),
    ("softmax", "ssi softmax", "ssi", "beats"),
    ("low-rank", "ssi", "ssi-dense", "beats"),
    ("low-rank", "ssi-tied", "ssi-dense", "beats"),
    ("diagonal", "diagonal", "tfidf", "beats"),
    ("sparsity", "ssi-sparse p=1000", "ssi-sparse p=100", "beats"),
    ("sparsity", "ssi-sparse p=100", "ssi-sparse p=10", "beats"),
    ("zero-diagonal", "ssi-dense", "ssi-dense-zero-diagonal", "beats"),
    ("asymmetric-documents", "ssi", "ssi-tied", "equals"),
    ("identity", "ssi", "ssi no identity", "beats"),
    ("identity-lsi", "lsi-tfidf", "lsi", "beats"),
    ("htr", "htr", "ssi", "beats"),
    ("htr-gamma", "htr", "htr γ=0", "beats"),
)
UNLIMITED_CHECKS = (
    ("softmax", "ssi softmax", "tfidf", "beats"),
    ("softmax", "ssi softmax", "ssi", "beats"),
    ("supervision", "ssi-frequent n=30k", "tfidf", "beats"),
    ("supervision", "ssi-frequent n=30k", "lsi-tfidf", "beats"),
    ("diagonal", "diagonal", "tfidf", "beats"),
    ("asymmetric-documents", "ssi", "ssi-tied", "equals"),
    ("frequent", "ssi-frequent n=30k", "ssi", "beats"),
    ("hash-size", "hash-kernels 3M", "hash-kernels 1M", "beats"),
    ("hash-size", "hash-kernels 6M", "hash-kernels 3M", "beats"),
    ("hash-size", "hash-kernels 3M + αI", "hash-kernels 1M + αI", "beats"),
    ("hash-size", "hash-kernels 6M + αI", "hash-kernels 3M + αI", "beats"),
    ("hash-identity", "hash-kernels 1M + αI", "hash-kernels 1M", "beats"),
    ("hash-identity", "hash-kernels 6M + αI", "hash-kernels 6M", "beats"),
    ("hash-low-rank", "ssi-frequent n=30k", "hash-kernels 6M", "beats"),
    ("hash-low-rank", "ssi-frequent n=30k", "hash-kernels 6M + αI", "beats"),
    ("cfh-all", "cfh-mixed", "ssi-frequent n=30k", "beats"),
    ("cfh-all", "few, cfh-mixed", "few", "beats"),
    ("htr", "htr", "ssi-frequent n=30k", "beats"),
    ("htr-gamma", "htr", "htr γ=0", "beats"),
)


def rare_weight(lab: Lab, task: Task) -> Float64:
    """Return the share of each query's squared tf-idf weight on words beyond the 30,000 most frequent."""

    def work() -> tuple[list[str], dict[str, Float64], dict[str, Any]]:
        trainer = lab.trainer(task.folder)
        judgements, _ = lab.judgements(task)
        documents = trainer.corpus.documents
        df = np.bincount(documents.indices, minlength=documents.width)
        rare = np.ones(documents.width, np.bool_)
        rare[np.argsort(-df, kind="stable")[:FREQUENT]] = False
        idf = tfidf_idf(df.astype(np.int64), len(documents))
        place = trainer.corpus.query_ids.rows
        rows = np.array([place[judgement.query] for judgement in judgements], np.int64)
        counts = trainer.corpus.queries.take(rows)
        squares = ((1 + np.log(counts.values)) * idf[counts.indices]) ** 2
        total = counts.sums(squares.astype(np.float32))
        on_rare = counts.sums((squares * rare[counts.indices]).astype(np.float32))
        share = np.divide(on_rare, total, out=np.zeros(len(rows)), where=total > 0)
        return [judgement.query for judgement in judgements], {"rare_weight": share}, {}

    identity = {"collection": folder_fingerprint(task.folder), "queries": lab.given.queries}
    return lab.keep(task.name, "rare words", identity, work).values["rare_weight"]


def rarest(weights: Float64) -> npt.NDArray[np.bool_]:
    """Return the quarter of the queries with the largest weight on rare words; fewer if fewer have any."""
    return (weights >= np.quantile(weights, 0.75)) & (weights > 0)


def findings(lab: Lab, task: Task, words: int, results: Mapping[str, Result]) -> list[Finding]:
    """Test the papers' statements on one task, by rank loss and by MAP."""
    checks = LIMITED_CHECKS if words else UNLIMITED_CHECKS
    found = [
        compare(claim, task.name, results, better, worse, measure, rule=rule)
        for claim, better, worse, rule in checks
        for measure in MEASURES
    ]
    if not words:
        for with_cfh in (("cfh-mixed", "ssi-frequent n=30k"), ("few, cfh-mixed", "few")):
            rows = rarest(rare_weight(lab, task)) if set(with_cfh) <= set(results) else None
            found += [
                compare("cfh", task.name, results, *with_cfh, measure, rows=rows, of="rare words")
                for measure in MEASURES
            ]
    return found


def scatter(lab: Lab, task: Task, words: int, results: Mapping[str, Result]) -> list[Path]:
    """Plot average precision of the low rank model against tf-idf and LSI, as the paper's figure 1."""
    own = "ssi" if words else "ssi-frequent n=30k"
    others = [name for name in ("tfidf", "lsi-tfidf") if name in results]
    if own not in results or not others:
        return []
    # As many dots as in the paper, so that they can be distinguished.
    chosen = np.linspace(0, len(results[own].queries) - 1, PLOTTED).round().astype(int)
    chosen = np.unique(chosen)
    average = {name: results[name].values["map"][chosen] for name in (own, *others)}
    panels = [(name, average[name], own, average[own]) for name in others]
    path = lab.store.folder / slug(task.name) / "average-precision.svg"
    return [plots.scatter(path, panels, measure="average precision")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, measure and report."""
    options = parser(__doc__, collections=COLLECTIONS, seconds=SECONDS, queries=QUERIES)
    options.add_argument(
        "--words",
        type=numbers,
        default=[FREQUENT, 0],
        metavar="N,...",
        help="words kept, 0: all; default 30000,0",
    )
    given = options.parse_args(arguments)
    tables: list[Table] = []
    found: list[Finding] = []
    drawn: list[Path] = []
    folders = {name: collection_folder(name) for name in given.only}
    with Lab("documents", given) as lab:
        for name, folder in folders.items():
            for words in given.words:
                setting = f"{words:,} words" if words else "all words"
                overrides = (*SETTINGS, f"words={words}")
                task = Task(f"{name}, {setting}", folder, overrides)
                systems = LIMITED if words else UNLIMITED
                results = lab.run(task, systems)
                tables.append(lab.table(task, systems, results))
                found += findings(lab, task, words, results)
                drawn += scatter(lab, task, words, results)
        lab.tell(tables, found, drawn)


if __name__ == "__main__":
    main()
