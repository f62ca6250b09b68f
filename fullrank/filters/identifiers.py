"""Documents that a query names: by id, or by the value of a field such as sku or isbn."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

import numpy as np
import numpy.typing as npt

from fullrank.filters.columns import Columns, Kind

FIELDS = frozenset({"asin", "barcode", "ean", "gtin", "isbn", "mpn", "sku", "upc"})
# Shorter tokens, and words without a digit, are what people search for: 360, 1080p, apple.
_IDENTIFIER = re.compile(r"(?=\D*\d)\S{6,}")
MOST = 10
"""Tokens of such a query, and documents that come first."""


def spellings_of(query: str) -> list[str]:
    """Return how the identifiers that a query may consist of are written; [] for words.

    Example:
        >>> spellings_of("Ab-1234"), spellings_of("190001, 190002"), spellings_of("red apple")
        (['Ab-1234', 'AB-1234', 'ab-1234'], ['190001', '190002'], [])
    """
    tokens = query.replace(",", " ").split()
    if len(tokens) > MOST or not all(map(_IDENTIFIER.fullmatch, tokens)):
        return []
    found = [form for token in tokens for form in (token, token.upper(), token.lower())]
    return list(dict.fromkeys(found))


def named(
    spellings: Collection[str], row_of: Callable[[str], int | None], columns: Columns
) -> npt.NDArray[np.bool_]:
    """Return the documents whose id, or the value of one of ``FIELDS``, is one of some texts, bool (n,)."""
    found = np.zeros(columns.documents, np.bool_)
    found[[row for text in spellings if (row := row_of(text)) is not None]] = True
    parts = [column.parts for name, column in columns.by_name.items() if name.lower() in FIELDS]
    for text in spellings:
        values: list[tuple[Kind, str | float]] = [("keyword", text)]
        if text.isdecimal():
            values.append(("number", float(text)))
        for part, value in ((kinds.get(kind), value) for kinds in parts for kind, value in values):
            if part is not None and (codes := part.codes_of(value)):
                found |= part.documents_with([codes])
    return found
