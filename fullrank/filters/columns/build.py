"""Columns of stored fields: built one document after another, or opened from mapped arrays."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fullrank.errors import BundleError
from fullrank.filters.columns.table import (
    BOOLEANS,
    KINDS,
    Column,
    ColumnPart,
    Columns,
    Kind,
    Point,
)
from fullrank.storage.checks import Create, check_finite, check_ids, check_rows
from fullrank.storage.encoding import Int64
from fullrank.storage.strings import StringTable

# Build columns from stored fields, one document after another.
#
# A field is a column if every one of its values fits, so that a filter never overlooks a document. What fits:
#
#     true, false             a boolean
#     a number                finite; an integer of at most 2^53, because float64 would merge larger neighbours
#     text                    at most 256 bytes of UTF-8: longer text is for searching, not for filtering
#     {"lat": …, "lon": …}    a place, kept as the text "latitude,longitude" in degrees
#     a list of these         each distinct value counts once
#     null, an empty list     no value, as if the field were absent
#
# A field may mix kinds; each kind is then a separate part (see table.py). Any other value (another object, a list in a
# list) refuses the whole field, and so do more than 2^22 different keywords. Fields are ignored if their name is
# longer than 256 bytes or not encodable, or if they come after the first 256.
#
# Building keeps a row and a number for each value (12 bytes at most), and each different keyword once.

MAX_KEYWORD_BYTES = 256
MAX_KEYWORDS = 1 << 22
MAX_FIELDS = 256
MAX_INTEGER = 1 << 53

Strings = Callable[[str, Iterable[str]], None]


class ColumnsBuilder:
    """Collects the stored fields of each document in row order, then writes the columns."""

    def __init__(self, ignored: Collection[str] = frozenset()) -> None:
        self._ignored = ignored
        self._fields: dict[str, _Field] = {}
        self._documents = 0

    def add(self, fields: Mapping[str, Any]) -> None:
        """Add the fields of the next document, JSON values by name."""
        known = self._fields
        for name, value in fields.items():
            field = known.get(name)
            if field is None:
                if len(known) >= MAX_FIELDS or name in self._ignored or not _fits(name):
                    continue
                field = known[name] = _Field()
            if value is not None and field.refused is None:
                field.add(self._documents, value)
        self._documents += 1

    @property
    def refused(self) -> dict[str, str]:
        """The reason by field name, for fields that cannot be columns."""
        return {
            name: field.refused for name, field in self._fields.items() if field.refused is not None
        }

    @property
    def kinds(self) -> dict[str, set[Kind]]:
        """The kinds of values added so far, by field name."""
        return {name: field.kinds for name, field in self._fields.items()}

    def finish(self, create: Create, strings: Strings) -> dict[str, Any]:
        """Write all columns and empty the builder.

        Returns:
            The facts that ``open_columns`` needs.
        """
        fields: list[dict[str, Any]] = []
        while self._fields:
            name = next(iter(self._fields))
            field = self._fields.pop(name)
            if field.refused is not None:
                fields.append({"name": name, "refused": field.refused})
                continue
            parts = field.write(f"{len(fields)}.", self._documents, create, strings)
            fields.append({"name": name, "parts": parts})
        return {"documents": self._documents, "fields": fields}


def _fits(text: str) -> bool:
    if text.isascii():
        return len(text) <= MAX_KEYWORD_BYTES
    try:
        return len(text) <= MAX_KEYWORD_BYTES and len(text.encode()) <= MAX_KEYWORD_BYTES
    except UnicodeEncodeError:
        return False


def _place(item: Any) -> str | None:
    """Return the text of a place; None for another value."""
    if not isinstance(item, dict) or item.keys() != {"lat", "lon"}:
        return None
    if any(type(degrees) not in (int, float) for degrees in item.values()):
        return None
    point = Point(item["lat"], item["lon"])
    return f"{point.lat!r},{point.lon!r}" if point.is_on_earth else None


_TYPECODES: dict[Kind, str] = {"boolean": "b", "number": "d", "keyword": "i"}


class _Field:
    """One field while it is read; refused: why it cannot be a column."""

    def __init__(self) -> None:
        self.refused: str | None = None
        # The rows and the values, or provisional codes, of each kind in order of arrival.
        self._cells: dict[Kind, tuple[array[int], array[Any]]] = {}
        self._keywords: dict[str, int] = {}

    @property
    def kinds(self) -> set[Kind]:
        return set(self._cells)

    def add(self, row: int, value: Any) -> None:
        for item in value if isinstance(value, list) else (value,):
            if item is None:
                continue
            reason = self._add_item(row, item)
            if reason is not None:
                self.refused = reason
                self._cells, self._keywords = {}, {}
                return

    def _add_item(self, row: int, item: Any) -> str | None:
        """Add one value; return why it does not fit, or None."""
        if isinstance(item, str):
            if not _fits(item):
                return f"it holds text longer than {MAX_KEYWORD_BYTES} bytes"
            code = self._keywords.setdefault(item, len(self._keywords))
            if code >= MAX_KEYWORDS:
                return f"it holds more than {MAX_KEYWORDS} different texts"
            self._put("keyword", row, code)
        elif isinstance(item, bool):
            self._put("boolean", row, item)
        elif isinstance(item, int):
            if abs(item) > MAX_INTEGER:
                return "it holds an integer beyond 2^53; store such numbers as text"
            self._put("number", row, item)
        elif isinstance(item, float):
            if not isfinite(item):
                return "it holds a number that is not finite"
            self._put("number", row, item)
        elif (place := _place(item)) is not None:
            return self._add_item(row, place)
        else:
            return "it holds objects or lists of lists"
        return None

    def _put(self, kind: Kind, row: int, value: float) -> None:
        if kind not in self._cells:
            self._cells[kind] = array("i"), array(_TYPECODES[kind])
        rows, values = self._cells[kind]
        rows.append(row)
        values.append(value)

    def write(
        self, prefix: str, documents: int, create: Create, strings: Strings
    ) -> dict[Kind, dict[str, Any]]:
        """Write the parts; return for each its number of values and whether it has lists."""
        facts: dict[Kind, dict[str, Any]] = {}
        for kind in sorted(self._cells):
            arrived, given = self._cells.pop(kind)
            raw = np.frombuffer(given, given.typecode)
            name = f"{prefix}{kind}."
            match kind:
                case "boolean":
                    distinct, codes = len(BOOLEANS), raw.astype(np.int64)
                case "number":
                    # Adding 0.0 turns negative zero into zero, so that both get one code.
                    values, codes = np.unique(raw + 0.0, return_inverse=True)
                    distinct = len(values)
                    create(name + "values", (distinct,), np.float64)[:] = values
                case "keyword":
                    texts = sorted(self._keywords)
                    distinct = len(texts)
                    place = np.empty(distinct, np.int64)
                    for code, text in enumerate(texts):
                        place[self._keywords[text]] = code
                    codes = place[raw]
                    self._keywords = {}
                    strings(name + "values", texts)
            rows = np.frombuffer(arrived, np.int32)
            lists = _write_codes(name, rows, codes, distinct, documents, create)
            facts[kind] = {"values": distinct, "lists": lists}
        return facts


def _write_codes(
    name: str,
    rows: npt.NDArray[np.int32],
    codes: Int64,
    distinct: int,
    documents: int,
    create: Create,
) -> bool:
    """Write the distinct codes of each row; return whether a row has more than one."""
    dtype = np.min_scalar_type(-max(1, distinct))
    if np.any(rows[1:] == rows[:-1]):
        order = np.lexsort((codes, rows))
        rows, codes = rows[order], codes[order]
        new = np.ones(len(rows), np.bool_)
        new[1:] = (rows[1:] != rows[:-1]) | (codes[1:] != codes[:-1])
        rows, codes = rows[new], codes[new]
    if not np.any(rows[1:] == rows[:-1]):
        single = create(name + "codes", (documents,), dtype)
        single[:] = -1
        single[rows] = codes
        return False
    create(name + "codes", codes.shape, dtype)[:] = codes
    indptr = create(name + "indptr", (documents + 1,), np.int64)
    indptr[0] = 0
    np.cumsum(np.bincount(rows, minlength=documents), out=indptr[1:])
    return True


# Open stored columns: mapped arrays and string tables, or the same in memory.
#
# facts   {"documents": n, "fields": [field, …]}; a field is {"name", "parts": {kind: {"values", "lists"}}} or, if it
#         cannot be a column, {"name", "refused": reason}; its index i in the list names its files
#
# <i>.number.values       float64 (V,), ascending
# <i>.keyword.values      string table, ascending by code point
# <i>.<kind>.codes        int8, int16 or int32 (n,), or (entries,) with lists
# <i>.<kind>.indptr       int64 (n + 1,), with lists

_CODES = frozenset(map(np.dtype, (np.int8, np.int16, np.int32)))
_FOLDER = "columns/"
_Stored = TypeVar("_Stored")


def open_columns(
    documents: int,
    facts: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    strings: Mapping[str, Sequence[str]],
    *,
    verify: bool = True,
) -> Columns:
    """Open the columns of a bundle.

    Args:
        verify: Also read every value: codes in range, dictionaries and lists ascending.

    Raises:
        BundleError: A part is missing, unknown or does not match the facts; the message names it.
    """
    by_name: dict[str, Column] = {}
    refused: dict[str, str] = {}
    used: set[str] = set()
    for place, field in enumerate(_fields(facts, documents)):
        name, parts, reason = _read_field(field)
        if name in by_name or name in refused:
            raise BundleError(f"{_FOLDER}: the manifest describes {name!r} twice")
        if reason is not None:
            refused[name] = reason
            continue
        opened: dict[Kind, ColumnPart] = {}
        for kind in KINDS:
            if kind in parts:
                stem = f"{place}.{kind}."
                part = _part(stem, kind, parts[kind]["lists"], arrays, strings, used)
                if len(part.values) != parts[kind]["values"]:
                    raise BundleError(
                        f"{_FOLDER}{stem}values: {len(part.values)} values, the manifest has {parts[kind]['values']}"
                    )
                _check_shape(stem, part, documents)
                if verify:
                    _check_values(stem, part)
                opened[kind] = part
        by_name[name] = Column(name, opened, documents)
    for name in sorted((arrays.keys() | strings.keys()) - used):
        raise BundleError(f"{_FOLDER}{name}: not described in the manifest")
    return Columns(documents, by_name, refused)


def columns_of(
    documents: Iterable[Mapping[str, Any]], ignored: Collection[str] = frozenset()
) -> Columns:
    """Build columns in memory.

    Example:
        >>> columns = columns_of([{"section": "net"}, {"section": "mail"}])
        >>> matching(parse_filter({"section": "net"}), columns)
        array([ True, False])
    """
    builder = ColumnsBuilder(ignored)
    for fields in documents:
        builder.add(fields)
    arrays: dict[str, npt.NDArray[Any]] = {}
    tables: dict[str, Sequence[str]] = {}

    def create(name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return arrays.setdefault(name, np.zeros(shape, dtype))

    def strings(name: str, texts: Iterable[str]) -> None:
        tables[name] = StringTable.of(texts)

    facts = builder.finish(create, strings)
    return open_columns(facts["documents"], facts, arrays, tables, verify=False)


def _fields(facts: Mapping[str, Any], documents: int) -> list[Any]:
    match facts:
        case {"documents": int(count), "fields": list(fields), **rest} if not rest:
            if count != documents:
                raise BundleError(
                    f"{_FOLDER}: the columns have {count} documents, the bundle has {documents}"
                )
            return fields
    raise BundleError(f"{_FOLDER}: the manifest does not describe the columns")


def _read_field(field: Any) -> tuple[str, Mapping[str, Mapping[str, Any]], str | None]:
    match field:
        case {"name": str(name), "refused": str(reason), **rest} if not rest:
            return name, {}, reason
        case {"name": str(name), "parts": dict(parts), **rest} if not rest:
            if parts.keys() <= set(KINDS) and all(map(_is_part, parts.values())):
                return name, parts, None
    raise BundleError(f"{_FOLDER}: the manifest does not describe a field")


def _is_part(part: Any) -> bool:
    match part:
        case {"values": int(), "lists": bool(), **rest}:
            return not rest
    return False


def _part(
    stem: str,
    kind: Kind,
    lists: bool,
    arrays: Mapping[str, npt.NDArray[Any]],
    strings: Mapping[str, Sequence[str]],
    used: set[str],
) -> ColumnPart:

    def find(parts: Mapping[str, _Stored], name: str) -> _Stored:
        if stem + name not in parts:
            raise BundleError(f"{_FOLDER}{stem}{name}: missing")
        used.add(stem + name)
        return parts[stem + name]

    values: Any = BOOLEANS
    if kind == "number":
        values = find(arrays, "values")
        if values.dtype != np.float64 or values.ndim != 1:
            raise BundleError(f"{_FOLDER}{stem}values: not a one-dimensional float64 array")
    elif kind == "keyword":
        values = find(strings, "values")
    return ColumnPart(values, find(arrays, "codes"), find(arrays, "indptr") if lists else None)


def _check_shape(stem: str, part: ColumnPart, documents: int) -> None:
    codes, indptr = part.codes, part.indptr
    if codes.dtype not in _CODES or codes.ndim != 1:
        raise BundleError(
            f"{_FOLDER}{stem}codes: not a one-dimensional array of int8, int16 or int32"
        )
    if len(part.values) > np.iinfo(codes.dtype).max + 1:
        raise BundleError(f"{_FOLDER}{stem}codes: too narrow for {len(part.values)} values")
    if indptr is None and len(codes) != documents:
        raise BundleError(f"{_FOLDER}{stem}codes: {len(codes)} codes for {documents} documents")
    if indptr is not None and (indptr.dtype != np.int64 or indptr.shape != (documents + 1,)):
        raise BundleError(f"{_FOLDER}{stem}indptr: not an int64 array of shape ({documents + 1},)")


def _check_values(stem: str, part: ColumnPart) -> None:
    values, codes = part.values, part.codes
    stem = _FOLDER + stem
    if isinstance(values, np.ndarray):
        check_finite(stem + "values", values)
        if not (values[1:] > values[:-1]).all():
            raise BundleError(f"{stem}values: not ascending")
    elif values is not BOOLEANS:
        check_ids(stem + "values", values)
    if part.indptr is not None:
        check_rows(stem + "indptr", part.indptr, stem + "codes", codes, len(values))
    elif len(codes) and (codes.min() < -1 or codes.max() >= len(values)):
        raise BundleError(f"{stem}codes: a code outside -1..{len(values) - 1}")
