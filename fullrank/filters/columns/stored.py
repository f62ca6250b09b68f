"""Open stored columns: mapped arrays and string tables, or the same in memory.

facts   {"documents": n, "fields": [field, …]}; a field is {"name", "parts": {kind: {"values", "lists"}}} or, if it
        cannot be a column, {"name", "refused": reason}; its index i in the list names its files

<i>.number.values       float64 (V,), ascending
<i>.keyword.values      string table, ascending by code point
<i>.<kind>.codes        int8, int16 or int32 (n,), or (entries,) with lists
<i>.<kind>.indptr       int64 (n + 1,), with lists
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fullrank.errors import BundleError
from fullrank.filters.columns.build import ColumnsBuilder
from fullrank.filters.columns.table import BOOLEANS, KINDS, Column, ColumnPart, Columns, Kind
from fullrank.storage.checks import check_finite, check_ids, check_rows
from fullrank.storage.strings import StringTable

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
        documents: Number of documents n.
        facts: As ``ColumnsBuilder.finish`` returned them.
        arrays: Arrays by name; exactly those that the facts describe.
        strings: String tables by name; exactly those that the facts describe.
        verify: Also read every value: codes in range, dictionaries and lists ascending.

    Returns:
        The columns, over the given arrays without a copy.

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

    Args:
        documents: The stored fields of each document, in row order; JSON values by field name.
        ignored: Names of fields that shall have no columns.

    Returns:
        The columns of these documents.

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
    """Return the facts of the fields, checked against the number of documents."""
    match facts:
        case {"documents": int(count), "fields": list(fields), **rest} if not rest:
            if count != documents:
                raise BundleError(
                    f"{_FOLDER}: the columns have {count} documents, the bundle has {documents}"
                )
            return fields
    raise BundleError(f"{_FOLDER}: the manifest does not describe the columns")


def _read_field(field: Any) -> tuple[str, Mapping[str, Mapping[str, Any]], str | None]:
    """Return (name, parts, reason if refused) of a field's facts."""
    match field:
        case {"name": str(name), "refused": str(reason), **rest} if not rest:
            return name, {}, reason
        case {"name": str(name), "parts": dict(parts), **rest} if not rest:
            if parts.keys() <= set(KINDS) and all(map(_is_part, parts.values())):
                return name, parts, None
    raise BundleError(f"{_FOLDER}: the manifest does not describe a field")


def _is_part(part: Any) -> bool:
    """Return whether these are the facts of a part."""
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
    """Collect the arrays of one part; add their names to used."""

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
