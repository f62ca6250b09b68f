"""Experiment, typed queries: what people type on a site whose bundle was trained on the links between its pages.

    python -m benchmarks.experiments.typed [--seed 1] [--seconds 250] [--markdown]

A bundle of wikispeedia, whose documents are the queries, is trained on page links. Then it is asked typed queries that
training did not make:

    names       words of an article that name an article it links to in the split test, and are not its title
    categories  the last part of a category path; its articles are the answers
    titles      the titles of 1,500 articles
    words       three random words of one article, 1,500 times

MRR is measured with the weights of typed text, with the weights of documents as queries, and by the recipe bm25. The
best answer counts; of documents with equal scores it is the last.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.harness.lab import collection_folder
from benchmarks.harness.report import Table, print_tables
from fullrank import open_bundle
from fullrank.bundle import Bundle
from fullrank.measures import Estimate, estimate
from fullrank.models.contract import Model
from fullrank_trainer.collection import Collection, read_collection, relevant
from fullrank_trainer.train import train

SAMPLED = 1_500
_WORD = re.compile(r"\w+")
_SMALL = frozenset(_WORD.findall("a an and at by de for from in is la of on the to with"))
_BATCH = 256

Queries = Mapping[str, set[str]]
"""Text → ids of the documents that answer it."""


def names(collection: Collection) -> Queries:
    """Find how articles name those that they link to, without the names that are titles."""
    text = {
        document.id: _WORD.findall(str(document.fields["text"]))
        for document in collection.documents
    }
    title = {
        document.id: _WORD.findall(str(document.fields["title"]))
        for document in collection.documents
    }
    found = defaultdict[str, set[str]](set)
    for source, grades in collection.qrels("test").items():
        for target in relevant(grades):
            name = " ".join(_longest_name(text[source], title[target]))
            if name and name.lower() != " ".join(title[target]).lower():
                found[name].add(target)
    return found


def _longest_name(words: Sequence[str], title: Sequence[str]) -> Sequence[str]:
    """Return the run of words with the most words of a title, whatever their endings; small words count for nothing."""
    every = {_stem(word) for word in title}
    large = {_stem(word) for word in title if word.lower() not in _SMALL}
    best: Sequence[str] = []
    at = 0
    while at < len(words):
        end = at
        if _stem(words[at]) in large:
            while end < len(words) and _stem(words[end]) in every:
                end += 1
            while words[end - 1].lower() in _SMALL:
                end -= 1
            if _large(words[at:end]) > _large(best):
                best = words[at:end]
        at = max(at + 1, end)
    return best


def _large(words: Iterable[str]) -> int:
    return len({_stem(word) for word in words if word.lower() not in _SMALL})


def _stem(word: str) -> str:
    word = word.lower()
    for ending in ("ies", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def categories(path: Path, ids: Iterable[str]) -> Queries:
    """Read the categories of articles."""
    found, known = defaultdict[str, set[str]](set), {*ids}
    for line in path.read_text("utf-8").splitlines()[1:]:
        id, category = line.split("\t")
        if id in known:
            found[category.rsplit(".", 1)[-1].replace("_", " ")].add(id)
    return found


def sampled(collection: Collection) -> tuple[Queries, Queries]:
    """Return titles, and random words, of some articles."""
    draw = random.Random(7)
    documents = draw.sample(list(collection.documents), SAMPLED)
    titles = {str(document.fields["title"]): {document.id} for document in documents}
    some = {}
    for document in documents:
        long = [word for word in _WORD.findall(str(document.fields["text"])) if len(word) > 3]
        if len(long) >= 3:
            some[" ".join(draw.sample(long, 3))] = {document.id}
    return titles, some


def measure(bundle: Bundle, model: Model, queries: Queries) -> Estimate:
    """Return the MRR of a bundle whose queries a model encodes."""
    rows = {id: row for row, id in enumerate(bundle.documents.ids)}
    texts, values = list(queries), []
    for start in range(0, len(texts), _BATCH):
        part = texts[start : start + _BATCH]
        for text, scores in zip(
            part, bundle.retriever.scores(model.encode_queries(part)), strict=True
        ):
            best = max(scores[rows[id]] for id in queries[text])
            values.append(1 / np.count_nonzero(scores >= best))
    return estimate(np.array(values))


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=250, help="time limit of the fits")
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    folder = collection_folder("wikispeedia")
    collection = read_collection(folder)
    titles, some = sampled(collection)
    sets = {
        "names": names(collection),
        "categories": categories(folder / "categories.tsv", collection.document_ids),
        "titles": titles,
        "words": some,
    }
    with tempfile.TemporaryDirectory(prefix="fullrank-typed-") as out:
        limit = [f"auto.seconds={given.seconds}"]
        blend = open_bundle(
            train(folder, Path(out), "blend", overrides=limit, seed=given.seed).path
        )
        bm25 = open_bundle(train(folder, Path(out), "bm25", recipe="bm25").path)
        systems = [(bm25, bm25.model), (blend, blend.model.for_documents), (blend, blend.model)]
        rows = []
        for name, queries in sets.items():
            found = [measure(bundle, model, queries) for bundle, model in systems]
            figures = [f"{one.mean:.3f} ± {one.error_text(3)}" for one in found]
            ratio = f"{found[2].mean / found[0].mean:.2f}"
            rows.append((name, f"{len(queries):,}", *figures, ratio))
    headings = ("typed queries", "number", "bm25", "weights of documents", "of typed text", "over bm25")  # fmt: skip
    table = Table("wikispeedia, MRR", headings, rows)
    print_tables([table], given.markdown)


if __name__ == "__main__":
    main()
