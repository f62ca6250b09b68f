"""Judgements of a collection beside those of clicks: they are added to training, and measure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson

from fullrank.errors import CollectionError
from fullrank.events.records import normalised
from fullrank_trainer.clicks.export import split_of
from fullrank_trainer.collection import Collection, relevant
from fullrank_trainer.collection.judgements import WEIGHTS


def add_judgements(
    folder: Path, judged: Collection, documents: frozenset[str], *, final: bool = False
) -> int:
    """Add the judgements of the split `train`; return their number.

    Queries that people ask, too, are left out where their clicks measure: in the splits `valid` and `test`.

    Args:
        folder: Collection that clicks made; it is changed.
        judged: Collection with queries of its own.
        documents: Ids that exist.
        final: The clicks of `test` train, as for ``write_collection``.

    Raises:
        CollectionError: Documents are the queries of the collection, or it has no split `train`.
    """
    if judged.queries is None:
        raise CollectionError(
            f"{judged.path}: its documents are its queries; --with needs queries.jsonl"
        )
    texts = {query.id: query.text for query in judged.queries}
    measuring = ("valid",) if final else ("valid", "test")
    count = 0
    with (
        (folder / "queries.jsonl").open("ab") as queries,
        (folder / "qrels" / "train.tsv").open("a", encoding="utf-8") as qrels,
        (folder / WEIGHTS / "train.tsv").open("a", encoding="utf-8") as weights,
    ):
        for query, grades in judged.qrels("train").items():
            if split_of(normalised(texts[query])) in measuring:
                continue
            found = [document for document in relevant(grades) if document in documents]
            if not found:
                continue
            id = f"judged:{query}"
            queries.write(orjson.dumps({"_id": id, "text": texts[query]}) + b"\n")
            for document in found:
                qrels.write(f"{id}\t{document}\t1\n")
                # As without a file of weights.
                weights.write(f"{id}\t{document}\t{len(found) ** -0.5:.6g}\n")
            count += len(found)
    return count


def with_documents(judged: Collection, documents: frozenset[str]) -> Collection:
    """Return a collection without its judgements of documents that do not exist."""
    judgements = {
        split: {
            query: found
            for query, grades in qrels.items()
            if (found := {d: grade for d, grade in grades.items() if d in documents})
        }
        for split, qrels in judged.judgements.items()
    }
    return replace(judged, judgements=judgements)
