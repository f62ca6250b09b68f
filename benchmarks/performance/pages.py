"""Train on pages that link each other: how long the default recipe takes, and how much memory.

    python -m benchmarks.performance.pages [--json] [--documents 48000] [--recipe auto] [--work DIR]

The pages are resampled from debian, TERMS different words each (about 2.2 kB). A third of them link others: ten links
each, drawn by the planted model of benchmarks.performance.planted with the linking page as the query. Nine tenths of
the links are for training, the rest is validation. The default size must train within 300 seconds and 3 GiB.

train_seconds, train_peak_gib   of `fullrank train`, as benchmarks.harness.commands measures them
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.derive import Link, write_splits
from benchmarks.harness.processes import run_measured
from benchmarks.harness.report import data_folder, machine, show
from benchmarks.performance.planted import corpus_texts, draw_links, planted_tfidf
from benchmarks.performance.resample import read_source, write_corpus

TERMS = 210
_LINKING, _TRAIN, _SEED = 1 / 3, 0.9, 1


def write_pages(folder: Path, documents: int) -> int:
    """Write a collection of pages and their links; return the number of links."""
    source = read_source(data_folder() / "debian")
    stretch = source.stretch(TERMS, _SEED)
    corpus = folder / "pages"
    for _ in write_corpus(source, corpus, documents, seed=_SEED, stretch=stretch):
        pass
    (pages,) = planted_tfidf([list(corpus_texts(corpus))])
    rng = np.random.default_rng(_SEED)
    linking = np.sort(rng.choice(documents, round(_LINKING * documents), replace=False))
    drawn = draw_links(pages.take(linking), pages, _SEED)
    links: list[Link] = [
        (f"r{page:09}", f"r{target:09}")
        for page, targets in zip(linking.tolist(), drawn.tolist(), strict=True)
        for target in sorted(set(targets) - {page})
    ]
    order = rng.permutation(len(links)).tolist()
    train = round(_TRAIN * len(links))
    splits = {"train": order[:train], "valid": order[train:]}
    write_splits(corpus, folder, {name: [links[i] for i in rows] for name, rows in splits.items()})
    return len(links)


def run(work: Path, documents: int, recipe: str | None) -> dict[str, Any]:
    """Write the pages, train on them, return the figures."""
    folder = work / f"pages-{documents}"
    links = write_pages(folder, documents)
    size = (folder / "corpus.jsonl").stat().st_size
    chosen = ["--recipe", recipe] if recipe else []
    trained = run_measured(
        ["train", str(folder), "--json", "--name", "pages", "--out", str(work / "out"), *chosen]
    )
    return {
        "benchmark": "pages",
        "machine": machine(["fullrank", "numpy", "numba"]),
        "recipe": recipe or "default",
        "documents": documents,
        "links": links,
        "kilobytes_a_document": round(size / documents / 1000, 2),
        "train_seconds": round(trained.seconds, 1),
        "train_peak_gib": round(trained.peak_gib, 2),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--documents", type=int, default=48_000)
    parser.add_argument("--recipe", help="another than the default (said in the result)")
    parser.add_argument("--work", type=Path, help="folder that keeps the pages; default none")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="fullrank-pages-") as scratch:
        result = run((given.work or Path(scratch)).resolve(), given.documents, given.recipe)
    show(result, given.json)


if __name__ == "__main__":
    main()
