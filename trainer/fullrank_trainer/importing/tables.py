"""Read documents from CSV, TSV and JSON lines, plain or gzipped, row by row."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final

from fullrank.errors import FullrankError
from fullrank.storage import strict_json
from fullrank.storage.strict_json import JsonError
from fullrank_trainer.collection.lines import open_bytes
from fullrank_trainer.importing.rows import Row

ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson")
# Columns that are taken for the id, the title and the text if no option names one; the first that is there.
GUESSES: Final = {
    "_id": ("_id", "id", "sku", "product_id", "item_id", "doc_id", "uuid", "handle", "slug", "url"),
    "title": ("title", "name", "product_name", "headline", "subject"),
    "text": ("text", "description", "body", "content", "abstract", "summary"),
}
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,15})?\Z")
_CODE = re.compile(r"\d{8,}\Z")
_TRUTH = {"true": True, "false": False}
_LOOKED_AT = 1_000  # lines of JSON
csv.field_size_limit(1 << 30)


@dataclass(frozen=True)
class Table:
    """A table as it will be read.

    Attributes:
        columns: Names in the header, or the keys of the first thousand lines of JSON.
        fields: Column → field, where the names differ.
        kinds: Column → "number", "truth", "code" or "text"; JSON has its own types.
    """

    path: Path
    encoding: str
    columns: Sequence[str]
    fields: Mapping[str, str]
    kinds: Mapping[str, str]

    def rows(self) -> Iterator[Row]:
        """Read the documents. Raises FullrankError if the file is damaged."""
        for number, given in _objects(self.path, self.encoding):
            if number == 1 and not _is_json(self.path):
                continue  # the header
            place = f"{self.path}:{number}"
            if isinstance(given, str):
                yield Row(place, {}, given)
                continue
            found: dict[str, Any] = {}
            for column, value in given.items():
                name = self.fields.get(column, column)
                if value in (None, ""):
                    continue
                if isinstance(value, str):
                    value = _typed(value, self.kinds.get(column, "text"))
                found[name] = value
            if "_id" in found:
                found = {"_id": str(found.pop("_id")).strip(), **found}
            yield Row(place, found)


def open_table(path: Path, encoding: str | None, mapping: Mapping[str, str | None]) -> Table:
    """Look through a table: its encoding, its columns, and what their values are.

    Args:
        path: .csv, .tsv, .jsonl or .ndjson, also .gz.
        mapping: Field ("_id", "title", "text") → column; None: guess.

    Raises:
        FullrankError: The file cannot be read, a column is not there, or none can be the id.
    """
    encoding = encoding or _encoding(path)
    seen: dict[str, str | None] = {}
    for number, given in _objects(path, encoding):
        if _is_json(path) and number > _LOOKED_AT:
            break
        if isinstance(given, dict):
            for column, value in given.items():
                seen[column] = "text" if _is_json(path) else _kind(value, seen.get(column))
    columns = [*seen]
    fields: dict[str, str] = {}
    for field, asked in mapping.items():
        if asked is not None and asked not in seen:
            raise FullrankError(f"{path}: no column {asked!r}; there are: {', '.join(columns)}")
        lower = {column.lower(): column for column in reversed(columns)}
        found = asked or next((lower[g] for g in GUESSES[field] if g in lower), None)
        if found is None and field == "_id":
            raise FullrankError(
                f"{path}: name the column of the id with --id: {', '.join(columns)}"
            )
        if asked is not None and asked in fields:
            raise FullrankError(
                f"{path}: column {asked!r} is the {fields[asked].strip('_')} already"
            )
        if found is not None and found not in fields:
            fields[found] = field
    kinds = {column: kind or "text" for column, kind in seen.items() if column not in fields}
    # A column whose name another one takes is kept under a new name.
    fields |= {c: f"original_{c}" for c in columns if c not in fields and c in fields.values()}
    return Table(path, encoding, columns, fields, kinds)


def _encoding(path: Path) -> str:
    with _reading(path), open_bytes(path) as file:
        head = file.read(2)
    return "utf-16" if head in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise FullrankError(
            f"{path}: not {error.encoding} at {error.object[error.start : error.start + 8]!r}; "
            "name its encoding, such as --encoding cp1252"
        ) from error
    except (OSError, EOFError, LookupError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FullrankError(f"{path}: cannot be read: {reason}") from error


def _is_json(path: Path) -> bool:
    return Path(path.name.removesuffix(".gz")).suffix in (".jsonl", ".ndjson")


def _objects(path: Path, encoding: str) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Yield the line number and the cells of each row, or what is wrong with it; the header has empty cells."""
    with (
        _reading(path),
        open_bytes(path) as file,
        TextIOWrapper(file, encoding, newline="") as text,
    ):
        yield from (_json_rows if _is_json(path) else _csv_rows)(path, text)


def _json_rows(_: Path, text: TextIOWrapper) -> Iterator[tuple[int, dict[str, Any] | str]]:
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        try:
            found = strict_json.parse(line)
        except JsonError as error:
            yield number, str(error)
            continue
        yield number, found if isinstance(found, dict) else "not a JSON object"


def _csv_rows(path: Path, text: TextIOWrapper) -> Iterator[tuple[int, dict[str, Any] | str]]:
    head = text.readline()
    candidates = "\t" if ".tsv" in path.suffixes else ",;\t|"
    separator = max(candidates, key=head.count)
    names = [name.strip() for name in next(csv.reader([head], delimiter=separator), [])]
    if len(set(names)) < len(names) or not any(names):
        raise FullrankError(f"{path}:1: the header needs different names of columns: {names}")
    yield 1, dict.fromkeys(names, "")
    rows = csv.reader(text, delimiter=separator, strict=True)
    number = 2
    try:
        for cells in rows:
            if len(cells) > len(names):
                yield number, f"{len(cells)} cells, but {len(names)} columns"
            elif any(cells):
                yield number, dict(zip(names, cells, strict=False))
            number = 2 + rows.line_num
    except csv.Error as error:
        raise FullrankError(f"{path}:{number}: {error}") from error


def _kind(value: str, before: str | None) -> str | None:
    """Return what the values of a column are with one more; None while all are empty."""
    if not value:
        return before
    if _CODE.match(value):
        now = "code"
    elif _NUMBER.match(value):
        now = "number"
    else:
        now = "truth" if value.lower() in _TRUTH else "text"
    return now if before in (None, now) else "text"


def _typed(text: str, kind: str) -> str | int | float | bool:
    if kind == "truth":
        return _TRUTH[text.lower()]
    if kind == "number":
        return float(text) if "." in text else int(text)
    return text
