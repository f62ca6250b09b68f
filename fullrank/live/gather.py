"""Copy documents of several parts into one: encodings, facts and columns.

The copies are made in kernels and by whole arrays, so that a merge on a background thread rarely holds the interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fullrank.encoding import Encoded, Int32, Int64, Rows
from fullrank.filters.columns import Column, ColumnPart, Columns, Kind
from fullrank.filters.columns.build import MAX_FIELDS
from fullrank.filters.columns.table import BOOLEANS
from fullrank.kernels.gather import copy_documents
from fullrank.live.part import Part
from fullrank.records import Documents
from fullrank.rerank.facts import DocumentFacts
from fullrank.storage.strings import StringTable

_EVERY_FEATURE = np.zeros(0, np.int32)


@dataclass(frozen=True, eq=False)
class Selection:
    """Documents of several parts in a new order.

    Attributes:
        number: int32 (n,), the part of each document.
        row: int64 (n,), its row there.
    """

    number: Int32
    row: Int64

    @staticmethod
    def of(pairs: Sequence[tuple[int, int]]) -> Selection:
        """Make a selection of (index of the part, row) of each document."""
        number, row = np.array(pairs, np.int64).reshape(-1, 2).T
        return Selection(number.astype(np.int32), np.ascontiguousarray(row))

    def __len__(self) -> int:
        return len(self.row)

    def places(self, number: int) -> Int64:
        """Return the places of the documents of one part, int64 ascending."""
        return np.flatnonzero(self.number == number)


def gather(
    parts: Sequence[Documents], selected: Selection, width: int, targets: Sequence[Int32 | None]
) -> Encoded:
    """Copy encoded documents.

    Args:
        parts: The encoded documents of each part.
        selected: The documents to copy.
        width: Number of sparse features of the copy.
        targets: For each part the new numbers of its features, int32 ascending; None if they stay.

    Returns:
        The encoded documents in the order of the selection.
    """
    count = len(selected)
    sizes, bias = np.zeros(count, np.int64), np.empty(count, np.float32)
    places = [selected.places(i) for i in range(len(parts))]
    for part, here in zip(parts, places, strict=True):
        rows = selected.row[here]
        sizes[here] = part.indptr[rows + 1] - part.indptr[rows]
        bias[here] = part.bias[rows]
    indptr = np.zeros(count + 1, np.int64)
    np.cumsum(sizes, out=indptr[1:])
    dense = np.empty((count, parts[0].n_dense), np.float32)
    indices, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    for part, here, target in zip(parts, places, targets, strict=True):
        if len(here):
            found, rows = part.fetch(selected.row[here])
            copy_documents(
                found.dense, *found.sparse.arrays,
                rows, here, _EVERY_FEATURE if target is None else target,
                dense, indptr, indices, values,
            )  # fmt: skip
    return Encoded(dense, Rows(indptr, indices, values, width), bias)


def gather_facts(parts: Sequence[Part], selected: Selection) -> DocumentFacts | None:
    """Copy facts about documents in the order of the selection; None if a part has no facts."""
    pieces, order = [], np.empty(len(selected), np.int64)
    done = 0
    for i, part in enumerate(parts):
        here = selected.places(i)
        if len(here):
            if part.facts is None:
                return None
            order[here] = np.arange(done, done + len(here))
            pieces.append(part.facts.take(selected.row[here]))
            done += len(here)
    if not pieces:
        return None
    return pieces[0] if len(pieces) == 1 else DocumentFacts.concatenate(pieces).take(order)


def gather_columns(tables: Sequence[Columns], selected: Selection) -> Columns | None:
    """Copy the columns of documents; None if only the documents themselves can tell which fields are columns."""
    names = list(dict.fromkeys(name for table in tables for name in table.by_name))
    if len(names) > MAX_FIELDS or any(table.refused for table in tables):
        return None
    count = len(selected)
    columns = {}
    for name in names:
        own = [table.by_name.get(name) for table in tables]
        kinds = sorted({kind for column in own if column is not None for kind in column.parts})
        parts = {}
        for kind in kinds:
            found = [None if column is None else column.parts.get(kind) for column in own]
            part = _gather_part(kind, found, selected)
            if part is not None:
                parts[kind] = part
        columns[name] = Column(name, parts, count)
    return Columns(count, columns, {})


def _gather_part(
    kind: Kind, parts: Sequence[ColumnPart | None], selected: Selection
) -> ColumnPart | None:
    """Copy the values of one kind; None if no document has any."""
    entries = [
        (part, *_entries(part, selected, i)) for i, part in enumerate(parts) if part is not None
    ]
    rows = np.concatenate([rows for _, rows, _ in entries])
    if not len(rows):
        return None
    values, places = _union(kind, [(part, codes) for part, _, codes in entries])
    codes = np.concatenate([place[c] for place, (_, _, c) in zip(places, entries, strict=True)])
    order = np.argsort(rows, kind="stable")
    rows, codes = rows[order], codes[order].astype(np.min_scalar_type(-max(1, len(values))))
    count = len(selected)
    if np.any(rows[1:] == rows[:-1]):
        indptr = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=count), out=indptr[1:])
        return ColumnPart(values, codes, indptr)
    single = np.full(count, -1, codes.dtype)
    single[rows] = codes
    return ColumnPart(values, single)


def _entries(part: ColumnPart, selected: Selection, number: int) -> tuple[Int64, Any]:
    """Return the place and the code of each value of one part's selected documents."""
    here = selected.places(number)
    rows = selected.row[here]
    if part.indptr is None:
        codes = part.codes[rows]
        kept = np.flatnonzero(codes >= 0)
        return here[kept], codes[kept]
    first = part.indptr[rows]
    sizes = part.indptr[rows + 1] - first
    before = np.cumsum(sizes) - sizes
    return np.repeat(here, sizes), part.codes[
        np.arange(sizes.sum()) + np.repeat(first - before, sizes)
    ]


def _union(kind: Kind, parts: Sequence[tuple[ColumnPart, Any]]) -> tuple[Any, list[Int64]]:
    """Return the values that some codes stand for, ascending, and the new code of each code of each part."""
    if kind == "boolean":
        return BOOLEANS, [np.arange(len(BOOLEANS)) for _ in parts]
    used = [np.unique(codes) for _, codes in parts]
    values: Any
    if kind == "number":
        found: list[Any] = [
            np.asarray(part.values)[codes] for (part, _), codes in zip(parts, used, strict=True)
        ]
        values = np.unique(np.concatenate(found))
        new = [np.searchsorted(values, own) for own in found]
    else:
        tables = [StringTable.of(part.values) for part, _ in parts]
        number = np.repeat(np.arange(len(used), dtype=np.int32), [*map(len, used)])
        texts = [*StringTable.gather(tables, number, np.concatenate(used).astype(np.int64))]
        distinct = sorted({*texts})
        code = {text: i for i, text in enumerate(distinct)}
        codes_of = np.fromiter(map(code.__getitem__, texts), np.int64, len(texts))
        new = np.split(codes_of, np.cumsum([*map(len, used[:-1])]))
        values = StringTable.of(distinct)
    places = []
    for (part, _), codes, own in zip(parts, used, new, strict=True):
        place = np.zeros(len(part.values), np.int64)
        place[codes] = own
        places.append(place)
    return values, places
