"""A collection with all its texts counted: the input of every recipe's matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fullrank.encoding import Float32, Int64, Rows
from fullrank.errors import TrainingError
from fullrank.models.contract import field_text
from fullrank.storage.documents import has_text
from fullrank.text.features import Counts, Vocabulary
from fullrank.text.phrases import Phrases
from trainer.collection import Collection, relevant
from trainer.collection.schema import SCHEMA
from trainer.collection.weights import MIN_PEOPLE
from trainer.features.counting import Counting, InThisProcess, Zeros, columns_of

_Value = TypeVar("_Value", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Judged pairs of one split.

    Attributes:
        queries: int64, the rows of the queries with a relevant document, ascending.
        relevant: query row → rows of its relevant documents, int64, ascending.
        source: the qrels file, for error messages.
        weights: query row → weight of each relevant document, float32, above zero; None: all alike.
        shared: query row → which relevant documents at least two people clicked, bool; None: all.
        passed_over: query row → rows of documents that people passed over on the way to a click, int64, ascending.
        judged: rows of the judged documents, int64, ascending, if these pairs are a part of those that judge them.
    """

    queries: Int64
    relevant: dict[int, Int64]
    source: str = "qrels/train.tsv"
    weights: dict[int, Float32] | None = None
    shared: dict[int, npt.NDArray[np.bool_]] | None = None
    passed_over: dict[int, Int64] = field(default_factory=dict)
    judged: Int64 | None = None

    def __len__(self) -> int:
        return sum(map(len, self.relevant.values()))

    @cached_property
    def documents(self) -> Int64:
        """The rows of the judged documents, int64, ascending."""
        if self.judged is not None:
            return self.judged
        return np.unique(np.concatenate([np.zeros(0, np.int64), *self.relevant.values()]))

    @property
    def clicked(self) -> dict[int, Int64]:
        """Query row → rows of the documents whose clicked text it becomes."""
        if self.shared is None:
            return self.relevant
        found = {query: rows[self.shared[query]] for query, rows in self.relevant.items()}
        return {query: rows for query, rows in found.items() if len(rows)}

    def keep(self, choose: Callable[[int, Int64], npt.NDArray[np.bool_]]) -> Pairs:
        """Return some of the pairs.

        Args:
            choose: returns which pairs of a query to keep, from its row and the rows of its relevant documents.
        """
        kept = {query: choose(query, rows) for query, rows in self.relevant.items()}
        kept = {query: chosen for query, chosen in kept.items() if chosen.any()}

        def cut(values: dict[int, npt.NDArray[_Value]]) -> dict[int, npt.NDArray[_Value]]:
            return {query: values[query][chosen] for query, chosen in kept.items()}

        return Pairs(
            np.array(sorted(kept), np.int64),
            cut(self.relevant),
            self.source,
            None if self.weights is None else cut(self.weights),
            None if self.shared is None else cut(self.shared),
            {query: rows for query, rows in self.passed_over.items() if query in kept},
        )

    def of_queries(self, queries: Int64) -> Pairs:
        """Return the pairs of some queries, given by row, ascending. All judged documents stay judged."""
        rows = queries.tolist()

        def cut(values: dict[int, npt.NDArray[_Value]]) -> dict[int, npt.NDArray[_Value]]:
            return {query: values[query] for query in rows if query in values}

        return Pairs(
            queries,
            cut(self.relevant),
            self.source,
            None if self.weights is None else cut(self.weights),
            None if self.shared is None else cut(self.shared),
            cut(self.passed_over),
            self.documents,
        )

    def with_queries_of(self, other: Pairs) -> Pairs:
        """Return these pairs and those of queries that have none here.

        Weights of the others are at most 1: in a split that measures, a judgement counts up to ten times.
        """
        new = other.keep(lambda query, rows: np.full(len(rows), query not in self.relevant))
        weights, shared = self.weights, self.shared
        if weights is not None:
            given = new.weights or {q: np.ones(len(d), np.float32) for q, d in new.relevant.items()}
            weights = weights | {q: np.minimum(w, np.float32(1)) for q, w in given.items()}
        if shared is not None:
            shared = shared | (
                new.shared or {q: np.ones(len(d), np.bool_) for q, d in new.relevant.items()}
            )
        return Pairs(
            np.union1d(self.queries, new.queries),
            self.relevant | new.relevant,
            self.source,
            weights,
            shared,
            dict(self.passed_over) | dict(new.passed_over),
        )

    def weight_of(self, query: int, documents: Int64) -> Float32:
        """Return the weights of some of a query's relevant documents, ascending; 1 without weights."""
        if self.weights is None:
            return np.ones(len(documents), np.float32)
        return self.weights[query][np.searchsorted(self.relevant[query], documents)]

    def require(self) -> None:
        """Raise TrainingError if there is no pair."""
        if not len(self):
            raise TrainingError(
                f"{self.source}: no judged pair to learn from. Add judgements of known documents, or "
                "train a recipe that needs none: --recipe bm25"
            )


@dataclass(eq=False)
class Totals:
    """Sums of counts, each made when it is first needed; corpora of the same counts share them.

    Attributes:
        documents: word counts of all fields together, (documents, words).
        frequency: in how many documents each word occurs, int64 (words,).
    """

    documents: Rows | None = None
    frequency: Int64 | None = None


@dataclass(frozen=True, eq=False)
class Corpus:
    """A counted collection.

    Attributes:
        collection: the collection.
        sources: the fields of the documents that are read, in order.
        counts: one matrix of word counts per source field, then one of the queries if they are
            not the documents.
        query_ids: the id of each query row.
        pairs: judged pairs of the training split.
        mates: int64 (queries,): the document that each query is or describes, which is never its
            answer; -1 if it has none.
        processes: that count text.
        counting: counts the texts of the documents.
        cache: further counts, keyed by the settings that they depend on.
        totals: sums of ``counts``.
        vocabularies: of models, so that equal ones are in memory once.
    """

    collection: Collection
    sources: list[str]
    counts: Counts
    query_ids: list[str]
    pairs: Pairs
    mates: Int64
    processes: int
    counting: Counting
    cache: dict[Any, Any] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    vocabularies: list[Vocabulary] = field(default_factory=list)

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
            self.totals.documents = sum_counts(self.counts.columns[: len(self.sources)])
        return self.totals.documents

    @property
    def frequency(self) -> Int64:
        """In how many documents each word occurs, in any field, int64 (words,)."""
        if self.totals.frequency is None:
            self.totals.frequency = document_frequency(self.documents)
        return self.totals.frequency

    @property
    def compounds(self) -> list[str]:
        """The compounds of the documents, ascending."""
        if "compounds" not in self.cache:
            self.cache["compounds"] = self.counting.compounds(self.collection, self.sources)
        found: list[str] = self.cache["compounds"]
        return found

    def phrases(self, name: str) -> tuple[Phrases, Rows]:
        """Return the phrases of a field, and which one each document has: (documents, phrases)."""
        if ("phrases", name) not in self.cache:
            self.cache["phrases", name] = self.counting.phrases(self.collection, name)
        found: tuple[Phrases, Rows] = self.cache["phrases", name]
        return found

    @property
    def public_queries(self) -> list[str]:
        """The ids of queries whose text may stay in a bundle: of clicks, those of at least two people."""
        shared = self.pairs.shared
        if shared is None:
            return self.query_ids
        return [self.query_ids[row] for row in sorted(shared) if shared[row].any()]

    @property
    def unjudged(self) -> npt.NDArray[np.bool_]:
        """Which documents no training pair judges, bool (documents,)."""
        found = np.ones(len(self.collection.documents), np.bool_)
        found[self.pairs.documents] = False
        return found

    def vocabulary(self, rows: Int64, buckets: int = 0) -> Vocabulary:
        """Return a vocabulary of words of the counts, given by place; the same object for equal ones."""
        words = [self.counts.words[i] for i in rows.tolist()]
        for known in self.vocabularies:
            if known.buckets == buckets and known.words == words:
                return known
        self.vocabularies.append(Vocabulary(words, buckets))
        return self.vocabularies[-1]

    def query_texts(self, query_fields: Sequence[str]) -> list[str]:
        """Return the queries' texts; of documents that are queries, the given fields."""
        if self.collection.queries is not None:
            return [query.text for query in self.collection.queries]
        return [field_text(d.fields, query_fields) for d in self.collection.documents]

    def training_texts(self) -> list[str]:
        """Return all text that training may read: documents, and separate training queries."""
        texts = [field_text(d.fields, self.sources) for d in self.collection.documents]
        if self.collection.queries is not None:
            texts += [self.collection.queries[row].text for row in self.pairs.queries.tolist()]
        return texts

    def columns(self) -> list[list[str]]:
        """Return the texts of each matrix of ``counts``."""
        return columns_of(self.collection, self.sources)


def sum_counts(columns: Sequence[Rows]) -> Rows:
    """Add up the counts of several fields."""
    total = columns[0].csr()
    for rows in columns[1:]:
        total = total + rows.csr()
    return Rows.from_csr(sp.csr_array(total))


def count_collection(
    collection: Collection,
    *,
    processes: int,
    train: str = "train",
    counting: Counting | None = None,
    zeros: Zeros = np.zeros,
) -> Corpus:
    """Count the words of all texts of a collection.

    Args:
        collection: the collection.
        processes: that count.
        train: the training split.
        counting: counts the texts; by default these processes do.
        zeros: makes the arrays of counts that are put together from parts.

    Raises:
        TrainingError: no document has a text field.
    """
    sources = text_fields(collection)
    ids = list(collection.document_ids)
    if collection.queries is not None:
        ids = [query.id for query in collection.queries]
    counting = counting or InThisProcess(processes)
    counts, frequency = counting.words(collection, sources, zeros)
    pairs, mates = judged_pairs(collection, ids, train), mate_rows(collection, ids)
    totals = Totals(frequency=frequency)
    return Corpus(
        collection, sources, counts, ids, pairs, mates, processes, counting, totals=totals
    )


def text_fields(collection: Collection) -> list[str]:
    """Return the fields of the documents that are read, in order.

    Raises:
        TrainingError: there is none, or no document has any text in them.
    """
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


def mate_rows(collection: Collection, query_ids: Sequence[str]) -> Int64:
    """Return the row of each query's mate, int64 (queries,); -1 if it has none."""
    if not collection.has_mates:
        return np.full(len(query_ids), -1, np.int64)
    rows = {id: row for row, id in enumerate(collection.document_ids)}
    return np.array([rows[query] for query in query_ids], np.int64)


def judged_pairs(collection: Collection, query_ids: Sequence[str], split: str) -> Pairs:
    """Return the judged pairs of a split as rows; empty if the split does not exist."""
    source = str(collection.path / "qrels" / f"{split}.tsv")
    if split not in collection.splits:
        return Pairs(np.zeros(0, np.int64), {}, source)
    place = {query: row for row, query in enumerate(query_ids)}
    rows = {id: row for row, id in enumerate(collection.document_ids)}
    mates = collection.has_mates
    weights, people = collection.weights.get(split), collection.people.get(split)
    found: dict[int, Int64] = {}
    weight: dict[int, Float32] = {}
    shared: dict[int, npt.NDArray[np.bool_]] = {}
    passed_over: dict[int, Int64] = {}
    for query, grades in collection.qrels(split).items():
        documents = [d for d in relevant(grades) if not (mates and d == query)]
        if not documents:
            continue
        documents.sort(key=rows.__getitem__)
        row = place[query]
        found[row] = np.array([rows[d] for d in documents], np.int64)
        if weights is not None:
            of_query = weights.get(query, {})
            weight[row] = np.array([of_query.get(d, 1.0) for d in documents], np.float32)
        if people is not None:
            clicked = people.get(query, {})
            shared[row] = np.array([clicked.get(d, MIN_PEOPLE) >= MIN_PEOPLE for d in documents])
        above = [rows[d] for d, grade in grades.items() if grade < 0]
        if above:
            passed_over[row] = np.array(sorted(above), np.int64)
    return Pairs(
        np.array(sorted(found), np.int64),
        found,
        source,
        None if weights is None else weight,
        None if people is None else shared,
        passed_over,
    )


def document_frequency(rows: Rows) -> Int64:
    """Return in how many rows each column occurs, int64 (width,)."""
    return np.bincount(rows.indices, minlength=rows.width).astype(np.int64)
