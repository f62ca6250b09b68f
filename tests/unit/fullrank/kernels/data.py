"""Random inputs of kernels."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fullrank.kernels.index import (
    STORED,
    Cells,
    CodedQuery,
    Codes,
    Outline,
    Postings,
    Shortlists,
    Tables,
    read_only,
)
from fullrank.kernels.products import in_groups
from fullrank.storage.encoding import Rows

SEEDS = st.integers(0, 2**32 - 1)
CELLS = {name.partition(".")[2]: dtype for name, (dtype, _) in STORED[Cells].items()}


def random_rows(
    rng: np.random.Generator, count: int, width: int, shares: tuple[float, ...] = (0, 0.1, 0.9)
) -> Rows:
    """Draw sparse rows, some of them empty."""
    taken = rng.random((count, width)) < rng.choice(shares, size=(count, 1))
    indptr = np.concatenate([[0], np.cumsum(taken.sum(axis=1))]).astype(np.int64)
    indices = np.nonzero(taken)[1].astype(np.int32)
    return Rows(indptr, indices, rng.normal(size=len(indices)).astype(np.float32), width)


def dense(rows: Rows) -> np.ndarray:
    """Return the matrix, float64, after checking that entries ascend inside each row."""
    found = np.zeros((len(rows), rows.width))
    for i in range(len(rows)):
        indices, values = rows.row(i)
        assert (np.diff(indices) > 0).all()
        found[i, indices] = values
    assert rows.indptr.dtype == np.int64
    assert rows.indices.dtype == np.int32
    assert rows.values.dtype == np.float32
    assert rows.indptr[-1] == len(rows.indices) == len(rows.values)
    return found


def same(a: Rows, b: Rows) -> bool:
    """Tell whether two matrices have equal bits."""
    return a.width == b.width and all(
        x.tobytes() == y.tobytes()
        for x, y in ((a.indptr, b.indptr), (a.indices, b.indices), (a.values, b.values))
    )


def random_index(rng: np.random.Generator, count: int, features: int, width: int) -> Any:
    """Draw codes, scales, bias, posting lists with impacts and limits, and an order of rows."""
    codes = rng.integers(-127, 128, (count, width)).astype(np.int8)
    lists = random_rows(rng, features, count)  # a row a word
    impacts = rng.integers(0, 256, len(lists.indices)).astype(np.uint8)
    limits = np.sort(rng.normal(size=(features, 2)).astype(np.float32), axis=1)
    scales, bias = rng.random((2, count)).astype(np.float32)
    return codes, scales, bias, lists, impacts, limits, rng.permutation(count).astype(np.int32)


def tables_of(
    codes: np.ndarray,
    scales: np.ndarray,
    bias: np.ndarray,
    lists: tuple[np.ndarray, ...],
    rows: np.ndarray,
    *,
    first: int = 0,
    rest: np.ndarray | None = None,
    cells: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Tables:
    """Make an index of codes, of posting lists (indptr, slots, impacts, limits) and of an order of rows.

    The outlines are the first numbers of the codes, and `rest` bounds the others. All lists are read in full.
    """
    nothing = np.zeros(0, np.int32)
    lengths = scales if rest is None else rest
    none = {
        name: np.zeros((0, 0) if name == "centres" else 0, dtype) for name, dtype in CELLS.items()
    }
    short = np.zeros(len(lists[0]), np.int64), nothing, lists[2][:0], nothing
    outlines = in_groups(np.ascontiguousarray(codes[:, :first]))
    directions = np.zeros((codes.shape[1], 0), np.float32)
    parts = (
        Cells(**none | {"rows": rows, **cells}),
        Codes(codes, scales, bias, 0.0, 0.0, 0.0),
        Outline(directions, outlines, scales, lengths.astype(np.float32), 0.0, 0.0, 0.0),
        Postings(*lists),
        Shortlists(*short, scales[:0], np.zeros((len(rows), 0), np.uint8)),
    )
    return Tables(*map(read_only, parts))  # type: ignore[arg-type]


def query_of(code: np.ndarray, scale: float, first: int = 0, left: float = 0.0) -> CodedQuery:
    """Make a query of a code, whose first numbers are its outline."""
    outline = np.ascontiguousarray(code[:first])
    scale = float(np.float32(scale))
    return CodedQuery(code, scale, 0.0, outline, scale, left, 0.0, 0.0, 0.0)


def contributions(
    lists: Rows, impacts: np.ndarray, limits: np.ndarray, words: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Return Σ s_w t̂_wd of all slots, float64."""
    total = np.zeros(lists.width)
    for word, weight in zip(words.tolist(), weights.tolist(), strict=True):
        entries = slice(lists.indptr[word], lists.indptr[word + 1])
        low, high = limits[word].astype(np.float64)
        np.add.at(
            total, lists.indices[entries], weight * (low + (high - low) / 255 * impacts[entries])
        )
    return total
