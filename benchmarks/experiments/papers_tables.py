"""The experiments of the papers as tables: what is trained on what, and which system should beat which.

documents           an article finds the articles that it links to (Bai et al. 2009, tables 3 and 4; Bai et al. 2010 on
                    half transductive ranking, tables 2 and 3): with the 30,000 most frequent words, and with all
studies             why UᵀV + I works: identity, dimension, start and loss, documents without training links, the share
                    of the links (Bai et al. 2009, tables 5 and 9, section 4.1; 2010, section 4.5)
keywords            k random words of an article find what it links to (Bai et al. 2009, tables 6 and 7)
cross_language      Korean and Japanese queries on English pages, Japanese descriptions of packages, mates (Bai et al.
                    2010, section 4.3). CL-LSI and word translation train on mates or else on judged pairs
clickthrough        a query finds its page among all of tldr/en (Gao, Toutanova and Yih 2011). The weights of a mix come
                    from two-fold cross validation on the test queries, as in the paper; "alone" is λ₂ = 0

The papers' corpora are others, so compare the order of the systems, not their figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from benchmarks.experiments.crossing import crossed_alpha, crossed_weights
from benchmarks.harness import derive
from benchmarks.harness.lab import Lab, Measure, collection_folder
from benchmarks.harness.report import SHOWN
from benchmarks.harness.store import System, Task

BOTH = ("rank_loss", "map")
_ALIKE = {"rank_loss": 0.005, "map": 0.01}
MARGINS: Mapping[str, Mapping[str, float]] = {
    "dimension": _ALIKE,
    "split": _ALIKE,
}
"""What a test of a claim forgives, in the unit of the measure. A test by > forgives nothing."""


@dataclass(frozen=True)
class Part:
    """Systems that are compared on the same queries.

    title     of the table; also where the findings were made
    runs      what is trained on what; no two systems of a part have one name
    checks    lines `claim: better > worse | worse` (benchmarks.experiments.papers.checks_of)
    shown     measures of the table
    tested    measures of the findings
    measures  system → how it is measured, where not by its ranking
    """

    title: str
    runs: Sequence[tuple[Task, System]]
    checks: str
    shown: Sequence[str] = SHOWN
    tested: Sequence[str] = BOTH
    measures: Mapping[str, Measure] = field(default_factory=dict)


class Experiment(NamedTuple):
    """One experiment: its parts on a collection, and what the command does without options.

    Attributes:
        parts: Given the lab, the name of a collection and its folder.
        collections: Names.
        seconds: Of a fit.
        queries: Of the test that are measured; 0: all.
        usual: Collections where --only is not given; None: all.
    """

    parts: Callable[[Lab, str, Path], Iterator[Part]]
    collections: Sequence[str]
    seconds: float
    queries: int = 2000
    usual: Sequence[str] | None = None


def row(
    name: str, formula: str = "", paper: Sequence[float | None] = (), *,
    recipe: str = "", settings: str = "", time: float = 1.0, of: Sequence[str] = SHOWN,
) -> System:  # fmt: skip
    """Declare a system.

    Args:
        name: Also of the recipe, unless that is given.
        formula: As the papers write it.
        paper: The papers' figures, in the order of `of`; rank loss in percent, None where there is none.
        recipe: Name of the recipe.
        settings: Beside the recipe's, with spaces between them.
        time: Factor on --seconds.
        of: Measures.
    """
    told = {name: value for name, value in zip(of, paper, strict=False) if value is not None}
    if "rank_loss" in told:
        told["rank_loss"] /= 100
    return System(name, recipe, tuple(settings.split()), formula, told, time)


def _on(task: Task, systems: Sequence[System]) -> list[tuple[Task, System]]:
    return [(task, system) for system in systems]


# -- documents ------------------------------------------------------------------------------------

_SETTINGS = ("valid_queries=300", "trial=5000")
_FREQUENT = 30_000
_SOFTMAX = "loss=softmax train.rate=0.05 word_dropout=0.2 epochs=8"

_LIMITED = (
    row("tfidf", "I", (1.62, 0.329, 0.163)),
    row("query-expansion", "I, twice", (1.62, 0.330, 0.163)),
    row("lsi", "LSI", (4.79, 0.158, 0.098)),
    row("lsi-tfidf", "α LSI + (1 − α) I", (1.28, 0.346, 0.170)),
    row("eigenmaps", "Laplacian eigenmaps"),
    row("diagonal", "D", (1.41, 0.355, 0.177)),
    row("ssi-dense", "W", (0.41, 0.477, 0.212)),
    row("ssi-dense-zero-diagonal", "W, Wᵢᵢ = 0", (0.69,)),
    *(
        row(f"ssi-sparse p={p}", f"W, {p} a row", recipe="ssi-sparse", settings=f"pairs.keep={p}", time=2.5)
        for p in (1000, 100, 10)
    ),
    row("ssi-tied", "UᵀU + I", (0.41, 0.506, 0.225)),
    row("ssi", "UᵀV + I", (0.30, 0.517, 0.229)),
    row("ssi-diagonal", "UᵀV + D"),
    row("ssi no identity", "UᵀV", (None, 0.42), recipe="ssi", settings="match=none"),
    row("ssi softmax", "UᵀV + I, softmax", recipe="ssi", settings=_SOFTMAX),
    row("htr", "½-transductive", (0.202, 0.557, 0.241)),
    row("htr γ=0", "½-transductive, γ = 0", (0.38,), recipe="htr", settings="htr.gamma=0"),
    row("htr-identity", "½-transductive + I"),
)  # fmt: skip
_LIMITED_CHECKS = """
    supervision: ssi > tfidf | lsi | lsi-tfidf
    supervision: ssi-tied > tfidf
    softmax: ssi softmax > tfidf | ssi
    low-rank: ssi > ssi-dense
    low-rank: ssi-tied > ssi-dense
    diagonal: diagonal > tfidf
    sparsity: ssi-sparse p=1000 > ssi-sparse p=100
    sparsity: ssi-sparse p=100 > ssi-sparse p=10
    zero-diagonal: ssi-dense > ssi-dense-zero-diagonal
    asymmetric-documents: ssi ≥ ssi-tied
    identity: ssi > ssi no identity
    identity-lsi: lsi-tfidf > lsi
    htr: htr > ssi
    htr-gamma: htr > htr γ=0
"""


def _frequent(n: str, paper: Sequence[float] = ()) -> System:
    words, formula = f"latent_words={n.replace('k', '000')}", f"(UᵀV)ₙ + I, n = {n}"
    return row(f"ssi-frequent n={n}", formula, paper, recipe="ssi-frequent", settings=words)


def _hashed(millions: int, paper: Sequence[float], *, identity: bool = False) -> System:
    end, recipe = (" + αI", "hash-kernels-identity") if identity else ("", "hash-kernels")
    slots, name = f"pairs.slots={millions}000000", f"{millions}M{end}"
    return row(f"hash-kernels {name}", f"W, {name}", paper, recipe=recipe, settings=slots)


_UNLIMITED = (
    row("tfidf", "I", (0.842, 0.432, 0.193)),
    row("query-expansion", "I, twice", (0.842, 0.432, 0.193)),
    row("lsi-tfidf", "α LSI₃₀ₖ + (1 − α) I", (0.721, 0.433, 0.193), settings=f"latent_words={_FREQUENT}"),
    row("diagonal", "D"),
    row("ssi-tied", "UᵀU + I", (0.200, 0.503, 0.220)),
    _frequent("5k"),
    _frequent("10k"),
    _frequent("30k", (0.158, 0.547, 0.239)),
    _frequent("100k", (0.178, 0.536, 0.233)),
    row("ssi", "UᵀV + I"),
    row("ssi softmax", "UᵀV + I, softmax", recipe="ssi", settings=_SOFTMAX),
    _hashed(1, (2.98, 0.239, 0.127)),
    _hashed(3, (1.75, 0.301, 0.152)),
    _hashed(6, (1.37, 0.335, 0.164)),
    _hashed(1, (0.525, 0.466, 0.207), identity=True),
    _hashed(3, (0.370, 0.474, 0.211), identity=True),
    _hashed(6, (0.347, 0.485, 0.215), identity=True),
    row("cfh", "CFH, 1 bin"),
    row("cfh-multiple", "CFH, 5 bins"),
    # Hashing helps if few words have their own rows: F = 3,000, with the softmax loss.
    row("few", "(UᵀV)₃ₖ + I, softmax", recipe="ssi-frequent", settings=f"latent_words=3000 {_SOFTMAX}"),
    row("few, cfh", "CFH, F = 3k, softmax", recipe="cfh", settings=f"bin_words=3000 {_SOFTMAX}"),
    row("few, cfh-mixed", "(UᵀV)₃ₖ + I, CFH, softmax", recipe="cfh-mixed", settings=f"bin_words=3000 {_SOFTMAX}"),
    row("cfh-2grams", "CFH, 2-grams", (0.149, 0.559, 0.249)),
    row("cfh-mixed", "(UᵀV)₃₀ₖ + I, CFH", (0.119, 0.614, 0.263)),
    row("htr", "½-transductive", (0.106, 0.613, 0.256)),
    row("htr γ=0", "½-transductive, γ = 0", recipe="htr", settings="htr.gamma=0"),
    row("htr-identity", "½-transductive + I"),
    row("fielded", "UᵀV + Σ D_f + b"),
    row("dssm-modern", "two towers"),
)  # fmt: skip
_UNLIMITED_CHECKS = """
    softmax: ssi softmax > tfidf | ssi
    supervision: ssi-frequent n=30k > tfidf | lsi-tfidf
    diagonal: diagonal > tfidf
    asymmetric-documents: ssi ≥ ssi-tied
    frequent: ssi-frequent n=30k > ssi
    hash-size: hash-kernels 3M > hash-kernels 1M
    hash-size: hash-kernels 6M > hash-kernels 3M
    hash-size: hash-kernels 3M + αI > hash-kernels 1M + αI
    hash-size: hash-kernels 6M + αI > hash-kernels 3M + αI
    hash-identity: hash-kernels 1M + αI > hash-kernels 1M
    hash-identity: hash-kernels 6M + αI > hash-kernels 6M
    hash-low-rank: ssi-frequent n=30k > hash-kernels 6M | hash-kernels 6M + αI
    cfh-all: cfh-mixed > ssi-frequent n=30k
    cfh-all: few, cfh-mixed > few
    htr: htr > ssi-frequent n=30k
    htr-gamma: htr > htr γ=0
"""


def documents(_: Lab, name: str, folder: Path) -> Iterator[Part]:
    for words, systems, checks in (
        (_FREQUENT, _LIMITED, _LIMITED_CHECKS),
        (0, _UNLIMITED, _UNLIMITED_CHECKS),
    ):
        title = f"{name}, {f'{words:,}' if words else 'all'} words"
        task = Task(title, folder, (*_SETTINGS, f"words={words}"))
        yield Part(title, _on(task, systems), checks)


# -- studies --------------------------------------------------------------------------------------

_STARTS = "train.loss=softmax epochs=8 word_dropout=0.2 init=0.1"
_SHARES = {1: (2.5,), 4: (2.0,), 10: (1.4,), 30: (1.1,), 100: ()}


def studies(lab: Lab, name: str, folder: Path) -> Iterator[Part]:
    settings = (*_SETTINGS, f"words={_FREQUENT}")
    base = Task(f"{name}, 30,000 words", folder, settings)
    identity = (
        row("ssi", "UᵀV + I", (None, 0.51)),
        row("ssi no identity", "UᵀV", (None, 0.42), recipe="ssi", settings="match=none"),
        row("lsi-tfidf", "α LSI + (1 − α) I", (1.28, 0.346, 0.170)),
        row("lsi", "LSI", (4.79, 0.158, 0.098)),
    )
    checks = "identity: ssi > ssi no identity\nidentity-lsi: lsi-tfidf > lsi"
    yield Part(f"identity: {base.name}", _on(base, identity), checks)

    # The default dimension, 100, is the fit above.
    dimensions = [
        row("ssi" if N == 100 else f"ssi N={N}", f"UᵀV + I, N = {N}", paper, recipe="ssi",
            settings="" if N == 100 else f"dimension={N}")
        for N, paper in ((50, ()), (100, (0.39,)), (200, (0.30,)), (500, (0.31,)))
    ]  # fmt: skip
    checks = "dimension: ssi N=200 ≈ ssi\ndimension: ssi N=500 ≈ ssi N=200"
    yield Part(f"dimension: {base.name}", _on(base, dimensions), checks)

    starts = (
        row("tfidf", "I"),
        *(
            row(f"ssi init={scale:g}", f"UᵀV + I, Normal(0, {scale:g}²)", recipe="ssi", settings=f"init={scale:g}")
            for scale in (1.0, 0.2, 0.01)
        ),
        row("ssi", "UᵀV + I, Normal(0, 0.05²)"),
        *(
            row(f"ssi rate={rate:g}", f"UᵀV + I, rate {rate:g}", recipe="ssi", settings=f"rates={rate:g}")
            for rate in (0.003, 0.03)
        ),
        row("ssi long", "UᵀV + I, ten times", recipe="ssi", settings="epochs=1000 patience=1000", time=10),
        row("ssi softmax", "UᵀV + I, softmax", recipe="ssi", settings=_STARTS),
        row("ssi-diagonal softmax", "UᵀV + D, softmax", recipe="ssi-diagonal", settings=_STARTS),
    )  # fmt: skip
    checks = "\n".join(f"supervision: {system.name} > tfidf" for system in starts[1:])
    yield Part(f"start and loss: {base.name}", _on(base, starts), checks)

    # The same test links, with training links of their documents and with as many that touch none of these.
    models = (
        row("ssi", "UᵀV + I"),
        row("ssi softmax", "UᵀV + I, softmax", recipe="ssi", settings=_SOFTMAX),
        row("fielded", "UᵀV + Σ D_f + b"),
    )
    runs = []
    ways = derive.split_two_ways(lab.collection(folder), lab.given.seed)
    for way, splits in zip(("links", "documents"), ways, strict=True):
        target = derive.write_splits(folder, lab.scratch / f"{name}-by-{way}", splits)
        exclude = ("train", "valid", "other")
        task = Task(f"{name}, partitioned by {way}", target, settings, exclude=exclude)
        runs += [(task, _named(model, f"by {way}")) for model in models]
    checks = "\n".join(f"split: {m.name}, by documents ≈ {m.name}, by links" for m in models)
    yield Part(f"split: {name}, the same test links", runs, checks)

    runs, checks = [], ""
    for model in (row("ssi", "UᵀV + I"), row("fielded", "UᵀV + Σ D_f + b")):
        for percent, paper in _SHARES.items():
            task = base
            if percent < 100:
                splits = derive.keep_share(lab.collection(folder), percent / 100, lab.given.seed)
                target = derive.write_splits(folder, lab.scratch / f"{name}-{percent}", splits)
                # At least so many triples an epoch that measuring takes less time than training.
                triples = f"triples={max(3_000, len(splits['train']) // 2)}"
                exclude = ("train", "valid", "unused")
                title = f"{name}, {percent} % of the links"
                task = Task(title, target, (*settings, triples), exclude=exclude)
            told = {"rank_loss": paper[0] / 100} if paper and model.name == "ssi" else {}
            runs.append((task, replace(_named(model, f"{percent} %"), paper=told)))
        for less, more in pairwise(_SHARES):
            checks += f"data: {model.name}, {more} % > {model.name}, {less} %\n"
    yield Part(f"share of the training links: {name}", runs, checks)


def _named(system: System, end: str) -> System:
    return replace(system, name=f"{system.name}, {end}", recipe=system.recipe_name)


# -- keywords -------------------------------------------------------------------------------------

_KEYWORDS = {
    5: ((21.6, 0.047, 0.023), (14.2, 0.049, 0.023), (4.80, 0.161, 0.079), (4.37, 0.166, 0.083)),
    10: ((14.0, 0.083, 0.035), (9.73, 0.089, 0.037), (3.10, 0.2138, 0.095), (2.91, 0.229, 0.100)),
    20: ((9.14, 0.128, 0.054), (6.36, 0.133, 0.059), (1.87, 0.287, 0.126), (1.80, 0.302, 0.130)),
}
_KEYWORD_SYSTEMS = {
    "tfidf": "I",
    "lsi-tfidf": "α LSI + (1 − α) I",
    "ssi-tied": "UᵀU + I",
    "ssi": "UᵀV + I",
}
_ALL_WORDS = (
    row("tfidf", "I", (12.86, 0.128, 0.035)),
    row(
        "lsi-tfidf",
        "α LSI₃₀ₖ + (1 − α) I",
        (8.95, 0.133, 0.051),
        settings=f"latent_words={_FREQUENT}",
    ),
    _frequent("30k", (3.02, 0.261, 0.113)),
    row("cfh-mixed", "(UᵀV)₃₀ₖ + I, CFH"),
    row("fielded", "UᵀV + Σ D_f + b"),
)
_ALL_WORDS_CHECKS = """
    supervision: ssi-frequent n=30k > tfidf | lsi-tfidf
    cfh-all: cfh-mixed > ssi-frequent n=30k
"""


def keywords(lab: Lab, name: str, folder: Path) -> Iterator[Part]:
    lab.report.log("drawing", collection=name, sizes=list(_KEYWORDS))
    drawn = derive.write_keywords(
        lab.collection(folder), lab.scratch / name, list(_KEYWORDS), known=_FREQUENT, seed=lab.given.seed
    )  # fmt: skip
    for size, papers in _KEYWORDS.items():
        title = f"{name}, k = {size}"
        task = Task(title, drawn[size], (*_SETTINGS, f"words={_FREQUENT}"))
        systems = [
            row(system, formula, paper)
            for (system, formula), paper in zip(_KEYWORD_SYSTEMS.items(), papers, strict=True)
        ]
        checks = "supervision: ssi > tfidf | lsi-tfidf\nasymmetric: ssi ≥ ssi-tied"
        yield Part(title, _on(task, systems), checks)
        if size == 10:
            task = Task(f"{title}, all words", drawn[size], (*_SETTINGS, "words=0"))
            yield Part(task.name, _on(task, _ALL_WORDS), _ALL_WORDS_CHECKS)


# -- cross_language -------------------------------------------------------------------------------

_MONOLINGUAL = {"tldr/ko": "tldr/en", "tldr/ja": "tldr/en", "debian/ja": "debian"}
_FEWEST = 50
"""With fewer pairs no model across languages learns."""
_CROSS = ("valid_queries=300",)
_SSI = "latent=learned loss=margin dimension=100 epochs=30 patience=4 init=0.05 rates=0.01,0.03,0.1,0.3"  # fmt: skip
_CROSS_CHECKS = """
    cross-language: cross-language > translation-tfidf | translation-ssi
    cross-language-lsi: cross-language > cl-lsi
    cross-language-mix: cross-language-mixed > cross-language
    cross-language-mix: mixed with translation-ssi > cross-language
"""
_MATES = (
    row("tfidf", "I, not translated"),
    row("translation-tfidf", "I, words translated"),
    row("cl-lsi", "CL-LSI", (0.81,), recipe="cl-lsa", settings="tied=false projection.pairs=judged"),
    row("cross-language", "U_FᵀV_E", (0.53,)),
    # Most words of 60,000 descriptions occur in none of the 4,000 pairs; a small start keeps their weight low.
    row("cross-language, init 0.01", "U_FᵀV_E", (0.53,), recipe="cross-language",
        settings="init=0.01 triples=20000 rates=0.1,0.3", time=4),
    row("fielded", "UᵀV + Σ D_f + b, softmax"),
)  # fmt: skip


def cross_language(lab: Lab, name: str, folder: Path) -> Iterator[Part]:
    second = f"monolingual={collection_folder(_MONOLINGUAL[name])}"
    collection = lab.collection(folder)
    pairs = "mates" if collection.has_mates else "judged"
    behind = ";".join(["cross-language", " ".join(["translation-tfidf", *_SSI.split(), second])])
    mixed = row(
        "mixed with translation-ssi", "α U_FᵀV_E + (1 − α) (UᵀV + I)", recipe="cross-language-mixed"
    )
    translated = row("translation-ssi", "UᵀV + I, words translated", recipe="translation-tfidf")
    joint = row("cross-language joint", "U_FᵀV_E, V_EᵀV_E", recipe="cross-language")
    joint = replace(joint, overrides=(second,))
    everything = (
        row("tfidf", "I, not translated"),
        row("translation-tfidf", "I, words translated"),
        row("translation-bm25", "BM25, words translated", recipe="translation-tfidf", settings="match=bm25"),
        replace(translated, overrides=(*_SSI.split(), second)),
        row("cl-lsi", "CL-LSI", recipe="cl-lsa", settings=f"tied=false projection.pairs={pairs}"),
        row("cross-language", "U_FᵀV_E"),
        joint,
        row("cross-language-mixed", "α U_FᵀV_E + (1 − α) I"),
        replace(mixed, overrides=(f"mixed.recipes={behind}",)),
        row("fielded", "UᵀV + Σ D_f + b, softmax"),
    )  # fmt: skip
    base = Task(name, folder, _CROSS)
    yield Part(name, _on(base, everything), _CROSS_CHECKS, (*SHOWN, "mrr"))

    for percent in (1, 10, 100):
        if percent * len(derive.links_of(collection, ["train"])) < 100 * _FEWEST:
            continue
        task = base
        if percent < 100:
            splits = derive.keep_share(collection, percent / 100, lab.given.seed)
            write = derive.write_described if collection.has_mates else derive.write_splits
            target = write(folder, lab.scratch / f"{name.replace('/', '-')}-{percent}", splits)
            triples = f"triples={max(5_000, len(splits['train']))}"
            exclude = ("train", "valid", "unused")
            task = Task(f"{name}, {percent} % of the pairs", target, (*_CROSS, triples), exclude=exclude)  # fmt: skip
        told = (3.02, 2.43) if (name, percent) == ("debian/ja", 1) else (None, None)
        two = [
            replace(system, paper={"rank_loss": value / 100} if value else {})
            for system, value in zip((row("cross-language", "U_FᵀV_E"), joint), told, strict=True)
        ]
        checks = "multi-task: cross-language joint > cross-language"
        yield Part(f"{name}, {percent} % of the pairs", _on(task, two), checks, BOTH)

    if collection.has_mates:
        splits = derive.mate_splits(collection, lab.given.seed)
        target = derive.write_splits(
            folder, lab.scratch / f"{name.replace('/', '-')}-mates", splits
        )
        task = Task(f"{name}, mates", target, _CROSS)
        checks = "mates: cross-language > cl-lsi\nmates: cross-language, init 0.01 > cl-lsi"
        measures = ("rank_loss", "mrr")
        yield Part(task.name, _on(task, _MATES), checks, (*measures, "ndcg@1"), measures)


# -- clickthrough ---------------------------------------------------------------------------------

_NDCG = ("ndcg@1", "ndcg@3", "ndcg@10")
# One value of each weight, because nothing is chosen on validation here.
_FIXED = "lambda1=0.2 valid_queries=50"


def _gao(name: str, formula: str, *paper: float, recipe: str = "", settings: str = "") -> System:
    return row(name, formula, paper, recipe=recipe, settings=settings, of=_NDCG)


_LANGUAGE = (
    _gao("unigram", "UM", 0.308, 0.373, 0.454, settings=_FIXED),
    *(
        _gao(name + end, ("UM + " if not end else "") + formula, *paper, recipe=name,
             settings=f"{_FIXED} lambda2={0 if end else 0.5}")
        for name, formula, alone, both in (
            ("plsa", "PLSA", (0.295, 0.371, 0.456), (0.325, 0.391, 0.470)),
            ("bltm", "BLTM", (0.330, 0.399, 0.476), (0.338, 0.404, 0.479)),
            ("bltm-pr", "BLTM-PR", (0.334, 0.403, 0.479), (0.342, 0.406, 0.482)),
            ("bltm-pr-1v", "BLTM-PR-1V", (0.337, 0.403, 0.480), (0.344, 0.407, 0.483)),
            ("word-translation", "WTM", (0.332, 0.400, 0.478), (0.338, 0.404, 0.480)),
        )
        for end, paper in ((" alone", alone), ("", both))
    ),
    _gao("bltm-pr, 300 topics", "UM + BLTM-PR", recipe="bltm-pr", settings=f"model.dimension=300 {_FIXED} lambda2=0.5"),
)  # fmt: skip
_MIXED = tuple(
    _gao(f"{name}-tfidf", f"α {formula} + (1 − α) I", *paper, settings="trials=model.alpha=0.5")
    for name, formula, paper in (
        ("lsa", "LSA", (0.330, 0.396, 0.474)),
        ("cl-lsa", "CL-LSA", (0.330, 0.396, 0.474)),
        ("opca", "OPCA", (0.328, 0.395, 0.473)),
        ("s2net", "S2Net", (0.340, 0.407, 0.483)),
    )
)
_OTHERS = (
    _gao("tfidf", "VSM", 0.313, 0.379, 0.460),
    _gao("lsa", "LSA", 0.298, 0.372, 0.455),
    _gao("cl-lsa", "CL-LSA", 0.298, 0.370, 0.454),
    _gao("opca", "OPCA", 0.306, 0.373, 0.454),
    _gao("s2net", "S2Net", 0.329, 0.401, 0.479),
    _gao("bm25", "BM25", settings="spelling=0 title=1 title_forms=false"),
    row("dssm", "DSSM", settings="train.epochs=60", time=3),
    _gao("dssm-batch", "DSSM, in-batch negatives"),
    _gao("dssm-modern", "the same beside the fielded model"),
    _gao("fielded", "UᵀV + Σ D_f + b"),
    _gao("clicked", "the same with clicked text, mean of three fits"),
    _gao("best", "clicked text, mixed with WTM"),
)
_CLICK_CHECKS = """
    bltm-unigram: bltm-pr > unigram
    bltm-pr: bltm-pr ≥ bltm
    bltm-pr: bltm-pr alone ≥ bltm alone
    bltm: bltm ≥ plsa
    bltm: bltm alone ≥ plsa alone
    bltm-pr-1v: bltm-pr-1v ≥ bltm-pr
    bltm-pr-translation: bltm-pr > word-translation
    mixture: plsa > unigram
    mixture: bltm > unigram
    mixture: bltm-pr-1v > unigram
    mixture: word-translation > unigram
    s2net: s2net > opca | cl-lsa
    s2net: s2net-tfidf > opca-tfidf | cl-lsa-tfidf
    dssm-linear: dssm > lsa | cl-lsa | opca | s2net
    dssm-linear: dssm-batch > lsa | cl-lsa | opca | s2net
    dssm-linear: dssm-modern > lsa | cl-lsa | opca | s2net
"""


def clickthrough(_: Lab, name: str, folder: Path) -> Iterator[Part]:
    measures: dict[str, Measure] = dict.fromkeys([s.name for s in _LANGUAGE], crossed_weights)
    measures |= dict.fromkeys([s.name for s in _MIXED], crossed_alpha)
    runs = _on(Task(name, folder), (*_LANGUAGE, *_OTHERS, *_MIXED))
    yield Part(name, runs, _CLICK_CHECKS, (*_NDCG, "mrr"), ("ndcg@10",), measures)


EXPERIMENTS = {
    "documents": Experiment(documents, ("wikispeedia", "debian"), 20, 1000),
    "studies": Experiment(studies, ("wikispeedia", "debian"), 20, usual=("wikispeedia",)),
    "keywords": Experiment(keywords, ("wikispeedia",), 20),
    "cross_language": Experiment(cross_language, tuple(_MONOLINGUAL), 30),
    "clickthrough": Experiment(clickthrough, ("tldr/en",), 90),
}
