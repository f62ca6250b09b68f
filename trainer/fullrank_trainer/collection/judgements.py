"""Judgements: qrels files, one for each split.

qrels/<split>.tsv[.gz]     tab-separated, header "query-id corpus-id score", integer scores
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, MutableSequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isfinite
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Int32, Int64
from fullrank.errors import CollectionError
from fullrank_trainer.collection.lines import Lines, ReadReport, find_file, read_pairs

Qrels = Mapping[str, Mapping[str, int]]
"""query id → document id → grade; a grade above zero means relevant."""

QRELS_HEADER = ("query-id", "corpus-id", "score")

_INTEGER = re.compile(r"[+-]?[0-9]{1,9}")
_KNOWN_SPLITS = ("train", "valid", "test")


def read_qrels(
    lines: Lines,
    split: str,
    query_ids: Ids,
    document_ids: Ids,
    has_mates: bool,
    strict: bool,
    report: ReadReport,
) -> PairTable[int]:
    """Read the judgements of one split. Raises CollectionError.

    Args:
        has_mates: a query is, or describes, the document of the same id, which is never its answer.
        strict: refuse unknown ids; otherwise count and skip their judgements.
    """
    known = (document_ids if has_mates else query_ids).rows
    pairs = PairReader(query_ids, document_ids, int)
    for number, query, document, score in read_pairs(lines, QRELS_HEADER, report):
        if not _INTEGER.fullmatch(score):
            message = f"expected an integer of at most 9 digits, got {score!r}"
            lines.refuse(lines.error(number, f"field 'score': {message}"))
        elif query not in known or document not in document_ids.rows:
            name, id = ("corpus-id", document) if query in known else ("query-id", query)
            if strict:
                lines.refuse(lines.error(number, f"field {name!r}: unknown id {id!r}"))
            report.count_unknown(id, f"{lines.path.name}:{number}")
        elif query not in query_ids.rows:
            report.other_queries += 1
        elif has_mates and query == document:
            report.self_links += 1
        else:
            pairs.add(number, query_ids.rows[query], document_ids.rows[document], int(score))
    form = "field 'score': {pair} was judged {again.first} above, now {again.value}"
    table, repeats = pairs.checked(lines, form)
    report.repeated_judgements += repeats
    report.zero_grades += int(np.count_nonzero(table.entries <= 0))
    report.judgements[split] = len(table.entries)
    return table


def find_splits(folder: Path) -> list[tuple[str, Path]]:
    """Return (split, file) of a folder: train, valid, test, then other splits by name. Raises CollectionError."""
    names = {
        file.name.removesuffix(".gz").removesuffix(".tsv")
        for pattern in ("*.tsv", "*.tsv.gz")
        for file in folder.glob(pattern)
    }
    ordered = [name for name in _KNOWN_SPLITS if name in names]
    ordered += sorted(names.difference(_KNOWN_SPLITS))
    files = []
    for name in ordered:
        file = find_file(folder, f"{name}.tsv")
        if file is not None:
            files.append((name, file))
    return files


def find_inherited_qrels(
    queries: Path, parent: Path, query_ids: Ids, document_ids: Ids
) -> list[tuple[str, Path]]:
    """Return (split, file) of the parent's qrels if the queries describe its documents; else nothing.

    Raises CollectionError if some queries have the id of a document and some do not.
    """
    is_above = queries.parent.resolve() != parent.resolve()
    if (
        not is_above
        or find_file(parent, "queries.jsonl")
        or not any(query in document_ids.rows for query in query_ids)
    ):
        return []
    files = find_splits(parent / "qrels")
    unknown = [query for query in query_ids if query not in document_ids.rows]
    if files and unknown:
        raise CollectionError(
            f"{queries}: field '_id': {min(unknown)!r} is no document. The folder has no qrels of its"
            f" own, so those of {parent / 'qrels'} count, and they judge documents: give every query"
            f" the id of the document it describes ({len(unknown):,} of {len(query_ids):,} have none),"
            " or the folder its own qrels"
        )
    return files


def relevant(grades: Mapping[str, int]) -> Iterable[str]:
    """Iterate over the document ids with a grade above zero."""
    return (document for document, grade in grades.items() if grade > 0)


def count_answered(qrels: Mapping[str, Mapping[str, int]]) -> int:
    """Return how many queries have a relevant document."""
    return sum(any(grade > 0 for grade in grades.values()) for grades in qrels.values())


# Values of judgements, one file for each split, as clicks give them.
#
# weights/<split>.tsv[.gz]   header "query-id corpus-id weight": takes the place of |P|^−½ in the loss; above zero
# people/<split>.tsv[.gz]    header "query-id corpus-id people": how many people clicked, 1 or more
#
# A judgement without a weight has weight 1 if the split has weights. A query becomes clicked text of a document if at
# least two people clicked, or if the file does not say how many: else one person could write text into documents.

Values = Mapping[str, Mapping[str, float]]
"""query id → document id → value."""

WEIGHTS, PEOPLE = "weights", "people"
"""Folders of the files."""
COLUMNS = {WEIGHTS: "weight", PEOPLE: "people"}
MIN_PEOPLE = 2
"""So many people must click before a query becomes clicked text."""

_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[0-9]{1,9}")
_CACHED_QUERIES = 1 << 10


def read_values(
    folder: Path,
    judgements: Mapping[str, Qrels],
    query_ids: Ids,
    document_ids: Ids,
    strict: bool,
    report: ReadReport,
    digests: MutableSequence[tuple[str, str]],
) -> dict[str, Values]:
    """Read the weights or people of all splits of a collection; unless ``strict``, skip pairs without a judgement.

    A document that was deleted since has none. Raises CollectionError.
    """
    found: dict[str, Values] = {}
    for split, file in find_splits(folder):
        lines = Lines(file)
        if split not in judgements:
            raise lines.error(1, f"there is no qrels/{split}.tsv whose judgements it could weigh")
        pairs = PairReader(query_ids, document_ids, float)
        column = COLUMNS[folder.name]
        for line, query, document, value in _read(lines, column, judgements[split], strict, report):
            pairs.add(line, query_ids.rows[query], document_ids.rows[document], value)
        form = f"field {column!r}: {{pair}} had {{again.first:g}} above"
        found[split], _ = pairs.checked(lines, form)
        digests.append((f"{folder.name}/{split}", lines.digest()))
    return found


def _read(
    lines: Lines, column: str, qrels: Qrels, strict: bool, report: ReadReport
) -> Iterator[tuple[int, str, str, float]]:
    form = _NUMBER if column == COLUMNS[WEIGHTS] else _WHOLE
    # The pairs of a query are mostly one after another, and a table makes the grades of a query anew for each look-up.
    grades_of = lru_cache(_CACHED_QUERIES)(lambda query: qrels.get(query, {}))
    for number, query, document, text in read_pairs(lines, (*QRELS_HEADER[:2], column), report):
        value = float(text) if form.fullmatch(text) else 0.0
        if not (value > 0 and isfinite(value)):
            message = f"expected a number above 0, got {text!r}"
            lines.refuse(lines.error(number, f"field {column!r}: {message}"))
        elif grades_of(query).get(document, 0) > 0:
            yield number, query, document, value
        elif strict:
            message = f"{query!r} {document!r} is not judged to be relevant"
            lines.refuse(lines.error(number, message))
        else:
            report.values_without_judgement += 1


Value = TypeVar("Value", int, float)

KINDS: dict[type, npt.DTypeLike] = {int: np.int32, float: np.float64}
"""The dtype of each kind of value."""


class Ids(list[str]):
    """The distinct ids of the queries or documents of a collection, by row."""

    @cached_property
    def rows(self) -> dict[str, int]:
        return {id: row for row, id in enumerate(self)}


@dataclass(frozen=True, eq=False)
class PairTable(Mapping[str, Mapping[str, Value]], Generic[Value]):
    """Query id → document id → value. Queries, and the documents of each, are in the order of their first pair.

    Attributes:
        queries: int32 (B,), the rows of the queries that have a pair.
        starts: int64 (B + 1,); query i has the pairs starts[i]:starts[i + 1].
        documents: int32 (pairs,), rows.
        entries: int32 or float64 (pairs,), the values.
    """

    query_ids: Ids
    document_ids: Ids
    queries: Int32
    starts: Int64
    documents: Int32
    entries: npt.NDArray[Any]

    def __getitem__(self, query: str) -> dict[str, Value]:
        place = self._places[self.query_ids.rows[query]]
        if place < 0:
            raise KeyError(query)
        part = slice(self.starts[place], self.starts[place + 1])
        names = map(self.document_ids.__getitem__, self.documents[part].tolist())
        return dict(zip(names, self.entries[part].tolist(), strict=True))

    def __contains__(self, query: object) -> bool:
        row = self.query_ids.rows.get(query, -1)  # type: ignore[call-overload]
        return bool(row >= 0 and self._places[row] >= 0)

    def __iter__(self) -> Iterator[str]:
        return map(self.query_ids.__getitem__, self.queries.tolist())

    def __len__(self) -> int:
        return len(self.queries)

    @cached_property
    def _places(self) -> Int32:
        places = np.full(len(self.query_ids), -1, np.int32)
        places[self.queries] = np.arange(len(self.queries), dtype=np.int32)
        return places

    @staticmethod
    def of(
        given: Mapping[str, Mapping[str, Value]], queries: Ids, documents: Ids
    ) -> PairTable[Value]:
        """Make a table of pairs whose ids the collection has; a table is returned as it is."""
        if isinstance(given, PairTable):
            return given
        values = [value for found in given.values() for value in found.values()]
        sizes = np.array([len(found) for found in given.values()], np.int64)
        rows = np.array([queries.rows[query] for query in given], np.int32)
        names = (document for found in given.values() for document in found)
        columns = np.fromiter(map(documents.rows.__getitem__, names), np.int32, len(values))
        kind = KINDS[float if any(isinstance(value, float) for value in values) else int]
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        return PairTable(queries, documents, rows, starts, columns, np.array(values, kind))


class Repeat(NamedTuple, Generic[Value]):
    """A pair that a file has a second time."""

    line: int
    query: int
    document: int
    value: Value
    first: Value


class PairReader(Generic[Value]):
    """Collects the pairs of a file, line by line, and makes a table of them."""

    def __init__(self, queries: Ids, documents: Ids, kind: type[Value]) -> None:
        self._query_ids, self._document_ids, self._kind = queries, documents, KINDS[kind]
        self._lines, self._queries, self._documents = array("i"), array("i"), array("i")
        self._values: array[Any] = array(np.dtype(self._kind).char)

    def add(self, line: int, query: int, document: int, value: Value) -> None:
        """Add the pair of a line: rows of a query and a document, and a value."""
        self._lines.append(line)
        self._queries.append(query)
        self._documents.append(document)
        self._values.append(value)

    def checked(self, lines: Lines, form: str) -> tuple[PairTable[Value], int]:
        """Return the table and the number of repeats; refuse those with another value. Raises CollectionError."""
        table, repeats = self.table()
        for again in repeats:
            if again.value != again.first:
                pair = f"{self._query_ids[again.query]!r} {self._document_ids[again.document]!r}"
                lines.refuse(lines.error(again.line, form.format(pair=pair, again=again)))
        lines.check()
        return table, len(repeats)

    def table(self) -> tuple[PairTable[Value], list[Repeat[Value]]]:
        """Return the table with the first of equal pairs, and the others in the order of the file."""
        queries, documents = np.array(self._queries, np.int32), np.array(self._documents, np.int32)
        values, width = np.array(self._values, self._kind), len(self._document_ids)
        keys = queries * np.int64(width) + documents
        distinct, first = np.unique(keys, return_index=True)
        again = np.setdiff1d(np.arange(len(keys)), first, assume_unique=True)
        before = first[np.searchsorted(distinct, keys[again])]
        lines = np.array(self._lines, np.int32)
        columns = lines[again], queries[again], documents[again], values[again], values[before]
        rows = zip(*(column.tolist() for column in columns), strict=True)
        found: list[Repeat[Value]] = [Repeat(*row) for row in rows]
        kept = np.sort(first)
        asked, first_of, owner = np.unique(queries[kept], return_index=True, return_inverse=True)
        by_first = np.argsort(first_of)
        place = np.empty(len(asked), np.int64)
        place[by_first] = np.arange(len(asked))
        order = kept[np.argsort(place[owner], kind="stable")]
        starts = np.concatenate([[0], np.cumsum(np.bincount(owner)[by_first])]).astype(np.int64)
        ids = self._query_ids, self._document_ids
        return PairTable(*ids, asked[by_first], starts, documents[order], values[order]), found
