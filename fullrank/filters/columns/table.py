"""Columns: the values of each stored field as codes into a sorted dictionary, in memory or mapped."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from fullrank.storage.encoding import Float64, Int32, Int64, Mask
from fullrank.storage.strict_json import parse_time
from fullrank.storage.strings import StringTable

# Numbers, and times in text fields, of the documents of a column.
#
# A time is ISO 8601 text: 2026-11-23, or 2026-11-23T12:00:00+01:00. A day is its midnight, and what a document stores
# without an offset is in UTC. Times count as seconds since 1970.

Scale = Literal["number", "boolean", "time"]
"""What the values of a column are on: numbers, false and true as 0 and 1, or times."""

# Parts never change, so the times of a dictionary are kept until its bundle or segment is unloaded.
_times: WeakKeyDictionary[ColumnPart, Float64] = WeakKeyDictionary()


def time_of(text: str, *, needs_offset: bool = False) -> float | None:
    """Read a stored time as ``parse_time`` does; None for a text that is no time.

    Example:
        >>> time_of("1970-01-02"), time_of("1970-01-02", needs_offset=True), time_of("tea")
        (86400.0, None, None)
    """
    # Most texts; an exception takes much longer. Eight digits are a code more often than a day.
    if not text[:4].isdigit() or text[4:5] != "-":
        return None
    try:
        return parse_time(text, needs_offset=needs_offset)
    except ValueError:
        return None


def times_of(part: ColumnPart) -> Float64:
    """Return the time of each value of a text part, float64 (V,); NaN for a text that is no time."""
    found = _times.get(part)
    if found is None:
        times = (time_of(text) for text in part.values)
        found = np.array([np.nan if time is None else time for time in times], np.float64)
        _times[part] = found
    return found


def scale_of(columns: list[Column]) -> Scale | None:
    """Choose what to compare the documents of several parts by: numbers, else true and false, else times.

    Returns:
        The scale, None for a field that has no value on one.
    """
    kinds: set[Kind] = {kind for column in columns for kind in column.kinds}
    if "number" in kinds:
        return "number"
    if "boolean" in kinds:
        return "boolean"
    if any(column.has_times_elsewhere for column in columns):
        return "time"
    texts = [column.parts["keyword"] for column in columns if "keyword" in column.parts]
    return "time" if any(np.isfinite(times_of(part)).any() for part in texts) else None


def dictionary(column: Column, scale: Scale) -> tuple[ColumnPart, Float64] | None:
    """Return the part of a column that a scale reads, and the number of each of its values; None without that part."""
    part = column.parts.get("keyword" if scale == "time" else scale)
    if part is None:
        return None
    if scale == "time":
        return part, times_of(part)
    return part, np.asarray(part.values, np.float64)


def largest(part: ColumnPart, values: Float64, documents: int) -> Float64:
    """Return the largest of the values that each document has, float64 (documents,); NaN for one without a value.

    Args:
        values: float64 (V,), one for each value of the dictionary, NaN for none.
    """
    # Code −1 reads the last entry.
    table = np.append(values, np.nan)
    if part.indptr is None:
        return table[part.codes]
    found = np.full(documents, np.nan)
    some = np.flatnonzero(part.has_value())
    if len(some):
        entries = table[part.codes]
        found[some] = np.fmax.reduceat(entries, part.indptr[some])
    return found


# Places: text "latitude,longitude" in degrees, which documents may also store as {"lat": 52.52, "lon": 13.405}.

_DEGREES = r"\s*([+-]?\d{1,3}(?:\.\d*)?(?:e-\d+)?)\s*"
_PLACE = re.compile(f"{_DEGREES},{_DEGREES}", re.ASCII)
_EARTH_KM = 6371.0088
_points: WeakKeyDictionary[ColumnPart, Float64] = WeakKeyDictionary()


class Point(NamedTuple):
    """A point on the earth, in degrees."""

    lat: float
    lon: float

    @property
    def is_on_earth(self) -> bool:
        return abs(self.lat) <= 90 and abs(self.lon) <= 180


def parse_place(text: str) -> Point | None:
    """Read a place; None for a text that is no place.

    Example:
        >>> parse_place("52.52,13.405"), parse_place("152,13")
        (Point(lat=52.52, lon=13.405), None)
    """
    found = _PLACE.fullmatch(text)
    point = Point(float(found[1]), float(found[2])) if found else None
    return point if point is not None and point.is_on_earth else None


def distances_of(part: ColumnPart, point: Point) -> Float64:
    """Return the distance of each value of a text part from a point, in km along the surface, float64 (V,), NaN for a
    text that is no place.
    """
    points = _points.get(part)
    if points is None:
        found = (parse_place(text) or (np.nan, np.nan) for text in part.values)
        points = np.radians(np.array([*found], np.float64).reshape(-1, 2))
        _points[part] = points
    lat, lon = np.radians(point)
    # The haversine formula, which is exact for small distances.
    across = np.sin((points - (lat, lon)) / 2) ** 2
    half = across[:, 0] + np.cos(points[:, 0]) * np.cos(lat) * across[:, 1]
    return np.asarray(2 * _EARTH_KM * np.arcsin(np.sqrt(np.minimum(half, 1.0))))


# Columns: the values of each stored field as codes into a sorted dictionary.
#
# A field has up to three parts, one for each kind of value in it. Kinds are never mixed: 5, "5" and true are three
# different values.
#
#     boolean   false, true
#     number    float64, finite
#     keyword   text of at most 256 bytes, ordered by code point
#
# Code c stands for the c-th smallest value of its part. A condition on values (equal to, one of, between) is
# therefore a few ranges of codes, evaluated by comparing small integers; counting values is counting codes.
#
#     one value a document    codes (n,), −1 where the document has none
#     lists                   indptr int64 (n + 1,), codes (entries,): document i has the distinct, ascending codes
#                             codes[indptr[i]:indptr[i + 1]]
#
# Codes are int8, int16 or int32: the smallest type that fits their part's values.

Codes = npt.NDArray[np.signedinteger[Any]]

Kind = Literal["boolean", "number", "keyword"]
KINDS: tuple[Kind, ...] = ("boolean", "number", "keyword")
KIND_NAMES: dict[Kind, str] = {"boolean": "true or false", "number": "numbers", "keyword": "text"}
BOOLEANS = (False, True)
BELOW = " > "
"""Stands between the levels of a path: "Cameras > Digital > Compact"."""

# Each comparison reads all codes, so many ranges are faster with one lookup in a table of wanted codes.
_MAX_COMPARED_RANGES = 8


@dataclass(frozen=True, eq=False)
class ColumnPart:
    """The values of one kind in one field.

    Attributes:
        values: Ascending and distinct: (False, True), float64 (V,) or a string table.
        codes: (n,), −1 for no value; (entries,) if indptr is set.
        indptr: int64 (n + 1,) if a document may have several values; else None.
    """

    values: Sequence[Any] | Float64 | StringTable
    codes: Codes
    indptr: Int64 | None = None

    def codes_of(self, value: bool | float | str) -> range:
        """Return the code of a value of this part's kind, as a range that is empty for an unknown value."""
        return self.codes_between(value, value)

    def codes_between(
        self,
        lower: bool | float | str | None,
        upper: bool | float | str | None,
        *,
        exclude_lower: bool = False,
        exclude_upper: bool = False,
    ) -> range:
        """Return the codes of the values from lower to upper."""
        values: Any = self.values
        first = (
            0 if lower is None else (bisect_right if exclude_lower else bisect_left)(values, lower)
        )
        stop = (
            len(values)
            if upper is None
            else (bisect_left if exclude_upper else bisect_right)(values, upper)
        )
        return range(first, max(first, stop))

    def codes_under(self, path: str) -> Sequence[range]:
        """Return the codes of a path, as "a > b", and of the longer paths that begin with it."""
        first = path + BELOW
        # With the next character at its end, the text comes after all that begin with `first`.
        after = first[:-1] + chr(ord(first[-1]) + 1)
        return [self.codes_of(path), self.codes_between(first, after, exclude_upper=True)]

    def documents_with(self, spans: Sequence[range]) -> Mask:
        """Return bool (n,): the documents with a value whose code lies in one of the ranges."""
        return self._documents(self._entries_in([span for span in spans if span]))

    def documents_where(self, wanted: Mask) -> Mask:
        """Return bool (n,): the documents with a wanted value; wanted: bool (V,)."""
        return self._documents(np.append(wanted, False)[self.codes])  # code −1 reads the last entry

    def _documents(self, hits: Mask) -> Mask:
        """Return bool (n,): the documents of which an entry is a hit."""
        if self.indptr is None:
            return hits
        # Matching entries before each document's first: the count grows at a document with a match.
        before = np.zeros(len(hits) + 1, np.int64)
        np.cumsum(hits, out=before[1:])
        before = before[self.indptr]
        return np.asarray(before[1:] > before[:-1])

    def has_value(self) -> Mask:
        """Return bool (n,): the documents with any value of this kind."""
        if self.indptr is None:
            return np.asarray(self.codes >= 0)
        return np.asarray(self.indptr[1:] > self.indptr[:-1])

    def counts(self, matching: Mask) -> Int64:
        """Return int64 (V,): the number of matching documents with each value."""
        if self.indptr is None:
            codes = self.codes[matching]
            codes = codes[codes >= 0]
        else:
            codes = self.codes[np.repeat(matching, np.diff(self.indptr))]
        return np.bincount(codes, minlength=len(self.values)).astype(np.int64, copy=False)

    def _entries_in(self, spans: Sequence[range]) -> Mask:
        """Return, for every entry of codes, whether it lies in one of the ranges."""
        codes = self.codes
        if len(spans) > _MAX_COMPARED_RANGES:
            # Code −1 reads the last entry: one entry more than there are values stays False.
            wanted = np.zeros(len(self.values) + 1, np.bool_)
            for span in spans:
                wanted[span.start : span.stop] = True
            return wanted[codes]
        hits = np.zeros(len(codes), np.bool_)
        for span in spans:
            # The last code of a range fits the dtype of the codes; the end after it may not.
            if len(span) == 1:
                hits |= codes == span.start
            else:
                hits |= (codes >= span.start) & (codes <= span.stop - 1)
        return hits


@dataclass(frozen=True, eq=False)
class Column:
    """One field of n documents.

    Attributes:
        kinds_elsewhere: Kinds of the field in the other tables of ``aligned``: conditions on them are valid.
        has_times_elsewhere: Whether another table has a time among the texts of the field.
    """

    name: str
    parts: Mapping[Kind, ColumnPart]
    documents: int
    kinds_elsewhere: frozenset[Kind] = frozenset()
    has_times_elsewhere: bool = False

    @property
    def kinds(self) -> frozenset[Kind]:
        """The kinds that conditions may ask for."""
        return self.kinds_elsewhere.union(self.parts)

    def has_value(self) -> Mask:
        """Return bool (n,): the documents with any value."""
        found = np.zeros(self.documents, np.bool_)
        for part in self.parts.values():
            found |= part.has_value()
        return found


def cut_below(column: Column, path: str) -> Column:
    """Return the paths below one path, cut one level below it, each once a document; "": all, cut to the first level.

    Example:
        >>> column = columns_of([{"kind": ["a > b > c", "a > d"]}, {"kind": "a > b"}, {"kind": "e"}])["kind"]
        >>> list(cut_below(column, "a").parts["keyword"].values), list(cut_below(column, "").parts["keyword"].values)
        (['a > b', 'a > d'], ['a', 'e'])
    """
    part = column.parts.get("keyword")
    if part is None:
        return replace(column, parts={})
    values, table = _values_below(part, path)
    codes: Codes = table[part.codes]
    indptr = part.indptr
    if indptr is not None:
        rows = np.repeat(np.arange(column.documents), np.diff(indptr))
        own = np.unique((rows * len(values) + codes)[codes >= 0])
        rows, codes = np.divmod(own, max(1, len(values)))
        indptr = np.searchsorted(rows, np.arange(column.documents + 1))
    return replace(column, parts={"keyword": ColumnPart(values, codes, indptr)})


# Parts never change, so what a path makes of a dictionary is kept until its bundle or segment is unloaded.
_below: WeakKeyDictionary[ColumnPart, dict[str, tuple[list[str], Int32]]] = WeakKeyDictionary()
_MOST_PATHS = 64


def _values_below(part: ColumnPart, path: str) -> tuple[list[str], Int32]:
    """Return the paths one level below a path, ascending, and the code of each value among them, −1 for others."""
    known = _below.setdefault(part, {})
    found = known.get(path)
    if found is None:
        span = part.codes_under(path)[1] if path else range(len(part.values))
        levels = path.count(BELOW) + 2 if path else 1
        cut = [BELOW.join(part.values[code].split(BELOW, levels)[:levels]) for code in span]
        values = sorted({*cut})
        place = {value: code for code, value in enumerate(values)}
        # Code −1 reads the last entry.
        table = np.full(len(part.values) + 1, -1, np.int32)
        table[span.start : span.stop] = [place[value] for value in cut]
        if len(known) >= _MOST_PATHS:
            known.clear()
        found = known[path] = values, table
    return found


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of n documents.

    Attributes:
        refused: Reason by field name, for fields that cannot be columns.
    """

    documents: int
    by_name: Mapping[str, Column]
    refused: Mapping[str, str]

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def __getitem__(self, name: str) -> Column:
        return self.by_name[name]


def aligned(tables: Sequence[Columns]) -> list[Columns]:
    """Give several tables the same fields, so that a condition valid for their union is valid for each.

    A field that a table lacks gets a column without values there. A field refused in one table is refused in all.
    """
    refused = {name: why for columns in tables for name, why in columns.refused.items()}
    kinds: dict[str, set[Kind]] = {}
    has_times: set[str] = set()
    for columns in tables:
        for name, column in columns.by_name.items():
            if name not in refused:
                kinds.setdefault(name, set()).update(column.parts, column.kinds_elsewhere)
                has_times.update([name] if column.has_times_elsewhere else [])
    result = []
    for columns in tables:
        by_name = {}
        for name, found_kinds in kinds.items():
            own = columns.by_name.get(name)
            parts = {} if own is None else own.parts
            by_name[name] = Column(
                name, parts, columns.documents, frozenset(found_kinds), name in has_times
            )
        result.append(Columns(columns.documents, by_name, refused))
    return result
