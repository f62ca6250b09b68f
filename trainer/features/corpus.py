"""A collection counted once: what every recipe's matrices are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fullrank.encoding import Int64
from fullrank.errors import TrainingError
from fullrank.features import Counts, Rows, count_corpus, rows_of
from fullrank.model import field_text
from trainer.collection import Collection, relevant


@dataclass(frozen=True, eq=False)
class Pairs:
    """Judged pairs of a split: query row → rows of its relevant documents, ascending."""

    queries: Int64
    relevant: dict[int, Int64]

    def __len__(self) -> int:
        return sum(map(len, self.relevant.values()))


@dataclass(frozen=True, eq=False)
class Corpus:
    """A collection counted once; every recipe's matrices are made from it.

    sources  the text fields of the documents, in order of appearance
    counts   columns: one per source field, then the queries where they are not the documents
    pairs    of the training split
    mates    int64 (B,): the row of the document that each query is or describes, never its answer;
             -1 where there is none
    made     what was counted on top, by what asked for it
    """

    collection: Collection
    sources: list[str]
    counts: Counts
    query_ids: list[str]
    pairs: Pairs
    mates: Int64
    processes: int
    made: dict[Any, Any] = field(default_factory=dict)

    @property
    def queries(self) -> Rows:
        """Word counts of the queries, (B, words)."""
        if self.collection.documents_are_queries:
            return joined(self.counts.columns[: len(self.sources)])
        return self.counts.columns[-1]

    @property
    def documents(self) -> Rows:
        """Word counts of the documents, all fields together."""
        return joined(self.counts.columns[: len(self.sources)])

    def only(self, sources: Sequence[str]) -> Corpus:
        """The corpus with some of its text fields. Raises TrainingError for one that it has not."""
        for name in sources:
            if name not in self.sources:
                there = ", ".join(self.sources)
                raise TrainingError(f"model.sources: no text field {name!r}; there are: {there}")
        kept = [self.counts.columns[self.sources.index(name)] for name in sources]
        kept += self.counts.columns[len(self.sources) :]
        return replace(self, sources=list(sources), counts=Counts(self.counts.words, kept))

    def query_texts(self, query_fields: Sequence[str]) -> list[str]:
        """The queries' texts."""
        if self.collection.queries is not None:
            return [query.text for query in self.collection.queries]
        return [field_text(d.fields, query_fields) for d in self.collection.documents]

    def training_texts(self) -> list[str]:
        """All text that training may look at: the documents, and the training queries where they are apart."""
        texts = [field_text(d.fields, self.sources) for d in self.collection.documents]
        if self.collection.queries is not None:
            texts += [self.collection.queries[row].text for row in self.pairs.queries.tolist()]
        return texts

    def columns(self) -> list[list[str]]:
        """The texts of each column of ``counts``."""
        return _columns(self.collection, self.sources)


def joined(columns: Sequence[Rows]) -> Rows:
    """Counts of several fields added up."""
    total = columns[0].csr()
    for rows in columns[1:]:
        total = total + rows.csr()
    return rows_of(sp.csr_array(total))


def count_collection(collection: Collection, *, processes: int, train: str = "train") -> Corpus:
    """Read, cut and count all texts of a collection."""
    sources = text_fields(collection)
    of_queries = collection.documents if collection.queries is None else collection.queries
    ids = [item.id for item in of_queries]
    counts = count_corpus(_columns(collection, sources), processes=processes)
    pairs, mates = pairs_of(collection, ids, train), mates_of(collection, ids)
    return Corpus(collection, sources, counts, ids, pairs, mates, processes)


def _columns(collection: Collection, sources: Sequence[str]) -> list[list[str]]:
    columns = [[field_text(d.fields, [name]) for d in collection.documents] for name in sources]
    if collection.queries is not None:
        columns.append([query.text for query in collection.queries])
    return columns


def text_fields(collection: Collection) -> list[str]:
    """Fields that are text with spaces or titles: title, text, and any other field of prose.

    A field whose values are few and short (a section, a language) is stored but not searched.
    """
    values: dict[str, list[str]] = {}
    for document in collection.documents:
        for name, value in document.fields.items():
            if isinstance(value, str):
                values.setdefault(name, []).append(value)
    found: list[str] = [name for name in ("title", "text") if name in values]
    for name, texts in values.items():
        if name not in found and len(set(texts)) > 0.2 * len(texts):
            found.append(name)
    if not found:
        raise TrainingError(f"{collection.path}: no document has a text field")
    return found


def mates_of(collection: Collection, query_ids: Sequence[str]) -> Int64:
    """The row of each query's mate, -1 where it has none."""
    if not collection.have_mates:
        return np.full(len(query_ids), -1, np.int64)
    rows = {document.id: row for row, document in enumerate(collection.documents)}
    return np.array([rows[query] for query in query_ids], np.int64)


def pairs_of(collection: Collection, query_ids: Sequence[str], split: str) -> Pairs:
    """The judged pairs of a split as rows; empty where the split does not exist."""
    if split not in collection.splits:
        return Pairs(np.zeros(0, np.int64), {})
    place = {query: row for row, query in enumerate(query_ids)}
    rows = {document.id: row for row, document in enumerate(collection.documents)}
    mates = collection.have_mates
    found: dict[int, Int64] = {}
    for query, grades in collection.qrels(split).items():
        documents = [rows[d] for d in relevant(grades) if not (mates and d == query)]
        if documents:
            found[place[query]] = np.array(sorted(documents), np.int64)
    return Pairs(np.array(sorted(found), np.int64), found)


def document_frequency(rows: Rows) -> Int64:
    """In how many rows each word stands, int64 (width,)."""
    return np.bincount(rows.indices, minlength=rows.width).astype(np.int64)
