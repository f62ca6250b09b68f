"""The order of documents by fields.

A field has numbers, true and false, or times. Of several values of a document the smallest counts in ascending order,
the largest in descending order. Documents without a value come last in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.encoding import Float64, Int64
from fullrank.errors import FilterError
from fullrank.filters.columns import Columns
from fullrank.filters.columns.times import dictionary, largest, scale_of
from fullrank.filters.fields import columns_of_field, kinds_of, usable_fields

MAX_KEYS = 4


@dataclass(frozen=True, slots=True)
class SortKey:
    """A field to order by."""

    field: str
    is_descending: bool = False


def sort_values(
    parts: Sequence[Columns], keys: Sequence[SortKey], path: str = "sort"
) -> list[Float64]:
    """Return the sort values of the documents of several parts.

    Args:
        parts: The columns of each part, as ``aligned`` returns them.
        keys: The fields, the most important one first.
        path: Place of the keys in the request, for errors.

    Returns:
        For each part float64 (keys, documents): the smallest come first, infinity is missing.

    Raises:
        FilterError: A field is unknown or has no order.
    """
    found = [np.empty((len(keys), columns.documents)) for columns in parts]
    for i, key in enumerate(keys):
        here = f"{path}.{i}.field"
        columns = columns_of_field(parts, key.field, here)
        scale = scale_of(columns)
        if scale is None:
            known = usable_fields(parts, ("number", "boolean", "time"))
            raise FilterError(
                here,
                f"this field has {kinds_of(columns)}, which is not sorted; fields to sort by: {known}",
            )
        sign = 1.0 if key.is_descending else -1.0
        for rows, column in zip(found, columns, strict=True):
            own = dictionary(column, scale)
            if own is None:
                rows[i] = np.inf
            else:
                part, values = own
                rows[i] = -largest(part, sign * values, column.documents)
    for rows in found:
        rows[np.isnan(rows)] = np.inf
    return found


def first_rows(values: Float64, rows: Int64, count: int) -> Int64:
    """Return the first `count` of some rows in the order of their values, ties by row.

    Args:
        values: float64 (keys, n).
        rows: int64, ascending.
        count: At least 1.
    """
    if len(rows) > count:
        first = values[0, rows]
        # Only these can be among the first.
        rows = rows[first <= np.partition(first, count - 1)[count - 1]]
    order = np.lexsort((rows, *values[::-1, rows]))
    return rows[order[:count]]
