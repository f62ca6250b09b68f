"""Filters: which documents may be returned at all, decided exactly over the columns before anything is ranked.

    {"section": "net"}                          the field holds this value; of a list, one of its values is it
    {"section": {"in": ["net", "mail"]}}        ... one of these
    {"year": {"gte": 1999, "lt": 2005}}         ... between: gt, gte, lt, lte, on numbers and on text by code point
    {"year": {"exists": true}}                  ... any value at all; false: none
    {"and": [f, …]}  {"or": [f, …]}  {"not": f}

Several keys in one object mean and, so {} lets everything through, as {"and": []} does; {"or": []} and {"in": []} let
nothing through. A document without a value in a field matches no question about it, and therefore does match its
``not``. Values keep their kind: 5, "5" and true are three values, 5 and 5.0 one. Fields named and, or and not cannot be
asked about.

    parse_filter(value)         JSON → a small closed tree; what is wrong in form is said with its path
    matching(filter, columns)   bool (n,); fields that are not there, or hold other kinds, are said with their path
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeAlias, assert_never

import numpy as np

from fullrank.columns import Column, Columns, Kind, Part
from fullrank.errors import FilterError
from fullrank.filters.columns.build import LARGEST_INTEGER, MAX_BYTES
from fullrank.filters.columns.table import KINDS, Mask

MAX_DEPTH = 16
MAX_CONDITIONS = 256
MAX_VALUES = 10_000
# Fields that an error lists before it says how many more there are.
_LISTED = 20
_BOUNDS = ("gt", "gte", "lt", "lte")
_OPERATORS = ("in", *_BOUNDS, "exists")
_NAMES: dict[Kind, str] = {"boolean": "true or false", "number": "numbers", "keyword": "text"}

Value: TypeAlias = bool | float | str


@dataclass(frozen=True, slots=True)
class And:
    """All of them; of none: every document."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of them; of none: no document."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Every document but those."""

    part: Filter


@dataclass(frozen=True, slots=True)
class Among:
    """A value of the field is one of these, each with its kind."""

    field: str
    values: tuple[tuple[Kind, Value], ...]
    path: str


@dataclass(frozen=True, slots=True)
class Between:
    """A value of the field lies between the bounds, which are of one kind.

    lower, upper   None: without bound
    above, below   that bound itself is out
    """

    field: str
    kind: Kind
    lower: Value | None
    upper: Value | None
    above: bool
    below: bool
    path: str


@dataclass(frozen=True, slots=True)
class Exists:
    """The field has a value."""

    field: str
    path: str


Filter: TypeAlias = And | Or | Not | Among | Between | Exists


# -- from JSON -----------------------------------------------------------------------------------


def parse_filter(value: object, path: str = "filter") -> Filter:
    """The filter that a JSON value spells.

    path   what the value is called in errors
    Raises FilterError where it is none, nests deeper than 16, or has more than 256 conditions or 10,000 values.
    """
    return _Parser().filter(value, path, 1)


class _Parser:
    """Counts what it has seen: the size of a filter is bounded before anything is evaluated."""

    def __init__(self) -> None:
        self._conditions = 0
        self._values = 0

    def filter(self, value: object, path: str, depth: int) -> Filter:
        if not isinstance(value, dict):
            raise FilterError(path, "a filter is an object")
        if depth > MAX_DEPTH:
            raise FilterError(path, f"nests deeper than {MAX_DEPTH}")
        self._conditions += max(1, len(value))
        if self._conditions > MAX_CONDITIONS:
            raise FilterError(path, f"has more than {MAX_CONDITIONS} conditions")
        return _all([self._member(key, inner, path, depth) for key, inner in value.items()])

    def _member(self, name: str, value: object, path: str, depth: int) -> Filter:
        if len(_text(name, path)) > MAX_BYTES:
            raise FilterError(path, f"no field has a name of more than {MAX_BYTES} characters")
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
                return Among(name, (self._value(value, path),), path)

    def _filters(self, value: object, path: str, depth: int) -> tuple[Filter, ...]:
        if not isinstance(value, list):
            raise FilterError(path, "takes a list of filters")
        return tuple(self.filter(inner, f"{path}.{i}", depth + 1) for i, inner in enumerate(value))

    def _operators(self, field: str, asked: Mapping[str, object], path: str) -> Filter:
        if not asked or any(name not in _OPERATORS for name in asked):
            raise FilterError(path, f"takes a value, or an object of {', '.join(_OPERATORS)}")
        parts: list[Filter] = []
        if "in" in asked:
            parts.append(self._among(field, asked["in"], f"{path}.in"))
        if "exists" in asked:
            parts.append(_exists(field, asked["exists"], f"{path}.exists"))
        bounds = {name: asked[name] for name in _BOUNDS if name in asked}
        if bounds:
            parts.append(self._between(field, bounds, path))
        return _all(parts)

    def _among(self, field: str, values: object, path: str) -> Filter:
        if not isinstance(values, list):
            raise FilterError(path, "takes a list of values")
        found = (self._value(value, f"{path}.{i}") for i, value in enumerate(values))
        return Among(field, tuple(found), path)

    def _between(self, field: str, bounds: Mapping[str, object], path: str) -> Filter:
        for one, other in (("gt", "gte"), ("lt", "lte")):
            if one in bounds and other in bounds:
                raise FilterError(path, f"{one} and {other} exclude each other")
        kinds: set[Kind] = set()
        values: dict[str, Value] = {}
        for name, bound in bounds.items():
            kind, values[name] = self._value(bound, f"{path}.{name}")
            if kind == "boolean":
                raise FilterError(f"{path}.{name}", "true and false have no order")
            kinds.add(kind)
        if len(kinds) > 1:
            raise FilterError(path, "one bound is a number, the other text")
        return Between(
            field,
            kinds.pop(),
            lower=values.get("gt", values.get("gte")),
            upper=values.get("lt", values.get("lte")),
            above="gt" in values,
            below="lt" in values,
            path=path,
        )

    def _value(self, value: Any, path: str) -> tuple[Kind, Value]:
        self._values += 1
        if self._values > MAX_VALUES:
            raise FilterError(path, f"the filter has more than {MAX_VALUES} values")
        match value:
            case bool():
                return "boolean", value
            case int() if abs(value) > LARGEST_INTEGER:
                raise FilterError(path, "is an integer beyond 2^53")
            case float() if not isfinite(value):
                raise FilterError(path, "is not finite")
            case int() | float():
                return "number", float(value)
            case str():
                return "keyword", _text(value, path)
            case None:
                raise FilterError(path, 'null is no value; ask {"exists": false}')
            case list():
                raise FilterError(path, 'is a list; ask {"in": […]}')
        raise FilterError(path, "is no value: text, a number, true or false")


def _all(parts: list[Filter]) -> Filter:
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _exists(field: str, value: object, path: str) -> Filter:
    if not isinstance(value, bool):
        raise FilterError(path, "takes true or false")
    return Exists(field, path) if value else Not(Exists(field, path))


def _text(text: str, path: str) -> str:
    # JSON can spell half of a surrogate pair; no column holds one, and no answer could.
    try:
        text.encode()
    except UnicodeEncodeError:
        raise FilterError(path, "holds a lone surrogate") from None
    return text


# -- over the columns ----------------------------------------------------------------------------


def matching(condition: Filter, columns: Columns) -> Mask:
    """bool (n,): the documents that the filter lets through.

    Raises FilterError where a field is unknown, is no column, or holds no value of the kind that is asked for.
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
        case Among(field, values, path):
            return _among(column_of(columns, field, path), values, path)
        case Between():
            return _between(column_of(columns, condition.field, condition.path), condition)
        case Exists(field, path):
            return column_of(columns, field, path).present()
    assert_never(condition)


def column_of(columns: Columns, field: str, path: str) -> Column:
    """The column of a field. Raises FilterError, saying why the field is none or which ones there are."""
    if field in columns:
        return columns[field]
    if field in columns.refused:
        raise FilterError(path, f"this field cannot be filtered on: {columns.refused[field]}")
    names = sorted(columns.by_name)
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    listed = ", ".join(names[:_LISTED]) + more if names else "none"
    raise FilterError(path, f"no such field; there are: {listed}")


def _among(column: Column, values: tuple[tuple[Kind, Value], ...], path: str) -> Mask:
    found = np.zeros(column.documents, np.bool_)
    for kind in {kind for kind, _ in values}:
        part = _part(column, kind, path)
        if part is not None:
            found |= part.holding([part.equal(value) for of, value in values if of == kind])
    return found


def _between(column: Column, asked: Between) -> Mask:
    part = _part(column, asked.kind, asked.path)
    if part is None:
        return np.zeros(column.documents, np.bool_)
    span = part.between(asked.lower, asked.upper, above=asked.above, below=asked.below)
    return part.holding([span])


def _part(column: Column, kind: Kind, path: str) -> Part | None:
    """The values of that kind; None where no document here has one, and the field may."""
    kinds = column.parts.keys() | column.elsewhere
    if kind in kinds or not kinds:
        return column.parts.get(kind)
    held = " and ".join(_NAMES[kind] for kind in KINDS if kind in kinds)
    raise FilterError(path, f"this field holds {held}, not {_NAMES[kind]}")
