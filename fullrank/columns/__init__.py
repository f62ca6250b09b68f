"""Stored fields as columns: what filters and facets read in place of JSON.

Columns, Column, Part   table.py    the values of a field, coded, and which documents have which
ColumnsBuilder          build.py    from the stored fields, one document after another
build_columns           build.py    the same from their JSON lines
open_columns            stored.py   over mapped arrays and string tables, checked
aligned                 table.py    of several sets of documents: what may be asked of one may be asked of all
columns_of              stored.py   in memory, for bundles that hold no columns
"""

from fullrank.filters.columns.build import ColumnsBuilder, build_columns
from fullrank.filters.columns.stored import columns_of, open_columns
from fullrank.filters.columns.table import Column, Columns, Kind, Part, aligned

__all__ = [
    "Column",
    "Columns",
    "ColumnsBuilder",
    "Kind",
    "Part",
    "aligned",
    "build_columns",
    "columns_of",
    "open_columns",
]
