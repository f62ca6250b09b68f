"""Read documents row by row: CSV, TSV, JSON lines, bulk dumps of search engines, Parquet files and SQL databases."""

from __future__ import annotations

import csv
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from io import TextIOWrapper
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from fullrank.errors import FullrankError, needs
from fullrank.storage import strict_json
from fullrank.storage.documents import text_of
from fullrank.storage.strict_json import JsonError
from fullrank_trainer.importing.rows import Row
from fullrank_trainer.lines import open_bytes

JSON_ENDINGS = (".jsonl", ".ndjson", ".json")
ENDINGS = (".csv", ".tsv", *JSON_ENDINGS)
# Columns that are taken for the id, the title and the text if no option names one; the first that is there.
GUESSES: Final = {
    "_id": (
        *("_id", "id", "sku", "product_id", "item_id", "doc_id", "docno", "uuid"),
        *("objectid", "handle", "slug", "url"),
    ),
    "title": ("title", "name", "product_name", "headline", "subject"),
    "text": ("text", "description", "body", "content", "abstract", "summary"),
}
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,15}|,\d{1,2})?\Z")
_CODE = re.compile(r"\d{8,}\Z")
_UNDECODED = re.compile(r"[\udc80-\udcff]{1,8}")
_TRUTH = {"true": True, "false": False}
_NAMES = {
    bool: "truth", int: "number", float: "number", Decimal: "number",
    date: "date", datetime: "date", list: "list", dict: "object",
}  # fmt: skip
_ACTIONS = {"index", "create", "update", "delete"}
_EXTRA = "import"
_BATCH = 1_000  # rows in memory
_LOOKED_AT = 1_000  # rows of a table whose values have types
csv.field_size_limit(1 << 30)


class Bad(NamedTuple):
    """What is wrong with a row, and as much of it as could be read."""

    problem: str
    content: object = None


Object = tuple[str, dict[str, Any] | Bad]
"""The place of a row, and its cells or what is wrong with it."""


@dataclass(frozen=True)
class Table:
    """A table as it will be read.

    Attributes:
        objects: Reads the rows from the first one.
        kinds: Column → "number", "truth", "code" or "text", and "list", "object" or "date" if values have types.
        fields: Column → field, where the names differ.
        write_more: Writes what the source has besides the documents.
    """

    objects: Callable[[], Iterable[Object]]
    kinds: Mapping[str, str]
    fields: Mapping[str, str]
    are_texts: bool
    total: int | None
    write_more: Callable[[Path], dict[str, Any]] | None = None

    @property
    def columns(self) -> dict[str, str]:
        """The field of each column that becomes another field, and the kind of the others."""
        return {name: self.fields.get(name, kind) for name, kind in self.kinds.items()}

    def write(self, folder: Path, *, are_judged: bool) -> dict[str, Any]:
        return {} if are_judged or self.write_more is None else self.write_more(folder)

    def rows(self) -> Iterator[Row]:
        for place, given in self.objects():
            if isinstance(given, Bad):
                yield Row(place, {"content": given.content}, given.problem)
                continue
            found: dict[str, Any] = {}
            problem = None
            for column, value in given.items():
                try:
                    value = _typed(value, self.kinds[column]) if self.are_texts else _plain(value)
                except ValueError as error:
                    value, problem = str(value), f"column {column!r}: {error}"
                if value not in (None, "", [], {}):
                    found[self.fields.get(column, column)] = value
            for name in {"title", "text"} & found.keys():
                value = found[name]
                found[name] = text_of(value) if isinstance(value, str | list) else str(value)
                if isinstance(value, dict) or found[name] is None:
                    problem = f"field {name!r}: expected text, got {_NAMES[type(value)]}"
            if isinstance(id := found.get("_id"), bool | list | dict):
                problem = f"the id is neither text nor a number: {id!r}"
            elif id is not None:
                found = {"_id": str(found.pop("_id")).strip(), **found}
            if found or not self.are_texts:  # the header has empty cells only
                yield Row(place, found, problem)


def open_table(
    source: Path | str,
    objects: Callable[[], Iterable[Object]],
    mapping: Mapping[str, str | None],
    *,
    are_texts: bool = False,
    advance: Callable[[], object] = lambda: None,
) -> Table:
    """Look through a table: its columns, and what their values are.

    Args:
        source: What errors name.
        mapping: Field ("_id", "title", "text") → column; None: guess.
        are_texts: All values are texts, so all rows are looked at to guess types; else the first thousand.
        advance: Called for each row that is looked at.

    Raises:
        FullrankError: The file cannot be read, a column is not there, or none can be the id.
    """
    seen: dict[str, str | None] = {}
    total = 0
    for _, given in islice(objects(), None if are_texts else _LOOKED_AT):
        total += 1
        advance()
        for column, value in given.items() if isinstance(given, dict) else ():
            seen[column] = (_kind if are_texts else _type)(value, seen.get(column))
    fields: dict[str, str] = {}
    for field, asked in mapping.items():
        if asked is not None and asked not in seen:
            raise FullrankError(f"{source}: no column {asked!r}; there are: {', '.join(seen)}")
        lower = {column.lower(): column for column in reversed(seen)}
        found = asked or next((lower[g] for g in GUESSES[field] if g in lower), None)
        if found is None and field == "_id" and seen:
            raise FullrankError(f"{source}: name the column of the id with --id: {', '.join(seen)}")
        if asked is not None and asked in fields:
            raise FullrankError(
                f"{source}: column {asked!r} is the {fields[asked].strip('_')} already"
            )
        if found is not None and found not in fields:
            fields[found] = field
    # A column whose name another one takes is kept under a new name.
    fields |= {c: f"original_{c}" for c in seen if c not in fields and c in fields.values()}
    kinds = {
        column: "text" if kind is None or fields.get(column) in mapping else kind
        for column, kind in seen.items()
    }
    return Table(objects, kinds, fields, are_texts, total - 1 if are_texts else None)


def open_file(
    path: Path,
    encoding: str | None,
    mapping: Mapping[str, str | None],
    advance: Callable[[], object] = lambda: None,
) -> Table:
    """Look through a file with one of ENDINGS, plain or .gz. Raises FullrankError as ``open_table`` does."""
    is_json = Path(path.name.removesuffix(".gz")).suffix in JSON_ENDINGS
    read = json_rows if is_json else _csv_rows

    def objects() -> Iterator[Object]:
        with opened(path, encoding) as text:
            yield from read(path, text)

    return open_table(path, objects, mapping, are_texts=not is_json, advance=advance)


@contextmanager
def opened(path: Path, encoding: str | None) -> Iterator[TextIOWrapper]:
    """Open a plain or gzipped text; bytes that are not of its encoding become halves of surrogate pairs.

    Args:
        encoding: None: UTF-8, or UTF-16 if the text begins with its byte order mark.
    """
    try:
        if encoding is None:
            with open_bytes(path) as file:
                encoding = encoding_of(file.read(2))
        with (
            open_bytes(path) as file,
            TextIOWrapper(file, encoding, "surrogateescape", newline="") as text,
        ):
            yield text
    except (OSError, EOFError, zlib.error, LookupError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FullrankError(f"{path}: cannot be read: {reason}") from error


def encoding_of(head: bytes) -> str:
    return "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def undecoded(text: str) -> str | None:
    """Return what is wrong with a text that has bytes of another encoding; None if it has none."""
    found = None if text.isascii() else _UNDECODED.search(text)
    if found is None:
        return None
    context = text[max(0, found.start() - 8) : found.end()].encode("utf-8", "surrogateescape")
    return f"not in this encoding: {context!r}; name its encoding, such as --encoding cp1252"


def json_rows(path: Path, lines: Iterable[str]) -> Iterator[Object]:
    """Read JSON lines, and those of dumps: {"_id", "_source"}, or actions of a bulk request and their documents."""
    action: dict[str, Any] | None = None
    place = str(path)
    for number, line in enumerate(lines, 1):
        place = f"{path}:{number}"
        if not line.strip():
            continue
        if number == 1 and line.lstrip()[0] == "[":
            raise FullrankError(
                f"{place}: an array; write one document a line, as `jq -c '.[]'` does"
            )
        try:
            problem = undecoded(line)
            found = None if problem else strict_json.parse(line)
        except JsonError as error:
            found, problem = None, str(error)
        if not isinstance(found, dict):
            yield place, Bad(problem or "not a JSON object", line.strip())
        elif action is not None:
            source = found.get("doc", found.get("upsert")) if "update" in action else found
            [meta] = action.values()
            if isinstance(source, dict):
                yield place, {**_id_of(meta), **source}
            else:
                yield place, Bad("an update without a document", line.strip())
        elif len(found) == 1 and not _ACTIONS.isdisjoint(found) and _is_meta(*found.values()):
            action = None if "delete" in found else found
            continue
        elif isinstance(found.get("_source"), dict):
            yield place, {**_id_of(found), **found["_source"]}
        elif "_source" in found and found["_source"] is None:
            yield place, Bad("no document: _source is null", line.strip())
        else:
            yield place, found
        action = None
    if action is not None:
        yield place, Bad("an action without a document; the file may be cut off")


def _is_meta(value: object) -> bool:
    return isinstance(value, dict) and all(
        name[0] == "_" or name in ("routing", "retry_on_conflict", "version", "version_type")
        for name in value
    )


def _id_of(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {"_id": meta["_id"]} if "_id" in meta else {}


def separator_of(path: Path, header: str) -> str:
    """Return the separator of a CSV or TSV: the one that its header has most often."""
    return max("\t" if ".tsv" in path.suffixes else ",;\t|", key=header.count)


def _csv_rows(path: Path, text: TextIOWrapper) -> Iterator[Object]:
    head = text.readline()
    separator = separator_of(path, head)
    rows = csv.reader(chain([head], text), delimiter=separator, strict=True)
    try:
        names = [name.strip() for name in next(rows, [])]
    except csv.Error as error:
        raise FullrankError(f"{path}:1: header: {error}") from error
    named = [*filter(None, names)]  # a separator at the end of lines makes a column without a name
    problem = undecoded(" ".join(names)) or (None if named else "no header with names of columns")
    if problem or len(set(named)) < len(named):
        raise FullrankError(
            f"{path}:1: {problem or f'the header needs different names of columns: {names}'}"
        )
    yield f"{path}:1", dict.fromkeys(named, "")
    while True:
        place = f"{path}:{1 + rows.line_num}"
        try:
            cells = next(rows, None)
        except csv.Error as error:
            if "unexpected end" in str(error):  # all further rows are in this cell
                raise FullrankError(f"{place}: a quotation mark that nothing closes") from error
            yield place, Bad(str(error))
            continue
        if cells is None:
            return
        if len(cells) > len(names):
            yield place, Bad(f"{len(cells)} cells, but {len(names)} columns", cells)
        elif problem := undecoded(" ".join(cells)):
            yield place, Bad(problem, cells)
        elif any(cells):
            yield place, {n: cell for n, cell in zip(names, cells, strict=False) if n}


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


def _type(value: object, before: str | None) -> str | None:
    if value is None or value == "":
        return before
    now = _NAMES.get(type(value), "text")
    return now if before in (None, now) else "text"


def _typed(text: str, kind: str) -> str | int | float | bool:
    if not text:
        return text
    if kind == "truth":
        return _TRUTH[text.lower()]
    if kind == "number":
        return float(text.replace(",", ".")) if "." in text or "," in text else int(text)
    return text


def _plain(value: Any) -> Any:
    """Return a value of a database in its form of JSON. Raises ValueError if it has none."""
    if isinstance(value, int) and abs(value) >= 1 << 63:
        return str(value)
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral() else float(value)
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_plain(one) for one in value]
    raise ValueError(f"{type(value).__name__} has no form in JSON; leave the column out")


# Parquet files and databases need the extra ``fullrank[import]``.


def open_parquet(path: Path, mapping: Mapping[str, str | None]) -> Table:
    """Look at the first rows of a Parquet file. Raises FullrankError if it cannot be read."""
    with needs(_EXTRA):
        import pyarrow
        import pyarrow.parquet

    def objects() -> Iterator[Object]:
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                number = count(1)
                for batch in file.iter_batches(_BATCH):
                    yield from ((f"{path}:{next(number)}", row) for row in batch.to_pylist())
        except (OSError, pyarrow.ArrowException) as error:
            raise FullrankError(f"{path}: cannot be read: {_first_line(error)}") from error

    return open_table(path, objects, mapping)


def open_sql(address: str, query: str, mapping: Mapping[str, str | None]) -> Table:
    """Look at the first rows that a query selects. Raises FullrankError if the database refuses it."""
    with needs(_EXTRA):
        import sqlalchemy
        from sqlalchemy.exc import SQLAlchemyError

    try:
        url = sqlalchemy.make_url(address)
        shown = url.render_as_string(hide_password=True)
        engine = sqlalchemy.create_engine(url)
    except (SQLAlchemyError, ImportError, ValueError) as error:
        raise FullrankError(f"{address.partition(':')[0]}: {_first_line(error)}") from error

    def objects() -> Iterator[Object]:
        try:
            # The query goes to the database as it is: ":x" and "%" stand for no parameters.
            connected = engine.connect()
            with connected.execution_options(yield_per=_BATCH, no_parameters=True) as connection:
                result = connection.exec_driver_sql(query)
                if not result.returns_rows:
                    raise FullrankError(f"{shown}: the query selects nothing")
                for number, row in enumerate(result.mappings(), 1):
                    yield f"{shown} row {number}", dict(row)
        except SQLAlchemyError as error:
            raise FullrankError(f"{shown}: {_first_line(error)}") from error
        finally:
            engine.dispose()

    return open_table(shown, objects, mapping)


def _first_line(error: Exception) -> str:
    return str(error).split("\n", maxsplit=1)[0]
