"""Fields with values on a scale, and what to say about the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fullrank.filters.columns import Columns, Kind
from fullrank.filters.columns.table import Column
from fullrank.filters.columns.times import Scale, scale_of
from fullrank.filters.query import column_of, listed

_NAMES: dict[Kind, str] = {"boolean": "true or false", "number": "numbers", "keyword": "text"}


def columns_of_field(parts: Sequence[Columns], field: str, path: str) -> list[Column]:
    """Return the column of a field in each part. Raises FilterError for an unknown field."""
    return [column_of(columns, field, path) for columns in parts]


def kinds_of(columns: Sequence[Column]) -> str:
    """Name the kinds of values of a field."""
    kinds = {kind for column in columns for kind in column.kinds}
    return " and ".join(name for kind, name in _NAMES.items() if kind in kinds) or "no values"


def usable_fields(parts: Sequence[Columns], scales: Collection[Scale]) -> str:
    """List the fields whose values are on some scales."""
    names = [
        name
        for name in parts[0].by_name
        if scale_of([columns[name] for columns in parts]) in scales
    ]
    return listed(names) or "none of this model"
