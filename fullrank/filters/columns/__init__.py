"""Stored fields as columns: filters and facets read these instead of JSON.

Columns, Column, ColumnPart   table.py    the coded values of a field, and which documents have which
aligned                       table.py    the same fields for several tables
ColumnsBuilder                build.py    columns from stored fields, one document after another
open_columns                  build.py    columns over mapped arrays and string tables, checked
columns_of                    build.py    columns in memory, for bundles without stored ones
"""

from fullrank.filters.columns.build import ColumnsBuilder, columns_of, open_columns
from fullrank.filters.columns.table import Column, ColumnPart, Columns, Kind, aligned

__all__ = [
    "Column",
    "ColumnPart",
    "Columns",
    "ColumnsBuilder",
    "Kind",
    "aligned",
    "columns_of",
    "open_columns",
]
