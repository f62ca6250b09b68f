"""Derive a collection for one experiment: other splits, or other queries, on the same corpus.

The corpus is linked, not copied. The same source and seed give the same files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import orjson

from fullrank.storage.documents import field_text
from fullrank.text.words import words
from fullrank_trainer.collection import Collection, relevant
from fullrank_trainer.collection.pairs import falls_into
from fullrank_trainer.features.corpus import text_fields
from fullrank_trainer.lines import QRELS_HEADER

Link = tuple[str, str]
"""Query id, id of a relevant document."""


def links_of(collection: Collection, splits: Iterable[str]) -> list[Link]:
    """Return the relevant pairs of some splits, in ascending order."""
    return sorted(
        (query, document)
        for split in splits
        for query, grades in collection.qrels(split).items()
        for document in relevant(grades)
    )


def link_corpus(source: Path, target: Path) -> None:
    """Link the corpus of a folder, or of its parent, into another folder."""
    (corpus,) = [*source.glob("corpus.jsonl*")] or source.parent.glob("corpus.jsonl*")
    _link(corpus, target)


def link_queries(source: Path, target: Path) -> None:
    """Link the queries of a folder into another; do nothing if documents are the queries."""
    for queries in source.glob("queries.jsonl*"):
        _link(queries, target)


def _link(file: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    place = target / file.name
    if not place.is_symlink():
        place.symlink_to(file.resolve())


def write_splits(source: Path, target: Path, splits: Mapping[str, Sequence[Link]]) -> Path:
    """Write the collection ``target``: corpus and queries of ``source``, judged by ``splits`` only."""
    link_corpus(source, target)
    link_queries(source, target)
    write_qrels(target, splits)
    return target


def write_qrels(target: Path, splits: Mapping[str, Sequence[Link]]) -> None:
    """Write the judgements of a collection, in ascending order."""
    (target / "qrels").mkdir(exist_ok=True)
    for name, links in splits.items():
        lines = ["\t".join(QRELS_HEADER), *(f"{q}\t{d}\t1" for q, d in sorted(links))]
        (target / "qrels" / f"{name}.tsv").write_text("\n".join(lines) + "\n", "utf-8")


def write_described(source: Path, target: Path, splits: Mapping[str, Sequence[Link]]) -> Path:
    """Do as ``write_splits`` for descriptions, which inherit ``splits`` from the folder above them."""
    write_splits(source.parent, target, splits)
    link_queries(source, target / source.name)
    return target / source.name


def mate_splits(
    collection: Collection, seed: int, *, test_share: float = 0.3, valid_share: float = 0.06
) -> dict[str, list[Link]]:
    """Split descriptions, each with its own document as the one answer.

    Raises ValueError where the queries describe nothing.
    """
    if collection.queries is None or not collection.has_mates:
        raise ValueError(f"{collection.path}: no descriptions of documents")
    ids = sorted(query.id for query in collection.queries)
    order = np.random.default_rng(seed).permutation(len(ids)).tolist()
    test, valid = round(test_share * len(ids)), max(1, round(valid_share * len(ids)))
    mates = [(ids[i], ids[i]) for i in order]
    return {
        "train": mates[test + valid :],
        "valid": mates[test : test + valid],
        "test": mates[:test],
    }


def keep_share(collection: Collection, share: float, seed: int) -> dict[str, list[Link]]:
    """Keep a random share of the training links; the others go to ``unused``.

    Larger shares hold the smaller ones.
    """
    found: dict[str, list[Link]] = {
        name: links_of(collection, [name]) for name in collection.splits
    }
    links = found["train"]
    order = np.random.default_rng(seed).permutation(len(links))
    count = max(1, round(share * len(links)))
    found["train"] = [links[i] for i in order[:count].tolist()]
    found["unused"] = [links[i] for i in order[count:].tolist()]
    return found


def split_two_ways(
    collection: Collection, seed: int, *, test_share: float = 0.3, valid_share: float = 0.06
) -> tuple[dict[str, list[Link]], dict[str, list[Link]]]:
    """Split the same test links for a model that knows their documents and for one that does not.

    A share of the documents is set apart, and the links among them are the test. Partitioned by
    links, training takes links at random from all others, so it meets those documents. Partitioned
    by documents, it takes as many links, none of which touches them. What neither trains on nor
    tests is in ``other``; with all three splits excluded both rank the same candidates.

    Returns (by links, by documents).
    """
    rng = np.random.default_rng(seed)
    links = links_of(collection, collection.splits)
    ids = sorted({document.id for document in collection.documents})
    chosen = rng.choice(len(ids), round(test_share * len(ids)), replace=False)
    apart = {ids[i] for i in chosen.tolist()}
    test = [link for link in links if link[0] in apart and link[1] in apart]
    inner = [link for link in links if link[0] not in apart and link[1] not in apart]
    tested = set(test)
    pool = [link for link in links if link not in tested]
    among = sorted(rng.choice(len(pool), len(inner), replace=False).tolist())
    found = []
    for candidates in ([pool[i] for i in among], inner):
        order = rng.permutation(len(candidates)).tolist()
        cut = max(1, round(valid_share * len(candidates)))
        valid, train = [candidates[i] for i in order[:cut]], [candidates[i] for i in order[cut:]]
        used = tested | set(candidates)
        other = [link for link in links if link not in used]
        found.append({"train": train, "valid": valid, "test": test, "other": other})
    by_links, by_documents = found
    return by_links, by_documents


def write_keywords(
    collection: Collection, target: Path, sizes: Sequence[int], *, known: int, seed: int
) -> dict[int, Path]:
    """Write query sets of k random words of each document, one folder ``k<k>`` per size.

    The words of a document are those among the ``known`` of the whole corpus that stand in the most
    documents; a query draws without repeating, the larger sizes hold the smaller ones, and a
    document with fewer words gives all it has. A query bears the id of its document: it inherits
    the document's links, and the document is no answer to it.
    """
    sources = text_fields(collection)
    of_document = [
        sorted(set(words(field_text(document.fields, sources))))
        for document in collection.documents
    ]
    df: dict[str, int] = {}
    for found in of_document:
        for word in found:
            df[word] = df.get(word, 0) + 1
    kept = set(sorted(df, key=lambda word: (-df[word], word))[:known])
    folder = collection.path
    link_corpus(folder, target)
    if not (target / "qrels").exists():
        (target / "qrels").symlink_to((folder / "qrels").resolve())
    drawn: list[list[str]] = []
    for row, found in enumerate(of_document):
        choice = [word for word in found if word in kept]
        order = np.random.default_rng([seed, row]).permutation(len(choice))
        drawn.append([choice[i] for i in order[: max(sizes)].tolist()])
    folders = {}
    for size in sizes:
        folders[size] = target / f"k{size}"
        folders[size].mkdir(exist_ok=True)
        lines = [
            orjson.dumps({"_id": document.id, "text": " ".join(some[:size])})
            for document, some in zip(collection.documents, drawn, strict=True)
        ]
        (folders[size] / "queries.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return folders


def is_cold(document: str, share: float = 0.1) -> bool:
    """Return whether a document's id falls into the cold share."""
    return falls_into(document, share, b"cold")


def cold_splits(collection: Collection, share: float = 0.1) -> dict[str, list[Link]]:
    """Split the links so that only the test judges the cold documents, and it judges no others.

    Every document stays a candidate. Training and validation keep their links to the others.
    """
    links = links_of(collection, collection.splits)
    kept = {
        name: [link for link in links_of(collection, [name]) if not is_cold(link[1], share)]
        for name in ("train", "valid")
    }
    return {**kept, "test": [link for link in links if is_cold(link[1], share)]}
