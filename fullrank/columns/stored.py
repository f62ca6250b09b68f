"""Columns over what a writer stored: mapped arrays and string tables, or the same in memory.

fields                  string table: a JSON line a field, {"name", "parts": {kind: {"values", "lists"}}} or
                        {"name", "refused"}; its place i names the field's arrays
<i>.number.values       float64 (V,), ascending
<i>.keyword.values      string table, ascending by code point
<i>.<kind>.codes        int8, int16 or int32
<i>.<kind>.indptr       int64 (n + 1,), where a document may hold several values
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.columns.build import ColumnsBuilder
from fullrank.columns.table import BOOLEANS, KINDS, Column, Columns, Kind, Part
from fullrank.errors import BundleError
from fullrank.strings import StringTable

_CODES = frozenset(map(np.dtype, (np.int8, np.int16, np.int32)))


def open_columns(
    documents: int,
    array: Callable[[str], npt.NDArray[Any]],
    strings: Callable[[str], StringTable],
    *,
    verify: bool = True,
) -> Columns:
    """Columns over stored parts; array and strings give a part by its name, or raise BundleError.

    verify   also look at every value: codes in range, dictionaries and lists ascending
    Raises BundleError naming the part that does not fit.
    """
    by_name: dict[str, Column] = {}
    refused: dict[str, str] = {}
    for place, line in enumerate(strings("fields")):
        name, parts, reason = _described(line)
        if name in by_name or name in refused:
            raise BundleError(f"columns/fields: {name!r} stands twice")
        if reason is not None:
            refused[name] = reason
            continue
        opened: dict[Kind, Part] = {}
        for kind in KINDS:
            if kind in parts:
                stem = f"{place}.{kind}."
                part = _part(stem, kind, parts[kind]["lists"], array, strings)
                _check_shape(stem, part, documents)
                if verify:
                    _check_values(stem, part)
                opened[kind] = part
        by_name[name] = Column(name, opened, documents)
    return Columns(documents, by_name, refused)


def columns_of(documents: Iterable[Mapping[str, Any]]) -> Columns:
    """Columns in memory of the stored fields of documents in row order."""
    builder = ColumnsBuilder()
    for fields in documents:
        builder.add(fields)
    arrays: dict[str, npt.NDArray[Any]] = {}
    tables: dict[str, StringTable] = {}

    def create(name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return arrays.setdefault(name, np.zeros(shape, dtype))

    def strings(name: str, texts: Iterable[str]) -> None:
        tables[name] = StringTable.of(texts)

    facts = builder.finish(create, strings)
    return open_columns(facts["documents"], arrays.__getitem__, tables.__getitem__, verify=False)


def _described(line: str) -> tuple[str, Mapping[str, Mapping[str, Any]], str | None]:
    """(name, parts, reason why it is refused) of a line."""
    try:
        match json.loads(line):
            case {"name": str(name), "refused": str(reason), **rest} if not rest:
                return name, {}, reason
            case {"name": str(name), "parts": dict(parts), **rest} if not rest:
                if parts.keys() <= set(KINDS) and all(map(_is_described, parts.values())):
                    return name, parts, None
    except ValueError as error:
        raise BundleError(f"columns/fields: not JSON: {error}") from error
    raise BundleError("columns/fields: a line describes no field")


def _is_described(part: Any) -> bool:
    match part:
        case {"values": int(), "lists": bool(), **rest}:
            return not rest
    return False


def _part(
    stem: str,
    kind: Kind,
    lists: bool,
    array: Callable[[str], npt.NDArray[Any]],
    strings: Callable[[str], StringTable],
) -> Part:
    values: Any = BOOLEANS
    if kind == "number":
        values = array(stem + "values")
        if values.dtype != np.float64 or values.ndim != 1:
            raise BundleError(f"columns/{stem}values: not a row of float64")
    elif kind == "keyword":
        values = strings(stem + "values")
    return Part(values, array(stem + "codes"), array(stem + "indptr") if lists else None)


def _check_shape(stem: str, part: Part, documents: int) -> None:
    codes, indptr = part.codes, part.indptr
    if codes.dtype not in _CODES or codes.ndim != 1:
        raise BundleError(f"columns/{stem}codes: not a row of codes")
    if len(part.values) > np.iinfo(codes.dtype).max + 1:
        raise BundleError(f"columns/{stem}codes: too narrow for {len(part.values)} values")
    if indptr is None and len(codes) != documents:
        raise BundleError(f"columns/{stem}codes: {len(codes)} codes for {documents} documents")
    if indptr is not None and (indptr.dtype != np.int64 or indptr.shape != (documents + 1,)):
        raise BundleError(f"columns/{stem}indptr: not int64 ({documents + 1},)")


def _check_values(stem: str, part: Part) -> None:
    values, codes, indptr = part.values, part.codes, part.indptr
    rising = (
        bool(np.isfinite(values).all() and (values[1:] > values[:-1]).all())
        if isinstance(values, np.ndarray)
        else all(one < two for one, two in pairwise(values))
    )
    if not rising:
        raise BundleError(f"columns/{stem}values: not ascending")
    lowest = -1 if indptr is None else 0
    if len(codes) and (codes.min() < lowest or codes.max() >= len(values)):
        raise BundleError(f"columns/{stem}codes: a code outside {lowest}..{len(values) - 1}")
    if indptr is None:
        return
    if indptr[0] != 0 or indptr[-1] != len(codes) or np.any(indptr[1:] < indptr[:-1]):
        raise BundleError(f"columns/{stem}indptr: does not ascend from 0 to the number of codes")
    first_of_row = np.zeros(len(codes) + 1, np.bool_)
    first_of_row[indptr[:-1]] = True
    if not ((codes[1:] > codes[:-1]) | first_of_row[1:-1]).all():
        raise BundleError(f"columns/{stem}codes: codes of a document do not ascend")
