"""Filters: conditions on stored fields, evaluated exactly over the columns before anything is ranked.

    {"section": "net"}                          the field has this value; of a list, one value is equal to it
    {"section": {"in": ["net", "mail"]}}        one of these values
    {"year": {"gte": 1999, "lt": 2005}}         between bounds gt, gte, lt, lte: numbers, times, text by code point
    {"kind": {"under": "Cameras"}}              this path, or a longer one: "Cameras > Digital"
    {"shop": {"within": {"lat": 52.5, "lon": 13.4, "km": 5}}}     a place at most so far from a point
    {"year": {"exists": true}}                  any value; false: no value
    {"and": [f, …]}  {"or": [f, …]}  {"not": f}

Several keys in one object mean "and", so {} matches every document, as {"and": []} does; {"or": []} and {"in": []}
match none. A document without a value in a field matches no condition on it, and therefore matches its "not". Kinds are
never mixed: 5, "5" and true are three values, 5 and 5.0 are one. Fields named and, or and not cannot be filtered on.
Bounds that are days or times (fullrank.filters.columns.table) match the values that are, by time: which values match
does not depend on what other documents store.

    parse_filter(value)         JSON → a small closed tree; raises FilterError with the path of a malformed part
    matching(filter, columns)   bool (n,); raises FilterError for an unknown field or a value of another kind
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeAlias, assert_never

import numpy as np

from fullrank.errors import FilterError
from fullrank.filters.columns import Column, ColumnPart, Columns, Kind
from fullrank.filters.columns.build import MAX_INTEGER, MAX_KEYWORD_BYTES
from fullrank.filters.columns.table import (
    KIND_NAMES,
    KINDS,
    Point,
    distances_of,
    time_of,
    times_of,
)
from fullrank.storage.encoding import Mask

MAX_DEPTH = 16
MAX_CONDITIONS = 256
MAX_VALUES = 10_000
_MAX_LISTED_FIELDS = 20  # in an error on an unknown field
_BOUNDS = ("gt", "gte", "lt", "lte")
_OPERATORS = ("in", *_BOUNDS, "under", "within", "exists")

Value: TypeAlias = bool | float | str


@dataclass(frozen=True, slots=True)
class And:
    """All conditions hold; without conditions: every document."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any condition holds; without conditions: no document."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The condition does not hold."""

    part: Filter


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The field has one of these values, each with its kind."""

    field: str
    values: tuple[tuple[Kind, Value], ...]
    path: str


@dataclass(frozen=True, slots=True)
class InRange:
    """The field has a value between two bounds of one kind.

    Attributes:
        lower: None for no bound.
        upper: None for no bound.
        exclude_lower: The lower bound itself does not match.
        exclude_upper: The upper bound itself does not match.
    """

    field: str
    kind: Kind
    lower: Value | None
    upper: Value | None
    exclude_lower: bool
    exclude_upper: bool
    path: str


@dataclass(frozen=True, slots=True)
class Exists:
    """The field has a value."""

    field: str
    path: str


@dataclass(frozen=True, slots=True)
class Under:
    """The field has this path, or a longer one that begins with it."""

    field: str
    value: str
    path: str


@dataclass(frozen=True, slots=True)
class Within:
    """The field has a place at most `km` from a point."""

    field: str
    point: Point
    km: float
    path: str


Filter: TypeAlias = And | Or | Not | AnyOf | InRange | Under | Within | Exists


# -- parsing JSON ----------------------------------------------------------------------------------


def parse_filter(value: object, path: str = "filter") -> Filter:
    """Parse a filter.

    Raises:
        FilterError: The value is not a filter, is nested deeper than 16 levels, or has more than 256 conditions or
            10,000 values.

    Example:
        >>> parse_filter({"section": "net"})
        AnyOf(field='section', values=(('keyword', 'net'),), path='filter.section')
    """
    return _Parser().filter(value, path, 1)


class _Parser:
    """Parses one filter and counts conditions and values, so that its size is bounded before evaluation."""

    def __init__(self) -> None:
        self._conditions = 0
        self._values = 0

    def filter(self, value: object, path: str, depth: int) -> Filter:
        if not isinstance(value, dict):
            raise FilterError(path, "a filter must be an object")
        if depth > MAX_DEPTH:
            raise FilterError(path, f"is nested deeper than {MAX_DEPTH} levels")
        self._conditions += max(1, len(value))
        if self._conditions > MAX_CONDITIONS:
            raise FilterError(path, f"has more than {MAX_CONDITIONS} conditions")
        return _all([self._member(key, inner, path, depth) for key, inner in value.items()])

    def _member(self, name: str, value: object, path: str, depth: int) -> Filter:
        if len(_text(name, path)) > MAX_KEYWORD_BYTES:
            raise FilterError(path, f"field names have at most {MAX_KEYWORD_BYTES} characters")
        path = f"{path}.{name}"
        match name:
            case "and":
                return And(self._filters(value, path, depth))
            case "or":
                return Or(self._filters(value, path, depth))
            case "not":
                return Not(self.filter(value, path, depth + 1))
            case _ if isinstance(value, dict):
                return self._operators(name, value, path)
            case _:
                return AnyOf(name, (self._value(value, path),), path)

    def _filters(self, value: object, path: str, depth: int) -> tuple[Filter, ...]:
        if not isinstance(value, list):
            raise FilterError(path, "must be a list of filters")
        return tuple(self.filter(inner, f"{path}.{i}", depth + 1) for i, inner in enumerate(value))

    def _operators(self, field: str, asked: Mapping[str, object], path: str) -> Filter:
        if not asked or any(name not in _OPERATORS for name in asked):
            raise FilterError(path, f"must be a value or an object with {', '.join(_OPERATORS)}")
        parts: list[Filter] = []
        if "in" in asked:
            parts.append(self._among(field, asked["in"], f"{path}.in"))
        if "under" in asked:
            kind, value = self._value(asked["under"], f"{path}.under")
            if kind != "keyword":
                raise FilterError(f"{path}.under", "must be text, as in Cameras > Digital")
            parts.append(Under(field, str(value), path))
        if "within" in asked:
            parts.append(self._within(field, asked["within"], f"{path}.within"))
        if "exists" in asked:
            parts.append(_exists(field, asked["exists"], f"{path}.exists"))
        bounds = {name: asked[name] for name in _BOUNDS if name in asked}
        if bounds:
            parts.append(self._between(field, bounds, path))
        return _all(parts)

    def _among(self, field: str, values: object, path: str) -> Filter:
        if not isinstance(values, list):
            raise FilterError(path, "must be a list of values")
        found = (self._value(value, f"{path}.{i}") for i, value in enumerate(values))
        return AnyOf(field, tuple(found), path)

    def _within(self, field: str, asked: object, path: str) -> Filter:
        if not isinstance(asked, dict) or asked.keys() != {"lat", "lon", "km"}:
            raise FilterError(path, "must be an object with lat, lon and km")
        numbers = []
        for name in ("lat", "lon", "km"):
            kind, value = self._value(asked[name], f"{path}.{name}")
            if kind != "number":
                raise FilterError(f"{path}.{name}", "must be a number")
            numbers.append(float(value))
        lat, lon, km = numbers
        if not (point := Point(lat, lon)).is_on_earth:
            raise FilterError(path, "lat must be between -90 and 90, lon between -180 and 180")
        if km < 0:
            raise FilterError(f"{path}.km", "must not be below 0")
        return Within(field, point, km, path)

    def _between(self, field: str, bounds: Mapping[str, object], path: str) -> Filter:
        for one, other in (("gt", "gte"), ("lt", "lte")):
            if one in bounds and other in bounds:
                raise FilterError(path, f"has both {one} and {other}; give one of them")
        kinds: set[Kind] = set()
        values: dict[str, Value] = {}
        for name, bound in bounds.items():
            kind, values[name] = self._value(bound, f"{path}.{name}")
            if kind == "boolean":
                raise FilterError(
                    f"{path}.{name}", "must be a number or text; true and false have no order"
                )
            kinds.add(kind)
        if len(kinds) > 1:
            raise FilterError(
                path, "one bound is a number, the other is text; give both of one kind"
            )
        return InRange(
            field,
            kinds.pop(),
            lower=values.get("gt", values.get("gte")),
            upper=values.get("lt", values.get("lte")),
            exclude_lower="gt" in values,
            exclude_upper="lt" in values,
            path=path,
        )

    def _value(self, value: Any, path: str) -> tuple[Kind, Value]:
        self._values += 1
        if self._values > MAX_VALUES:
            raise FilterError(path, f"the filter has more than {MAX_VALUES} values")
        match value:
            case bool():
                return "boolean", value
            case int() if abs(value) > MAX_INTEGER:
                raise FilterError(
                    path, "is an integer beyond 2^53; such integers are not stored as numbers"
                )
            case float() if not isfinite(value):
                raise FilterError(path, "must be finite")
            case int() | float():
                return "number", float(value)
            case str():
                return "keyword", _text(value, path)
            case None:
                raise FilterError(path, 'cannot be null; use {"exists": false}')
            case list():
                raise FilterError(path, 'cannot be a list; use {"in": […]}')
        raise FilterError(path, "must be text, a number, true or false")


def _all(parts: list[Filter]) -> Filter:
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _exists(field: str, value: object, path: str) -> Filter:
    if not isinstance(value, bool):
        raise FilterError(path, "must be true or false")
    return Exists(field, path) if value else Not(Exists(field, path))


def _text(text: str, path: str) -> str:
    # JSON can contain half of a surrogate pair, which UTF-8 cannot encode: no column has one.
    try:
        text.encode()
    except UnicodeEncodeError:
        raise FilterError(path, "contains half of a surrogate pair") from None
    return text


# -- evaluation ------------------------------------------------------------------------------------


def matching(condition: Filter, columns: Columns) -> Mask:
    """Evaluate a filter.

    Raises:
        FilterError: A field is unknown, cannot be a column, or has no value of the condition's kind.

    Example:
        >>> matching(parse_filter({"year": {"gte": 2000}}), columns_of([{"year": 1999}, {"year": 2001}]))
        array([False,  True])
    """
    match condition:
        case And(parts):
            found = np.ones(columns.documents, np.bool_)
            for part in parts:
                found &= matching(part, columns)
            return found
        case Or(parts):
            found = np.zeros(columns.documents, np.bool_)
            for part in parts:
                found |= matching(part, columns)
            return found
        case Not(part):
            return np.logical_not(matching(part, columns))
        case AnyOf(field, values, path):
            return _any_of(column_of(columns, field, path), values, path)
        case InRange():
            return _in_range(column_of(columns, condition.field, condition.path), condition)
        case Under(field, _, path) | Within(field, _, _, path):
            texts = _part(column_of(columns, field, path), "keyword", path)
            if texts is None:
                return np.zeros(columns.documents, np.bool_)
            if isinstance(condition, Under):
                return texts.documents_with(texts.codes_under(condition.value))
            return texts.documents_where(distances_of(texts, condition.point) <= condition.km)
        case Exists(field, path):
            return column_of(columns, field, path).has_value()
    assert_never(condition)


def column_of(columns: Columns, field: str, path: str) -> Column:
    """Return the column of a field.

    Raises:
        FilterError: The field is unknown or cannot be a column; the message says why, or names the known fields.
    """
    if field in columns:
        return columns[field]
    if field in columns.refused:
        raise FilterError(path, f"this field cannot be filtered on: {columns.refused[field]}")
    if not columns.by_name:
        raise FilterError(path, "unknown field; the documents have no fields to filter on")
    raise FilterError(path, f"unknown field; known fields: {listed(columns.by_name)}")


def listed(names: Iterable[str]) -> str:
    """List the names of fields for an error, as far as they fit."""
    known = sorted(names)
    more = len(known) - _MAX_LISTED_FIELDS
    return ", ".join(known[:_MAX_LISTED_FIELDS]) + (f" and {more} more" if more > 0 else "")


def _any_of(column: Column, values: tuple[tuple[Kind, Value], ...], path: str) -> Mask:
    found = np.zeros(column.documents, np.bool_)
    for kind in {kind for kind, _ in values}:
        part = _part(column, kind, path)
        if part is not None:
            found |= part.documents_with(
                [part.codes_of(value) for of, value in values if of == kind]
            )
    return found


def _in_range(column: Column, asked: InRange) -> Mask:
    part = _part(column, asked.kind, asked.path)
    if part is None:
        return np.zeros(column.documents, np.bool_)
    first, last = _time(asked.lower, -np.inf), _time(asked.upper, np.inf)
    if asked.kind == "keyword" and first is not None and last is not None:
        times = times_of(part)
        above = times > first if asked.exclude_lower else times >= first
        below = times < last if asked.exclude_upper else times <= last
        return part.documents_where(above & below)
    span = part.codes_between(
        asked.lower,
        asked.upper,
        exclude_lower=asked.exclude_lower,
        exclude_upper=asked.exclude_upper,
    )
    return part.documents_with([span])


def _time(bound: Value | None, default: float) -> float | None:
    """Return the time of a bound, in seconds since 1970; the default without a bound, None for another text."""
    return default if bound is None else time_of(str(bound))


def _part(column: Column, kind: Kind, path: str) -> ColumnPart | None:
    kinds = column.kinds
    if kind in kinds or not kinds:
        return column.parts.get(kind)
    found = " and ".join(KIND_NAMES[kind] for kind in KINDS if kind in kinds)
    raise FilterError(path, f"this field has {found}, not {KIND_NAMES[kind]}")


# Filters that match every document, or none, whatever the documents hold.


def constant(condition: Filter) -> bool | None:
    """Return whether a filter matches every document (True) or none (False); None: it depends on the document.

    Example:
        >>> constant(parse_filter({"or": []})), constant(parse_filter({})), constant(parse_filter({"year": 1999}))
        (False, True, None)
    """
    match condition:
        case And(parts):
            found = [constant(part) for part in parts]
            return False if False in found else (None if None in found else True)
        case Or(parts):
            found = [constant(part) for part in parts]
            return True if True in found else (None if None in found else False)
        case Not(part):
            inner = constant(part)
            return None if inner is None else not inner
        case AnyOf():
            return None if condition.values else False
        case InRange():
            return False if _is_empty(condition) else None
        case Under() | Within() | Exists():
            return None


def _is_empty(condition: InRange) -> bool:
    lower, upper = condition.lower, condition.upper
    if isinstance(lower, str) and isinstance(upper, str):
        begins, ends = time_of(lower), time_of(upper)
        if begins is None or ends is None:
            is_above, is_equal = lower > upper, lower == upper
        else:
            is_above, is_equal = begins > ends, begins == ends
    elif lower is not None and upper is not None:
        is_above, is_equal = float(lower) > float(upper), lower == upper
    else:
        return False
    return is_above or (is_equal and (condition.exclude_lower or condition.exclude_upper))
