"""Lines of plain or gzipped files, and JSON objects with one object a line."""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any, Protocol

from fullrank.errors import CollectionError
from fullrank.storage import strict_json
from fullrank.storage.strict_json import JsonError

QRELS_HEADER = ("query-id", "corpus-id", "score")
_MAX_EXAMPLES = 3

_REMARKS = {
    "empty_documents": "documents with an empty text, kept",
    "empty_queries": "queries with an empty text, kept",
    "repeated_judgements": "judgements given more than once, kept once",
    "other_queries": "judgements of documents without a query here, left out",
    "self_links": "links from a document to itself, left out",
    "zero_grades": "judgements with a grade of zero or below, kept as not relevant",
    "values_without_judgement": "weights of pairs that are not judged relevant, left out",
    "queries_without_judgements": "queries that no split judges",
    "blank_lines": "blank lines, skipped",
}


@dataclass
class ReadReport:
    """Counts of one read collection; ``_REMARKS`` says what each means."""

    documents: int = 0
    queries: int = 0
    judgements: dict[str, int] = field(default_factory=dict)
    unknown_ids: int = 0
    unknown_examples: list[str] = field(default_factory=list)
    empty_documents: int = 0
    empty_queries: int = 0
    repeated_judgements: int = 0
    other_queries: int = 0
    self_links: int = 0
    zero_grades: int = 0
    values_without_judgement: int = 0
    queries_without_judgements: int = 0
    blank_lines: int = 0

    def count_unknown(self, id: str, place: str) -> None:
        """Count a judgement of an unknown id; ``place`` is its file and line."""
        self.unknown_ids += 1
        if len(self.unknown_examples) < _MAX_EXAMPLES:
            self.unknown_examples.append(f"{id!r} ({place})")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def counts(self) -> dict[str, int]:
        """Return the counts that are not zero; those by split are left out."""
        return {name: n for name, n in vars(self).items() if isinstance(n, int) and n}

    def unknown_remark(self) -> str | None:
        """Return a warning about judgements of unknown ids; None without any."""
        if not self.unknown_ids:
            return None
        examples = ", ".join(self.unknown_examples)
        more = ", …" if self.unknown_ids > len(self.unknown_examples) else ""
        noun = "judgement" if self.unknown_ids == 1 else "judgements"
        return f"{self.unknown_ids:,} {noun} of unknown ids, skipped: {examples}{more}"

    def remarks(self) -> list[str]:
        """Return one sentence for each oddity that occurred."""
        unknown = self.unknown_remark()
        others = [
            f"{getattr(self, name):,} {text}"
            for name, text in _REMARKS.items()
            if getattr(self, name)
        ]
        return others if unknown is None else [unknown, *others]


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MAX_DEPTH = 500  # levels of objects and lists in one line
_MAX_REFUSED = 10  # lines that an error names


def find_file(folder: Path, name: str) -> Path | None:
    """Return the path of a file, plain or .gz; None if there is neither. Raises CollectionError if there are both."""
    found = [file for file in (folder / name, folder / f"{name}.gz") if file.is_file()]
    if len(found) == 2:
        raise CollectionError(f"{folder}: both {name} and {name}.gz; keep one")
    return found[0] if found else None


class Lines:
    """Iterate over the numbered lines of a plain or gzipped file and hash them on the way.

    Readers refuse wrong lines and go on, so that one reading finds all of them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hash = hashlib.sha256()
        self._refused: list[CollectionError] = []
        self._refusals = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        number = 0
        try:
            with open_bytes(self.path) as file:
                for number, line in enumerate(file, 1):
                    self._hash.update(line)
                    yield number, line
        except (OSError, EOFError, zlib.error) as error:
            raise CollectionError(f"{self.path}:{number + 1}: cannot be read: {error}") from error

    def digest(self) -> str:
        """Return the sha256 of the content read so far, uncompressed."""
        return self._hash.hexdigest()

    def error(self, number: int, message: str) -> CollectionError:
        """Return an error that names the file and the line."""
        return CollectionError(f"{self.path}:{number}: {message}")

    def refuse(self, error: CollectionError) -> None:
        """Count a wrong line; the caller skips it."""
        self._refusals += 1
        if len(self._refused) < _MAX_REFUSED:
            self._refused.append(error)

    def check(self) -> None:
        """Raise the error of the first refused line, if there is one; its notes are the errors of the next lines."""
        if not self._refused:
            return
        first, *others = self._refused
        if not others:
            raise first
        every = CollectionError(f"{first} ({self._refusals:,} lines are wrong)")
        for error in others:
            every.add_note(str(error))
        raise every


def open_bytes(path: Path) -> gzip.GzipFile | BufferedReader:
    """Open a plain or gzipped file to read."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def read_objects(lines: Lines, report: ReadReport) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object); count blank lines. Raises CollectionError after the last line if some are wrong."""
    for number, line in lines:
        if not line.strip():
            report.blank_lines += 1
            continue
        try:
            value = strict_json.parse(line, max_depth=_MAX_DEPTH)
        except JsonError as error:
            if line.startswith(BOM_UTF8):
                reason = "starts with a byte order mark; save the file as plain UTF-8"
            else:
                reason = f"field {error.field!r} {error.reason}" if error.field else error.reason
            lines.refuse(lines.error(number, reason))
            continue
        if isinstance(value, dict):
            yield number, value
        else:
            lines.refuse(lines.error(number, f"expected a JSON object, got {_type_name(value)}"))
    lines.check()


def _type_name(value: object) -> str:
    return "null" if value is None else type(value).__name__


def string_field(lines: Lines, number: int, item: Mapping[str, Any], name: str) -> str:
    """Return a field that must be a string. Raises CollectionError if it is not one."""
    if name not in item:
        raise lines.error(number, f"field {name!r}: missing")
    value = item[name]
    if not isinstance(value, str):
        raise lines.error(number, f"field {name!r}: expected a string, got {_type_name(value)}")
    return value


def id_problem(id: str) -> str | None:
    """Return why a text cannot be an id, or None."""
    if not id.strip():
        return "empty"
    return f"{id!r} has a tab, newline or control character" if _CONTROL.search(id) else None


class Seen(Protocol):
    """The line number of each id so far, as a dict has them."""

    def __contains__(self, id: str, /) -> bool: ...

    def __getitem__(self, id: str, /) -> int: ...

    def __setitem__(self, id: str, number: int, /) -> None: ...


def id_field(lines: Lines, number: int, item: Mapping[str, Any], seen: Seen) -> str:
    """Return the "_id" of a line and add it to ``seen`` (id → line number). Raises CollectionError."""
    id = string_field(lines, number, item, "_id")
    if problem := id_problem(id):
        raise lines.error(number, f"field '_id': {problem}")
    if id in seen:
        raise lines.error(number, f"field '_id': {id!r} is already the id of line {seen[id]}")
    seen[id] = number
    return id


def read_pairs(
    lines: Lines, header: tuple[str, str, str], report: ReadReport
) -> Iterator[tuple[int, str, str, str]]:
    """Yield (line number, query id, document id, value) of a table with a header. Raises CollectionError."""
    header_seen = False
    for number, raw in lines:
        try:
            columns = tuple(raw.decode().rstrip("\r\n").split("\t"))
        except UnicodeDecodeError as error:
            message = f"not valid UTF-8 at byte {error.start + 1} of the line"
            lines.refuse(lines.error(number, message))
            continue
        if columns == ("",):
            report.blank_lines += 1
            continue
        if not header_seen:
            if columns != header:
                lines.check()
                wanted = " ".join(header)
                raise lines.error(
                    number, f"expected the header {wanted!r}, tab-separated, got {raw[:80]!r}"
                )
            header_seen = True
            continue
        if len(columns) == 3:
            yield number, *columns
        else:
            message = f"expected 3 tab-separated columns, got {len(columns)}"
            lines.refuse(lines.error(number, message))
    lines.check()
    if not header_seen:
        raise CollectionError(f"{lines.path}: empty; the header line is missing")
