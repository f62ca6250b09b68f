"""Collections: a folder of JSON lines and judgements, read strictly.

    corpus.jsonl[.gz]     {"_id", "title", "text", any further stored fields}, one object a line;
                          in the folder itself or, for several query sets on one corpus, its parent
    queries.jsonl[.gz]    {"_id", "text"} and perhaps a "title", which is read before the text;
                          absent where the documents are the queries
    qrels/<split>.tsv     tab-separated, header "query-id corpus-id score", integer scores

Documents in another language: a folder under a collection of linked documents may hold nothing but
queries that bear ids of documents, each a description of that document, its mate. What the parent's
qrels say of a mate then counts for its description, and a mate is no answer to it.

What cannot be meant is refused with a CollectionError that names file, line and field. What can be
meant but deserves a look (empty texts, repeated judgements) is counted in the ReadReport. Nothing
is dropped without one or the other.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any

import orjson

from fullrank.errors import CollectionError
from fullrank.storage.documents import Document

Qrels = dict[str, dict[str, int]]
"""query id → document id → grade; above zero is relevant."""

QRELS_HEADER = ("query-id", "corpus-id", "score")

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LEAST, _GREATEST = -(1 << 63), (1 << 64) - 1
_INTEGER = re.compile(r"[+-]?[0-9]{1,9}")
_KNOWN_SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, slots=True)
class Query:
    """One query: its id and its text."""

    id: str
    text: str


@dataclass
class ReadReport:
    """What was read and what was odd about it; counts only.

    judgements is lines kept per split. The fields from empty_documents on count oddities: repeated
    judgements are kept once, self-links (document → document) and inherited judgements of queries that
    are not here (other_queries) are left out, grades of zero or below are kept as judged not relevant,
    blank lines are skipped, everything else is kept as it is.
    """

    documents: int = 0
    queries: int = 0
    judgements: dict[str, int] = field(default_factory=dict)
    empty_documents: int = 0
    empty_queries: int = 0
    repeated_judgements: int = 0
    other_queries: int = 0
    self_links: int = 0
    zero_grades: int = 0
    queries_without_judgements: int = 0
    blank_lines: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The counts under their names."""
        return asdict(self)

    def remarks(self) -> list[str]:
        """One sentence per oddity that occurred."""
        said = {
            "empty_documents": "documents with an empty text, kept",
            "empty_queries": "queries with an empty text, kept",
            "repeated_judgements": "judgements given more than once, kept once",
            "other_queries": "judgements of documents without a query here, left out",
            "self_links": "links from a document to itself, left out",
            "zero_grades": "judgements with a grade of zero or below, kept as not relevant",
            "queries_without_judgements": "queries that no split judges",
            "blank_lines": "blank lines, skipped",
        }
        counts = {name: getattr(self, name) for name in said}
        return [f"{count:,} {said[name]}" for name, count in counts.items() if count]


@dataclass(frozen=True)
class Collection:
    """A collection in memory.

    documents    in ascending id order, so that "ties by id" is "ties by row"
    queries      in the order of the file; None where the documents are the queries
    have_mates   a query is, or describes, the document of the same id, its mate; a mate is never its
                 own answer: where the documents are the queries, and where the qrels are the parent's
    splits       names of the qrels files: train, valid, test, then others by name
    fingerprint  sha256 over the content of every file, the same for plain and gzipped files
    """

    path: Path
    documents: list[Document]
    queries: list[Query] | None
    have_mates: bool
    splits: tuple[str, ...]
    report: ReadReport
    fingerprint: str
    judgements: Mapping[str, Qrels] = field(repr=False)

    @property
    def documents_are_queries(self) -> bool:
        """True where there is no queries file: each document is a query for the others."""
        return self.queries is None

    def qrels(self, split: str) -> Qrels:
        """The judgements of one split. Raises CollectionError naming the splits there are."""
        try:
            return self.judgements[split]
        except KeyError:
            there = ", ".join(self.splits) or "none"
            raise CollectionError(
                f"{self.path / 'qrels'}: no split {split!r}; there are: {there}"
            ) from None


def read_collection(path: str | Path) -> Collection:
    """Read a collection folder. Raises CollectionError naming file, line and field."""
    folder = Path(path)
    if not folder.is_dir():
        raise CollectionError(f"{folder}: no such folder")
    corpus_file = find_corpus(folder)
    queries_file = _find(folder, "queries.jsonl")
    report = ReadReport()
    digests: list[tuple[str, str]] = []

    corpus = Lines(corpus_file)
    documents = _read_documents(corpus, report)
    digests.append(("corpus", corpus.digest()))

    queries: list[Query] | None = None
    if queries_file is not None:
        lines = Lines(queries_file)
        queries = _read_queries(lines, report)
        digests.append(("queries", lines.digest()))

    document_ids = {document.id for document in documents}
    query_ids = document_ids if queries is None else {query.id for query in queries}
    files = _split_files(folder / "qrels")
    inherited = False
    if queries_file is not None and not files:
        files = _inherited(queries_file, corpus.path.parent, query_ids, document_ids)
        inherited = bool(files)
    have_mates = queries is None or inherited
    judgements: dict[str, Qrels] = {}
    for split, file in files:
        lines = Lines(file)
        judgements[split] = _read_qrels(
            lines, query_ids, document_ids, report, split, have_mates=have_mates
        )
        digests.append((f"qrels/{split}", lines.digest()))

    judged: set[str] = set()
    for qrels in judgements.values():
        judged.update(qrels)
    report.queries_without_judgements = len(query_ids) - len(judged)
    return Collection(
        path=folder,
        documents=documents,
        queries=queries,
        have_mates=have_mates,
        splits=tuple(judgements),
        report=report,
        fingerprint=hashlib.sha256(repr(sorted(digests)).encode()).hexdigest(),
        judgements=judgements,
    )


def read_queries(path: str | Path) -> list[Query]:
    """The queries of a queries.jsonl[.gz], or of a folder that holds one. Raises CollectionError."""
    given = Path(path)
    found = _find(given, "queries.jsonl") if given.is_dir() else given
    if found is None:
        raise CollectionError(f"{given}: no queries.jsonl or queries.jsonl.gz")
    return _read_queries(Lines(found), ReadReport())


def find_corpus(folder: Path) -> Path:
    """The corpus file of a collection. Raises CollectionError where there is none, or two."""
    found = _find(folder, "corpus.jsonl") or _find(folder / "..", "corpus.jsonl")
    if found is None:
        raise CollectionError(
            f"{folder}: no corpus.jsonl or corpus.jsonl.gz, here or one folder up"
        )
    return _tidy(found)


def _tidy(path: Path) -> Path:
    """The path without a "..", which would only puzzle the reader of an error message."""
    return path.parent.resolve() / path.name if ".." in path.parts else path


def _find(folder: Path, name: str) -> Path | None:
    """The plain or gzipped file of a name. Raises CollectionError where there are both."""
    found = [file for file in (folder / name, folder / f"{name}.gz") if file.is_file()]
    if len(found) == 2:
        raise CollectionError(f"{folder}: both {name} and {name}.gz; keep one")
    return found[0] if found else None


def _split_files(folder: Path) -> list[tuple[str, Path]]:
    """(split, file) of a qrels folder: train, valid, test, then others by name."""
    names = {
        file.name.removesuffix(".gz").removesuffix(".tsv")
        for pattern in ("*.tsv", "*.tsv.gz")
        for file in folder.glob(pattern)
    }
    ordered = [name for name in _KNOWN_SPLITS if name in names]
    ordered += sorted(names.difference(_KNOWN_SPLITS))
    files = []
    for name in ordered:
        file = _find(folder, f"{name}.tsv")
        if file is not None:
            files.append((name, file))
    return files


def _inherited(
    queries: Path, parent: Path, query_ids: set[str], document_ids: set[str]
) -> list[tuple[str, Path]]:
    """The parent's qrels, where they judge documents and the queries bear documents' ids; else none.

    Raises CollectionError where some queries do and some do not.
    """
    above = queries.parent.resolve() != parent.resolve()
    if not above or _find(parent, "queries.jsonl") or query_ids.isdisjoint(document_ids):
        return []
    files = _split_files(parent / "qrels")
    unknown = query_ids - document_ids
    if files and unknown:
        raise CollectionError(
            f"{queries}: field '_id': {min(unknown)!r} is no document. The folder has no qrels of its"
            f" own, so those of {parent / 'qrels'} count, and they judge documents: give every query"
            f" the id of the document it describes ({len(unknown):,} of {len(query_ids):,} have none),"
            " or the folder its own qrels"
        )
    return files


def _open(path: Path) -> gzip.GzipFile | BufferedReader:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


class Lines:
    """The numbered lines of a plain or gzipped file, hashed on the way through."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hash = hashlib.sha256()

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        number = 0
        try:
            with _open(self.path) as file:
                for number, line in enumerate(file, 1):
                    self._hash.update(line)
                    yield number, line
        except (OSError, EOFError, zlib.error) as error:
            raise CollectionError(f"{self.path}:{number + 1}: cannot be read: {error}") from error

    def digest(self) -> str:
        """sha256 of the content read so far, uncompressed."""
        return self._hash.hexdigest()

    def error(self, number: int, message: str) -> CollectionError:
        return CollectionError(f"{self.path}:{number}: {message}")


def _decode_error(
    lines: Lines, number: int, line: bytes, problem: orjson.JSONDecodeError
) -> CollectionError:
    """The most helpful account of why a line is not JSON."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        return lines.error(number, f"not valid UTF-8 at byte {error.start + 1} of the line")
    if text.startswith("\ufeff"):
        return lines.error(number, "starts with a byte order mark; save the file as plain UTF-8")
    return lines.error(number, f"malformed JSON at column {problem.colno}: {problem.msg}")


def _objects(lines: Lines, report: ReadReport) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in lines:
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if not line.strip():
                report.blank_lines += 1
                continue
            raise _decode_error(lines, number, line, error) from None
        if not isinstance(value, dict):
            raise lines.error(number, f"expected a JSON object, got {_kind(value)}")
        if any(map(_beyond, value.values())):
            try:
                json.loads(line, parse_int=_whole)
            except (ValueError, RecursionError) as error:
                raise lines.error(number, str(error)) from None
        yield number, value


def _beyond(value: object) -> bool:
    """Whether orjson may have made a float of a whole number that takes more than 64 bits."""
    if isinstance(value, float):
        return abs(value) >= 1 << 63
    if isinstance(value, list):
        return any(map(_beyond, value))
    return isinstance(value, dict) and any(map(_beyond, value.values()))


def _whole(digits: str) -> int:
    number = int(digits)
    if not _LEAST <= number <= _GREATEST:
        raise ValueError(f"{number} is a whole number of more than 64 bits: store it as text")
    return number


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__


def _string(lines: Lines, number: int, item: Mapping[str, Any], name: str) -> str:
    if name not in item:
        raise lines.error(number, f"field {name!r}: missing")
    value = item[name]
    if not isinstance(value, str):
        raise lines.error(number, f"field {name!r}: expected a string, got {_kind(value)}")
    return value


def _take_id(lines: Lines, number: int, item: Mapping[str, Any], seen: dict[str, int]) -> str:
    id = _string(lines, number, item, "_id")
    if not id.strip():
        raise lines.error(number, "field '_id': empty")
    if _CONTROL.search(id):
        raise lines.error(number, f"field '_id': {id!r} holds a tab, newline or control character")
    if id in seen:
        raise lines.error(number, f"field '_id': {id!r} already stands in line {seen[id]}")
    seen[id] = number
    return id


def documents_of(lines: Lines, report: ReadReport) -> Iterator[tuple[int, Document]]:
    """The documents of a corpus in the order of the file, each with its line; counted in ``report``.

    Raises CollectionError naming file, line and field; at the end too, where there are none.
    """
    seen: dict[str, int] = {}
    for number, item in _objects(lines, report):
        _take_id(lines, number, item, seen)
        for name in ("title", "text"):
            if name in item:
                _string(lines, number, item, name)
        if not item.get("text", "").strip():
            report.empty_documents += 1
        report.documents += 1
        yield number, document_of(item)
    if not report.documents:
        raise CollectionError(f"{lines.path}: no documents")


def document_of(item: dict[str, Any]) -> Document:
    """A line of a corpus as a document; ``item`` becomes its fields."""
    id = item.pop("_id")
    return Document(id, item)


def _read_documents(lines: Lines, report: ReadReport) -> list[Document]:
    documents = [document for _, document in documents_of(lines, report)]
    documents.sort(key=lambda document: document.id)
    return documents


def _read_queries(lines: Lines, report: ReadReport) -> list[Query]:
    seen: dict[str, int] = {}
    queries = []
    for number, item in _objects(lines, report):
        id, text = _take_id(lines, number, item, seen), _string(lines, number, item, "text")
        if "title" in item:
            text = f"{_string(lines, number, item, 'title')}\n{text}"
        query = Query(id, text)
        if not query.text.strip():
            report.empty_queries += 1
        queries.append(query)
    if not queries:
        raise CollectionError(f"{lines.path}: no queries")
    report.queries = len(queries)
    return queries


def _rows(lines: Lines, report: ReadReport) -> Iterator[tuple[int, tuple[str, str, str]]]:
    """The three columns of each line of a qrels file, its header checked."""
    header_seen = False
    for number, raw in lines:
        try:
            columns = tuple(raw.decode().rstrip("\r\n").split("\t"))
        except UnicodeDecodeError as error:
            message = f"not valid UTF-8 at byte {error.start + 1} of the line"
            raise lines.error(number, message) from None
        if columns == ("",):
            report.blank_lines += 1
            continue
        if not header_seen:
            if columns != QRELS_HEADER:
                wanted = " ".join(QRELS_HEADER)
                raise lines.error(
                    number, f"expected the header {wanted!r}, tab-separated, got {raw[:80]!r}"
                )
            header_seen = True
            continue
        if len(columns) != 3:
            raise lines.error(number, f"expected 3 tab-separated columns, got {len(columns)}")
        yield number, (columns[0], columns[1], columns[2])
    if not header_seen:
        raise CollectionError(f"{lines.path}: empty, not even the header")


def _read_qrels(
    lines: Lines,
    query_ids: set[str],
    document_ids: set[str],
    report: ReadReport,
    split: str,
    *,
    have_mates: bool,
) -> Qrels:
    qrels: Qrels = {}
    known = document_ids if have_mates else query_ids
    for number, (query, document, score) in _rows(lines, report):
        if query not in known:
            raise lines.error(number, f"field 'query-id': unknown id {query!r}")
        if document not in document_ids:
            raise lines.error(number, f"field 'corpus-id': unknown id {document!r}")
        if not _INTEGER.fullmatch(score):
            raise lines.error(number, f"field 'score': expected an integer, got {score!r}")
        grade = int(score)
        if query not in query_ids:
            report.other_queries += 1
            continue
        if have_mates and query == document:
            report.self_links += 1
            continue
        grades = qrels.setdefault(query, {})
        if document in grades:
            if grades[document] != grade:
                raise lines.error(
                    number,
                    f"field 'score': {query!r} {document!r} was judged {grades[document]} above,"
                    f" now {grade}",
                )
            report.repeated_judgements += 1
            continue
        if grade <= 0:
            report.zero_grades += 1
        grades[document] = grade
    report.judgements[split] = sum(len(grades) for grades in qrels.values())
    return qrels


def relevant(grades: Mapping[str, int]) -> Iterable[str]:
    """The document ids with a grade above zero."""
    return (document for document, grade in grades.items() if grade > 0)
