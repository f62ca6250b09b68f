"""Experiment, typing errors: one random edit in one word of each query.

    python -m benchmarks.experiments.typing_errors [--systems bm25s,bm25,clicked] [--queries 0] [--set key=value]...
                                       [--seed 1] [--out DIR] [--fresh] [--json | --markdown]

Each query of tldr/en gets one edit (benchmarks.experiments.edits) in one random word of at least four letters; queries
without such a word are left out. Three seeds of edits are measured and averaged. The share is the MRR of edited queries
over that of the same queries without an error.

A bundle of each recipe is trained once into --out and used again. It is measured without correction and with it: on the
validation split at several discounts (`model.spelling`), on the test split at the discount of the recipe `clicked`,
which was chosen on validation. bm25s, another library, is measured on the same words.

The costs are those of encoding one query, of the first correction after a start, and of a vocabulary of a million
words.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.experiments.edits import has_word, mistyped
from benchmarks.harness.lab import Lab, collection_folder, parser
from benchmarks.harness.measuring import spread
from benchmarks.harness.peers import bm25s_measures, bm25s_settings
from benchmarks.harness.store import Result, folder_fingerprint
from benchmarks.harness.tables import NOTHING, Table, figure
from fullrank import open_bundle
from fullrank.bundle import Bundle, find_bundle
from fullrank.errors import BundleNotFound
from fullrank.measures import Float64
from fullrank.models.linear import LinearModel
from fullrank.text import spelling
from fullrank.text.features import Vocabulary
from fullrank.text.spelling import Spelling
from fullrank_trainer.collection import Collection
from fullrank_trainer.evaluation.evaluate import measure_rankings
from fullrank_trainer.evaluation.judgement import Judgement, judge
from fullrank_trainer.recipes.recipe import load_recipe
from fullrank_trainer.train import train

COLLECTIONS = ("tldr/en",)
RECIPES = ("bm25", "clicked")
SEEDS = (1, 2, 3)
DISCOUNTS = (0.5, 0.7, 0.85, 1.0)
TIMED = 300  # queries that are timed
LARGE = 1_000_000  # words of the large vocabulary
_DEPTH = 1000

Rank = Callable[[Sequence[str]], Float64]
"""The reciprocal rank of each query, given the texts of all."""


class Split:
    """The queries of a split that can be edited, as they are and with edits.

    Attributes:
        judgements: Of the queries.
        texts: Their texts.
        edited: Seed → their texts with one edit each.
    """

    def __init__(self, collection: Collection, split: str, exclude: Sequence[str], limit: int):
        judgements, _ = judge(collection, split, exclude)
        text = {query.id: query.text for query in collection.queries or []}
        found = [judgement for judgement in judgements if has_word(text[judgement.query])]
        self.collection, self.name, self.exclude = collection, split, exclude
        self.judgements: list[Judgement] = spread(found, limit)
        self.texts = [text[judgement.query] for judgement in self.judgements]
        self.edited = {
            seed: [
                mistyped(query, np.random.default_rng([seed, i]))
                for i, query in enumerate(self.texts)
            ]
            for seed in SEEDS
        }

    def measure(self, rank: Rank) -> dict[str, Float64]:
        """Return reciprocal ranks: ``mrr`` of the queries, ``edited`` as the mean over the seeds, and each seed's."""
        seeds = {f"edited {seed}": rank(texts) for seed, texts in self.edited.items()}
        mean = np.mean(list(seeds.values()), axis=0)
        return {"mrr": rank(self.texts), "edited": np.asarray(mean, np.float64), **seeds}

    def bundle_rank(self, bundle: Bundle, model: LinearModel) -> Rank:
        """Return the ranks by a bundle whose queries another model encodes."""

        def rank(texts: Sequence[str]) -> Float64:
            values = measure_rankings(
                bundle.retriever,
                model.encode_queries(texts),
                self.judgements,
                documents=len(bundle.documents),
                depth=_DEPTH,
                with_rank_loss=False,
            )
            return values["mrr"]

        return rank

    def peer_rank(self, texts: Sequence[str]) -> Float64:
        """Return the ranks by bm25s."""
        text = {j.query: text for j, text in zip(self.judgements, texts, strict=True)}
        queries = [
            replace(query, text=text.get(query.id, query.text))
            for query in self.collection.queries or []
        ]
        collection = replace(self.collection, queries=queries)
        return bm25s_measures(collection, self.judgements)["mrr"]


def bundle_of(lab: Lab, folder: Path, recipe: str) -> Bundle:
    """Open the bundle of a recipe in --out; train it if there is none, or with --fresh."""
    bundles = lab.store.folder / "bundles"
    try:
        if lab.given.fresh:
            raise BundleNotFound("--fresh")
        return open_bundle(find_bundle(bundles, recipe))
    except BundleNotFound:
        found = train(
            folder,
            bundles,
            recipe,
            recipe=recipe,
            overrides=lab.given.set,
            seed=lab.given.seed,
            reporter=lab.report,
        )
        return open_bundle(found.path)


def with_discount(model: LinearModel, discount: float) -> LinearModel:
    """Return the model with another discount of corrections; 0 corrects nothing."""
    return replace(model, settings={**model.settings, "spelling": discount})


def measured(lab: Lab, folder: Path, split: Split, bundle: Bundle, discount: float) -> Result:
    """Return the stored measures of a bundle at a discount, or measure it."""
    model = linear(bundle)
    identity = {
        **identity_of(lab, folder, split),
        "bundle": bundle.bundle_id,
        "discount": discount,
        "weights": [spelling.FREQUENCY_POWER, spelling.FIRST_LETTER, spelling.MOST],
        "edits": {edit.name: weight for edit, weight in spelling.EDIT_WEIGHTS.items()},
    }

    def work() -> tuple[Sequence[str], Mapping[str, Float64], Mapping[str, Any]]:
        values = split.measure(split.bundle_rank(bundle, with_discount(model, discount)))
        return [judgement.query for judgement in split.judgements], values, {}

    return lab.keep(split.name, f"{bundle.name} {discount:g}", identity, work)


def measured_peer(lab: Lab, folder: Path, split: Split) -> Result:
    """Return the stored measures of bm25s, or measure it."""

    def work() -> tuple[Sequence[str], Mapping[str, Float64], Mapping[str, Any]]:
        values = split.measure(split.peer_rank)
        return [judgement.query for judgement in split.judgements], values, bm25s_settings()

    return lab.keep(split.name, "bm25s", identity_of(lab, folder, split), work)


def identity_of(lab: Lab, folder: Path, split: Split) -> dict[str, Any]:
    """Return what every measure of a split depends on."""
    return {
        "collection": folder_fingerprint(folder),
        "split": split.name,
        "exclude": list(split.exclude),
        "queries": lab.given.queries,
        "edit_seeds": list(SEEDS),
    }


def linear(bundle: Bundle) -> LinearModel:
    """Return the model of a bundle of the linear family."""
    assert isinstance(bundle.model, LinearModel)
    return bundle.model


def table(title: str, rows: Sequence[tuple[str, str, Result]]) -> Table:
    """Return a row for each (system, correction, result)."""
    lines = []
    for system, correction, result in rows:
        clean, edited = result.estimate("mrr"), result.estimate("edited")
        seeds = [result.estimate(f"edited {seed}").mean / clean.mean for seed in SEEDS]
        low, high = min(seeds), max(seeds)
        lines.append([
            system, correction, figure(clean, "mrr"), figure(edited, "mrr"),
            f"{edited.mean / clean.mean:.3f}", f"{low:.3f} to {high:.3f}",
        ])  # fmt: skip
    headings = ["system", "correction", "MRR", "MRR, one edit", "share", "share of each seed"]
    return Table(title, headings, lines, left=2)


def time_queries(model: LinearModel, texts: Sequence[str]) -> float:
    """Return the median time of encoding one query, in microseconds."""
    model.encode_queries(texts[:1])
    seconds = []
    for text in texts:
        began = time.perf_counter()
        model.encode_queries([text])
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds) * 1e6


def time_first(model: LinearModel, text: str) -> float:
    """Return the seconds that the first corrected query takes more than the second."""
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        model.encode_queries([text])
        seconds.append(time.perf_counter() - began)
    return seconds[0] - seconds[1]


def query_costs(split: Split, bundle: Bundle, discount: float) -> list[list[str]]:
    """Return rows (what, figure): the time of a query with and without an error, and of the first one."""
    corrected, plain = (with_discount(linear(bundle), d) for d in (discount, 0.0))
    both = zip(split.texts, split.edited[SEEDS[0]], strict=True)
    pairs = [
        (clean, edited)
        for clean, edited in both
        if corrected.corrections(edited) and not corrected.corrections(clean)
    ][:TIMED]
    clean, edited = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    fresh = with_discount(linear(bundle), discount)
    fresh.encode_queries(clean[:1])  # builds the index of words, which every query needs
    rows = [
        ("query without an error, no correction", time_queries(plain, clean)),
        ("query without an error, correction on", time_queries(corrected, clean)),
        ("query with an error, no correction", time_queries(plain, edited)),
        ("query with an error, correction on", time_queries(corrected, edited)),
    ]
    found = [[f"encode a {what}, median of {len(pairs)}", f"{us:,.0f} µs"] for what, us in rows]
    words = len(corrected.query.words)
    first = time_first(fresh, edited[0]) * 1e3
    return [
        *found,
        [f"first corrected query after a start, {words:,} words", f"{first:,.0f} ms more"],
    ]


def made_up_words(count: int, rng: np.random.Generator) -> list[str]:
    """Return distinct words of two to four syllables."""
    syllables = [a + b + c for a in "bcdfghjklmnprstvwz" for b in "aeiou" for c in ("", *"nrstl")]
    words: set[str] = set()
    while len(words) < count:
        chosen = rng.integers(len(syllables), size=(count, 4)).tolist()
        sizes = rng.integers(2, 5, size=count).tolist()
        words |= {
            "".join(syllables[i] for i in row[:size])
            for row, size in zip(chosen, sizes, strict=True)
        }
    return sorted(words)[:count]


def vocabulary_costs(count: int, seed: int) -> list[list[str]]:
    """Return rows (what, figure): time and memory of the table of letters, and of a correction."""
    rng = np.random.default_rng(seed)
    vocabulary = Vocabulary(made_up_words(count, rng))

    def frequencies(words: Sequence[str]) -> list[float]:
        found: list[float] = (vocabulary.rows(words) >= 0).astype(float).tolist()
        return found

    began = time.perf_counter()
    Spelling(vocabulary.words, frequencies)
    seconds = time.perf_counter() - began
    tracemalloc.start()
    found = Spelling(vocabulary.words, frequencies)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    typed = [mistyped(vocabulary.words[i], rng) for i in rng.integers(count, size=TIMED).tolist()]
    times = []
    for word in typed:
        began = time.perf_counter()
        found.corrections(word)
        times.append(time.perf_counter() - began)
    where = f"{count:,} words"
    return [
        [f"table of letters, {where}", f"{seconds:.1f} s"],
        [f"its memory, {where}", f"{kept / 1024:,.0f} KiB ({peak / 2**20:,.0f} MiB while it is made)"],
        [f"corrections of a word, {where}, median of {len(times)}",
         f"{statistics.median(times) * 1e6:,.0f} µs"],
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, measure, time and report."""
    options = parser(__doc__, collections=COLLECTIONS, seconds=0, queries=0)
    options.add_argument(
        "--words", type=int, default=LARGE, help=f"words of the large vocabulary; default {LARGE}"
    )
    given = options.parse_args(arguments)
    systems = given.systems or ["bm25s", *RECIPES]
    chosen = load_recipe("clicked").model.spelling
    tables: list[Table] = []
    folders = {name: collection_folder(name) for name in given.only}
    with Lab("typing_errors", given) as lab:
        for name, folder in folders.items():
            collection = lab.collection(folder)
            valid = Split(collection, "valid", ["train"], given.queries)
            test = Split(collection, "test", ["train", "valid"], given.queries)
            bundles = [bundle_of(lab, folder, r) for r in systems if r != "bm25s"]
            rows = [
                (b.name, f"discount {d:g}" if d else NOTHING, measured(lab, folder, valid, b, d))
                for b in bundles
                for d in (0.0, *DISCOUNTS)
            ]
            count = f"{len(valid.texts):,} queries"
            tables.append(table(f"{name}, valid: {count}, three seeds of edits", rows))
            rows = [
                (b.name, f"discount {d:g}" if d else NOTHING, measured(lab, folder, test, b, d))
                for b in bundles
                for d in (0.0, chosen)
            ]
            if "bm25s" in systems:
                rows.insert(0, ("bm25s", NOTHING, measured_peer(lab, folder, test)))
            count = f"{len(test.texts):,} queries"
            tables.append(table(f"{name}, test: {count}, three seeds of edits", rows))
            costs = [line for b in bundles[-1:] for line in query_costs(valid, b, chosen)]
            costs += vocabulary_costs(given.words, given.seed)
            tables.append(Table("Costs, one thread", ["what", "figure"], costs))
        lab.tell(tables)


if __name__ == "__main__":
    main()
