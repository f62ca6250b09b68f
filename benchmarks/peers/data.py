"""What a peer may read: the texts of the documents and the judged pairs of the training split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fullrank.errors import CollectionError
from fullrank.models.contract import field_text
from fullrank_trainer.collection import Collection, read_collection, relevant
from fullrank_trainer.evaluation.judgement import Judgement, judge
from fullrank_trainer.features.corpus import text_fields

EXCLUDED = {"test": ("train", "valid"), "valid": ("train",)}
"""Measured split → the splits whose documents are no candidates for a query."""


@dataclass(frozen=True, eq=False)
class PeerData:
    """A collection as plain texts.

    Attributes:
        collection: where the texts come from.
        documents: the text of each document, its text fields joined by newlines, in row order.
        train: (text of the query, row of a relevant document), one for each judged pair of train.
    """

    collection: Collection
    documents: list[str]
    train: list[tuple[str, int]]

    @cached_property
    def clicked(self) -> list[str]:
        """The documents with the text of their training queries added, in row order.

        Raises CollectionError if the queries are documents: their text is no short description.
        """
        if self.collection.queries is None:
            raise CollectionError(f"{self.collection.path}: the queries are documents")
        parts = [[text] for text in self.documents]
        for query, row in self.train:
            parts[row].append(query)
        return ["\n".join(part) for part in parts]

    def asked(self, split: str) -> Asked:
        """Return the judged queries of a split with their texts."""
        judgements, _ = judge(self.collection, split, EXCLUDED[split])
        texts = _texts(self.collection, self.documents)
        return Asked(split, judgements, [texts[judgement.query] for judgement in judgements])


@dataclass(frozen=True, eq=False)
class Asked:
    """The queries of a split: what is judged, and their texts in the same order."""

    split: str
    judgements: Sequence[Judgement]
    texts: Sequence[str]


def read_peer_data(folder: Path) -> PeerData:
    """Read a collection folder. Raises CollectionError if it has no training pairs."""
    collection = read_collection(folder)
    fields = text_fields(collection)
    documents = [field_text(document.fields, fields) for document in collection.documents]
    rows = {document.id: row for row, document in enumerate(collection.documents)}
    texts = _texts(collection, documents)
    train = [
        (texts[query], rows[document])
        for query, grades in collection.qrels("train").items()
        for document in relevant(grades)
    ]
    if not train:
        raise CollectionError(f"{folder / 'qrels' / 'train.tsv'}: no judged pair to learn from")
    return PeerData(collection, documents, train)


def _texts(collection: Collection, documents: Sequence[str]) -> dict[str, str]:
    """Return the text of each query."""
    if collection.queries is not None:
        return {query.id: query.text for query in collection.queries}
    return {item.id: text for item, text in zip(collection.documents, documents, strict=True)}
