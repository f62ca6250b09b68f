"""A collection with all its texts counted: the input of every recipe's matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fullrank.errors import TrainingError
from fullrank.storage.documents import field_text, has_text
from fullrank.storage.encoding import Int64, Rows
from fullrank.storage.strings import Lexicon, StringTable
from fullrank.text.compounds import count_compounds
from fullrank.text.features import Counts, Vocabulary, Zeros, count_corpus
from fullrank.text.phrases import Phrases, phrases_of
from fullrank_trainer.collection import Collection
from fullrank_trainer.collection.pairs import Ids, Pairs
from fullrank_trainer.collection.schema import SCHEMA

ENTRIES = 1 << 21
"""Entries of the matrices in one block."""

Stack = Callable[[Iterable[Rows]], Rows]
"""Puts blocks of rows below each other, in memory or in a file."""


def stack_in_memory(blocks: Iterable[Rows]) -> Rows:
    """Put blocks of rows below each other."""
    parts = [*blocks]
    return parts[0] if len(parts) == 1 else Rows.vstack(parts)


_COUNTED = 1 << 22  # entries at once


@dataclass(eq=False)
class Totals:
    """Sums of counts that corpora share: all fields, (documents, words), and in how many documents each word occurs."""

    documents: Rows | None = None
    frequency: Int64 | None = None


@dataclass(frozen=True, eq=False)
class Corpus:
    """A counted collection.

    Attributes:
        counts: one matrix of word counts per source field, then one of the queries if they are
            not the documents.
        mates: int64 (queries,): the document that each query is or describes, which is never its
            answer; -1 if it has none.
        vocabularies: those of models, kept so that models with equal ones share them.
    """

    collection: Collection
    sources: list[str]
    counts: Counts
    pairs: Pairs
    mates: Int64
    processes: int
    counting: Counting
    cache: dict[Any, Any] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    vocabularies: list[Vocabulary] = field(default_factory=list)

    @property
    def query_ids(self) -> Ids:
        return self.collection.query_ids

    @property
    def queries(self) -> Rows:
        """Word counts of the queries, (queries, words)."""
        if self.collection.documents_are_queries:
            return self.documents
        return self.counts.columns[-1]

    @property
    def documents(self) -> Rows:
        """Word counts of the documents, (documents, words), all fields together."""
        if self.totals.documents is None:
            self.totals.documents = self.add_fields()
        return self.totals.documents

    def add_fields(self, stack: Stack = stack_in_memory) -> Rows:
        """Add up the word counts of all fields of the documents, (documents, words)."""
        columns = self.counts.columns[: len(self.sources)]
        if len(columns) == 1:
            return columns[0]
        return stack(map(Rows.add, blocks_of(columns)))

    @property
    def frequency(self) -> Int64:
        """In how many documents each word occurs, in any field, int64 (words,)."""
        if self.totals.frequency is None:
            self.totals.frequency = document_frequency(self.documents)
        return self.totals.frequency

    @property
    def compounds(self) -> Sequence[str]:
        """The compounds of the documents, ascending."""
        if "compounds" not in self.cache:
            found = self.counting.compounds(self.collection, self.sources)
            self.cache["compounds"] = StringTable.of(found)
        compounds: StringTable = self.cache["compounds"]
        return compounds

    def phrases(self, name: str) -> tuple[Phrases, Rows]:
        """Return the phrases of a field, and which one each document has: (documents, phrases)."""
        if ("phrases", name) not in self.cache:
            self.cache["phrases", name] = self.counting.phrases(self.collection, name)
        found: tuple[Phrases, Rows] = self.cache["phrases", name]
        return found

    @property
    def public_queries(self) -> Sequence[str]:
        """The ids of queries whose text may stay in a bundle: of clicks, those of at least two people."""
        if self.pairs.people is None:
            return self.query_ids
        return [self.query_ids[row] for row in self.pairs.clicked.queries.tolist()]

    @property
    def unjudged(self) -> npt.NDArray[np.bool_]:
        """Which documents no training pair judges, bool (documents,)."""
        found = np.ones(len(self.collection.documents), np.bool_)
        found[self.pairs.documents] = False
        return found

    def vocabulary(self, rows: Int64, buckets: int = 0) -> Vocabulary:
        """Return a vocabulary of words of the counts, given by place; the same object for equal ones."""
        names = StringTable.of(self.counts.words)
        words = Lexicon.of(StringTable.gather([names], np.zeros(len(rows), np.int32), rows))
        for known in self.vocabularies:
            if known.buckets == buckets and known.known.is_same(words):
                return known
        self.vocabularies.append(Vocabulary(words, buckets))
        return self.vocabularies[-1]

    def query_texts(self, query_fields: Sequence[str]) -> Sequence[str]:
        """Return the queries' texts; of documents that are queries, the given fields."""
        if self.collection.queries is not None:
            return self.collection.query_texts
        return [field_text(d.fields, query_fields) for d in self.collection.documents]

    def training_texts(self) -> list[str]:
        """Return all text that training may read: documents, and separate training queries."""
        texts = [field_text(d.fields, self.sources) for d in self.collection.documents]
        if self.collection.queries is not None:
            asked = self.collection.query_texts
            texts += [asked[row] for row in self.pairs.queries.tolist()]
        return texts


def count_collection(
    collection: Collection,
    *,
    processes: int,
    train: str = "train",
    counting: Counting | None = None,
    zeros: Zeros = np.zeros,
) -> Corpus:
    """Count the words of all texts of a collection; by default these processes do. Raises TrainingError."""
    sources = text_fields(collection)
    counting = counting or InThisProcess(processes)
    counts, frequency = counting.words(collection, sources, zeros)
    pairs, mates = relevant_pairs(collection, train), mate_rows(collection)
    totals, counts = Totals(frequency=frequency), counts.in_table()
    return Corpus(collection, sources, counts, pairs, mates, processes, counting, totals=totals)


def relevant_pairs(collection: Collection, split: str) -> Pairs:
    """Return the relevant pairs of a split, to learn from; none if the split does not exist."""
    source = str(collection.path / "qrels" / f"{split}.tsv")
    if split not in collection.splits:
        return Pairs.from_lists({}, source=source)
    judged = collection.judgements[split]
    grades, weights = judged.grades, judged.weights
    assert grades is not None
    if weights is not None:
        weights = np.where(weights > 0, weights, 1).astype(np.float32)
    judged = replace(judged, entries=judged.entries.astype(np.int64), grades=None, weights=weights)
    is_relevant = grades > 0
    if collection.has_mates:
        is_relevant &= mate_rows(collection)[judged.owners] != judged.entries
    found, passed = (judged.where(kept).ascending() for kept in (is_relevant, grades < 0))
    passed = passed.where(np.isin(passed.owners, found.rows))
    passed = replace(passed, weights=None, people=None)
    return replace(found, source=source, passed_over=passed)


def mate_rows(collection: Collection) -> Int64:
    """Return the row of each query's mate, int64 (queries,); -1 if it has none."""
    if not collection.has_mates:
        return np.full(len(collection.query_ids), -1, np.int64)
    rows = collection.document_ids.rows
    return np.array([rows[query] for query in collection.query_ids], np.int64)


def text_fields(collection: Collection) -> list[str]:
    """Return the fields that are read, in order. Raises TrainingError if no document has text in them."""
    names = [verdict.name for verdict in collection.fields if verdict.is_read]
    if any(has_text(document.fields, names) for document in collection.documents):
        return names
    stored = ", ".join(f"{v.name} ({v.reason})" for v in collection.fields if not v.is_read)
    raise TrainingError(
        f"{collection.path}: no document has a text field that is read"
        + (
            f"; only stored: {stored}. Name text fields with --fields or in {SCHEMA}"
            if stored
            else ""
        )
    )


def document_frequency(rows: Rows) -> Int64:
    """Return in how many rows each column occurs, int64 (width,)."""
    found = np.zeros(rows.width, np.int64)
    # numpy counts a copy of 8 bytes an entry.
    for start in range(0, len(rows.indices), _COUNTED):
        found += np.bincount(rows.indices[start : start + _COUNTED], minlength=rows.width)
    return found


class Counting(Protocol):
    """Counts the texts of a collection; every one returns what ``InThisProcess`` returns, bit for bit."""

    def words(
        self, collection: Collection, fields: Sequence[str], zeros: Zeros = np.zeros
    ) -> tuple[Counts, Int64 | None]:
        """Count words.

        Returns:
            One matrix for each field, then one of the queries if they are not the documents; and in how many
            documents each word occurs, in any field, int64 (words,), if that is known already.
        """

    def compounds(self, collection: Collection, fields: Sequence[str]) -> Sequence[str]:
        """Return the compounds of some fields of the documents, ascending."""

    def phrases(self, collection: Collection, field: str) -> tuple[Phrases, Rows]:
        """Return the distinct phrases of a field, and which one each document has: (documents, phrases)."""


class InThisProcess:
    """Counts in this process and in helpers that it starts."""

    def __init__(self, processes: int) -> None:
        self._processes = processes

    def words(
        self, collection: Collection, fields: Sequence[str], zeros: Zeros = np.zeros
    ) -> tuple[Counts, Int64 | None]:
        columns = columns_of(collection, fields)
        return count_corpus(columns, processes=self._processes, zeros=zeros), None

    def compounds(self, collection: Collection, fields: Sequence[str]) -> Sequence[str]:
        columns = [collection.field_texts(name) for name in fields]
        return count_corpus(columns, processes=self._processes, counter=count_compounds).words

    def phrases(self, collection: Collection, field: str) -> tuple[Phrases, Rows]:
        return phrases_in(collection.field_texts(field))


def phrases_in(texts: Sequence[str]) -> tuple[Phrases, Rows]:
    """Return the distinct phrases of some texts, and which one each text is: (texts, phrases)."""
    found = Phrases(sorted({*phrases_of(texts)} - {""}))
    return found, found.own(texts)


def columns_of(collection: Collection, fields: Sequence[str]) -> list[Sequence[str]]:
    """Return the texts of each field of the documents, then those of the queries if they are not the documents."""
    columns = [collection.field_texts(name) for name in fields]
    if collection.queries is not None:
        columns.append(collection.query_texts)
    return columns


def blocks_of(columns: Sequence[Rows], most: int = ENTRIES) -> Iterator[list[Rows]]:
    """Cut matrices of as many rows into blocks of at most so many entries; without a row, into one empty block."""
    count = len(columns[0])
    entries = np.sum([rows.indptr for rows in columns], axis=0)
    start = 0
    while True:
        # At least one row, however long it is.
        stop = int(np.searchsorted(entries, entries[start] + most, "right")) - 1
        stop = min(count, max(stop, start + 1))
        yield [rows.slice(start, stop) for rows in columns]
        if stop == count:
            return
        start = stop
