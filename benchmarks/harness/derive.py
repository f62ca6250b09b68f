"""Derive a collection for one experiment: other splits, or other queries, on the same corpus.

The corpus is linked, not copied. The same source and seed give the same files.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import orjson

from fullrank.measures import Float64
from fullrank.models.contract import field_text
from fullrank.text.words import words
from fullrank_trainer.collection import QRELS_HEADER, Collection, read_collection, relevant
from fullrank_trainer.features.corpus import text_fields
from fullrank_trainer.training.holdout import falls_into

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


def keep_queries(collection: Collection, step: int) -> dict[str, list[Link]]:
    """Keep the links of every so many queries of each split."""
    found: dict[str, list[Link]] = {}
    for name in collection.splits:
        kept = set(sorted(collection.qrels(name))[::step])
        found[name] = [link for link in links_of(collection, [name]) if link[0] in kept]
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


Steps = tuple[str, ...]
"""A category path, from the root."""

GRADES = 60
"""Scale of a relevance as a grade: category paths of up to six steps give whole numbers."""


def read_categories(file: Path) -> dict[str, tuple[Steps, ...]]:
    """Read article id → paths, ascending, from lines of id, tab, steps joined by dots; the first line is a heading."""
    found: dict[str, set[Steps]] = {}
    for line in file.read_text("utf-8").splitlines()[1:]:
        name, _, path = line.partition("\t")
        found.setdefault(name, set()).add(tuple(path.split(".")))
    return {name: tuple(sorted(paths)) for name, paths in found.items()}


def shared(a: Steps, b: Steps) -> float:
    """Return the share of two paths that is equal from the root."""
    same = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        same += 1
    return same / max(len(a), len(b))


def relevance(a: tuple[Steps, ...], b: tuple[Steps, ...]) -> float:
    """Return the relevance of two articles, 0 to 1: the best over their paths."""
    return max((shared(x, y) for x in a for y in b), default=0.0)


def write_categories(
    collection: Collection,
    file: Path,
    target: Path,
    *,
    seed: int,
    test_share: float = 0.2,
    valid_share: float = 0.06,
) -> Path:
    """Write the collection ``target``: queries are the texts of held-out articles, documents all others.

    Relevance is the share of the category path that two articles have in common, the best over their paths.

    test   every document of relevance above 0, graded by GRADES times that
    valid  documents of relevance 1 alone, for the choice of epochs and settings; other articles
    An article without a category is in neither.
    """
    categories = read_categories(file)
    articles = [document for document in collection.documents if document.id in categories]
    order = np.random.default_rng(seed).permutation(len(articles))
    tests, valids = round(test_share * len(articles)), round(valid_share * len(articles))
    held_out = {"test": order[:tests], "valid": order[tests : tests + valids]}
    kept = [articles[i] for i in np.sort(order[tests + valids :]).tolist()]

    (target / "qrels").mkdir(parents=True, exist_ok=True)
    sources = text_fields(collection)
    documents = [{"_id": d.id, **d.texts(sources)} for d in kept]
    _write_lines(target / "corpus.jsonl", documents)
    queries = [articles[i] for rows in held_out.values() for i in rows.tolist()]
    texts = [{"_id": d.id, "text": field_text(d.fields, sources)} for d in queries]
    _write_lines(target / "queries.jsonl", texts)

    # Hundreds of articles share their paths, so each pair of path sets is compared once.
    kinds = sorted({categories[d.id] for d in articles})
    place = {paths: i for i, paths in enumerate(kinds)}
    table = np.array([[relevance(a, b) for b in kinds] for a in kinds])
    of_document = np.array([place[categories[d.id]] for d in kept])
    for split, rows in held_out.items():
        lines = ["\t".join(QRELS_HEADER)]
        for i in rows.tolist():
            query = articles[i].id
            found = table[place[categories[query]], of_document]
            answers = np.flatnonzero(found == 1 if split == "valid" else found > 0)
            lines += [
                f"{query}\t{kept[j].id}\t{round(GRADES * found[j])}" for j in answers.tolist()
            ]
        (target / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    return target


def _write_lines(path: Path, lines: list[dict[str, str]]) -> None:
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


def graded_precision(scores: Float64, relevant: Float64, depths: tuple[int, ...]) -> Float64:
    """Return the mean relevance of the first k documents, float64 (B, depths).

    scores, relevant  (B, documents); ties go to the earlier document
    A depth beyond the last document means all of them.
    """
    ranked = np.take_along_axis(relevant, np.argsort(-scores, axis=1, kind="stable"), axis=1)
    found = np.minimum(np.array(depths), relevant.shape[1])
    return np.asarray(np.cumsum(ranked, axis=1)[:, found - 1] / found)


SHORT = 20
"""Words of a short text."""


def write_content(source: Path, target: Path) -> Path:
    """Write short texts as documents, pages as queries, clicks as judgements.

    A click is a step of the navigation game: on the page, the player followed the link to that article. The splits are
    by page, so no test page occurs in training. The queries bear the ids of documents and stand one folder down, so
    they inherit the judgements and a page's own text is no candidate for it.
    """
    collection = read_collection(source)
    sources = text_fields(collection)
    pages = target / "pages"
    (target / "qrels").mkdir(parents=True, exist_ok=True)
    pages.mkdir(exist_ok=True)
    whole = {d.id: field_text(d.fields, sources) for d in collection.documents}
    short = {
        d.id: " ".join(words(field_text(d.fields, ["text"]))[:SHORT]) for d in collection.documents
    }
    for path, texts in ((target / "corpus.jsonl", short), (pages / "queries.jsonl", whole)):
        _write_lines(path, [{"_id": id, "text": text} for id, text in texts.items()])
    for file in sorted((source / "clicks").glob("*.tsv.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as stream:
            _, *rows = stream.read().splitlines()
        lines = ["\t".join(QRELS_HEADER), *rows]
        name = f"{file.name.split('.')[0]}.tsv"
        (target / "qrels" / name).write_text("\n".join(lines) + "\n", "utf-8")
    return pages
