"""Articles with category paths as a collection: relevance is the share of the path that two articles have in common.

For two paths: the length of the common beginning over the length of the longer path. For two articles with several
paths: the best over their pairs. Held-out articles are queries, the others are documents.
"""

from __future__ import annotations

from pathlib import Path as File

import numpy as np
import orjson

from fullrank.measures import Float64
from fullrank.models.contract import field_text
from fullrank_trainer.collection import QRELS_HEADER, Collection
from fullrank_trainer.features.corpus import text_fields

Path = tuple[str, ...]

GRADES = 60
"""Scale of a relevance as a grade: paths of up to six steps give whole numbers."""


def read_categories(file: File) -> dict[str, tuple[Path, ...]]:
    """Read article id → paths, ascending, from lines of id, tab, steps joined by dots; the first line is a heading."""
    found: dict[str, set[Path]] = {}
    for line in file.read_text("utf-8").splitlines()[1:]:
        name, _, path = line.partition("\t")
        found.setdefault(name, set()).add(tuple(path.split(".")))
    return {name: tuple(sorted(paths)) for name, paths in found.items()}


def shared(a: Path, b: Path) -> float:
    """Return the share of two paths that is equal from the root."""
    same = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        same += 1
    return same / max(len(a), len(b))


def relevance(a: tuple[Path, ...], b: tuple[Path, ...]) -> float:
    """Return the relevance of two articles, 0 to 1: the best over their paths."""
    return max((shared(x, y) for x in a for y in b), default=0.0)


def write_categories(
    collection: Collection,
    file: File,
    target: File,
    *,
    seed: int,
    test_share: float = 0.2,
    valid_share: float = 0.06,
) -> File:
    """Write the collection ``target``: queries are the texts of held-out articles, documents all others.

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


def _write_lines(path: File, lines: list[dict[str, str]]) -> None:
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


def graded_precision(scores: Float64, relevant: Float64, depths: tuple[int, ...]) -> Float64:
    """Return the mean relevance of the first k documents, float64 (B, depths).

    scores, relevant  (B, documents); ties go to the earlier document
    A depth beyond the last document means all of them.
    """
    ranked = np.take_along_axis(relevant, np.argsort(-scores, axis=1, kind="stable"), axis=1)
    found = np.minimum(np.array(depths), relevant.shape[1])
    return np.asarray(np.cumsum(ranked, axis=1)[:, found - 1] / found)
