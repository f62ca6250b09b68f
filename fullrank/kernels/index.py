"""The parts of an index, a coded query and what a search asks for, as kernels take them.

`STORED` describes the files of each part once: numba's types, the arrays that a build creates, and the check of a
stored index follow from it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
from numba import types

from fullrank.kernels.arrays import Float32, Float64, Int8, Int32, Int64, UInt8, UInt16
from fullrank.kernels.compiler import FLOAT64, INT64, array, output

Part = TypeVar("Part", bound=tuple[Any, ...])


class Cells(NamedTuple):
    """The slots of n documents in C cells.

    Attributes:
        rows: int32 (n,), the document of each slot; within a cell by distance, descending, then ascending.
        slots: int32 (n,), the slot of each document.
        of: uint16 (n,), the cell of each slot.
        distances: uint8 (n,), ‖v − centre‖ of each slot in 255ths of the longest of its cell, rounded up.
        starts: int64 (C + 1,), the slots of cell c are starts[c]..starts[c + 1].
        centres, scales: int8 (C, N) and float32 (C,), coded as documents are.
        bias: float32 (C,), the mean b of each cell.
        longest: float32 (C,), the largest ‖v − centre‖ of each cell.
    """

    rows: Int32
    slots: Int32
    of: UInt16
    distances: UInt8
    starts: Int64
    centres: Int8
    scales: Float32
    bias: Float32
    longest: Float32

    @property
    def n_cells(self) -> int:
        """C."""
        return len(self.scales)


class Codes(NamedTuple):
    """Coded vectors, by slot.

    Attributes:
        codes: int8 (n, N).
        scales: float32 (n,).
        bias: float32 (n,), b.
        error: max_d ‖v_d − v̂_d‖, rounded up.
        length: max_d ‖v̂_d‖, rounded up.
        largest_bias: max_d |b_d|.
    """

    codes: Int8
    scales: Float32
    bias: Float32
    error: float
    length: float
    largest_bias: float


class Outline(NamedTuple):
    """Outlines of n vectors, by slot: v = B h + r.

    Attributes:
        directions: B, float32 (N, H); (N, 0) where h is v, and zeros up to a width that 4 divides.
        codes: uint8 (⌈n / 16⌉, 16 H), in the order of fullrank.kernels.products.
        scales: float32 (n,).
        rest: ‖r‖, rounded up, float32 (n,).
        error: max ‖h − ĥ‖, rounded up.
        length: max ‖ĥ‖, rounded up.
        longest: max ‖v‖, rounded up.
    """

    directions: Float32
    codes: UInt8
    scales: Float32
    rest: Float32
    error: float
    length: float
    longest: float


class Postings(NamedTuple):
    """The posting lists of F words: t̂_wd = low_w + (high_w − low_w) / 255 · impact.

    Attributes:
        limits: float32 (F, 2), low and high: the smallest and largest weight of a word.
    """

    indptr: Int64
    slots: Int32
    impacts: UInt8
    limits: Float32


class Shortlists(NamedTuple):
    """Lists by impact, descending, then by slot, and signatures by slot.

    Attributes:
        signed: int32 (m,), ascending, the words of the signatures.
        means: float32 (m,), the mean impact of each over all its documents.
        signatures: uint8 (n, ⌈m / 8⌉); bit i & 7 of byte i >> 3 says whether a document has the word signed[i].
    """

    indptr: Int64
    slots: Int32
    impacts: UInt8
    signed: Int32
    means: Float32
    signatures: UInt8


class Tables(NamedTuple):
    """The parts of an index."""

    cells: Cells
    codes: Codes
    outline: Outline
    postings: Postings
    shortlists: Shortlists


STORED: dict[type[Any], dict[str, tuple[str, str]]] = {
    Cells: {
        "cells.rows": ("int32", "n"),
        "cells.slots": ("int32", "n"),
        "cells.of": ("uint16", "n"),
        "cells.distances": ("uint8", "n"),
        "cells.starts": ("int64", "C+1"),
        "cells.centres": ("int8", "C N"),
        "cells.scales": ("float32", "C"),
        "cells.bias": ("float32", "C"),
        "cells.longest": ("float32", "C"),
    },
    Codes: {"codes": ("int8", "n N"), "scales": ("float32", "n"), "bias": ("float32", "n")},
    Outline: {
        "outline.directions": ("float32", "N D"),
        "outline.codes": ("uint8", "G 16H"),
        "outline.scales": ("float32", "n"),
        "outline.rest": ("float32", "n"),
    },
    Postings: {
        "postings.indptr": ("int64", "F+1"),
        "postings.slots": ("int32", "E"),
        "postings.impacts": ("uint8", "E"),
        "limits": ("float32", "F 2"),
    },
    Shortlists: {
        "champions.indptr": ("int64", "F+1"),
        "champions.slots": ("int32", "K"),
        "champions.impacts": ("uint8", "K"),
        "signatures.words": ("int32", "S"),
        "signatures.means": ("float32", "S"),
        "signatures": ("uint8", "n S/8"),
    },
}
"""The dtype and the shape of each file of a part, in the order of its fields. The numbers behind them are not stored
there."""


class CodedQuery(NamedTuple):
    """The codes of u, and of its outline a: u = B a + p.

    Attributes:
        code: int8 (N,).
        scale: Of the code, a float32.
        error: The largest |u·v − û·v̂| of any document; infinite where a product may overflow.
        outline: int8 (H,).
        outline_scale: Of the outline, a float32.
        left: ‖p‖, rounded up, a float32.
        outline_error: The most that u·v is above â·ĥ + ‖p‖ ‖r‖; infinite where a product may overflow.
        length: ‖u‖.
        size: The largest absolute value on the way to a product, or more.
    """

    code: Int8
    scale: float
    error: float
    outline: Int8
    outline_scale: float
    left: float
    outline_error: float
    length: float
    size: float


class Limits(NamedTuple):
    """What a search asks for. A slot has evidence if it is in the list of a feature, or u·v or s·t reaches its floor.

    Attributes:
        features: int32, the words whose documents have evidence.
        dense, lexical: The floors of u·v and of s·t; −∞ if any slot reaches it, ∞ if none does.
        wanted: k.
        least: A score that all wanted documents reach; −∞ if none is known.
    """

    features: Int32
    dense: float
    lexical: float
    wanted: int
    least: float


class Slack(NamedTuple):
    """Bounds on what the words and codes that a scan reads leave open.

        u·v ≤ â·ĥ + ‖p‖ ‖r‖ + outline_error      and      |u·v − û·v̂| ≤ error
        left_below − off ≤ s·t − Σ s_w t̂_w ≤ left_above + off

    left_below is not positive, the others are not negative.
    """

    outline_error: float
    error: float
    off: float
    left_below: float = 0.0
    left_above: float = 0.0


class Reads(NamedTuple):
    """What a fast search reads.

    Attributes:
        depth: Entries of a word of the signatures that is frequent or light; other lists are read in full.
        floor: Skip what a word contributes below this share of the largest contribution of any word.
        nprobe: How many of the nearest cells are estimated in any case.
        spread: A share of the distance, times ‖u‖.
        sparse: How many of the slots read are estimated first.
        rescored: How many candidates to return.
        rest: float64 (m,), the mean impact of each word of the signatures behind its head.
        asked: int64, slots to estimate in place of any others; empty for none.
    """

    depth: int
    floor: float
    nprobe: int
    spread: float
    sparse: int
    rescored: int
    rest: Float64
    asked: Int64


class Vector(NamedTuple):
    """One query: u, float32 (N,), and s, int32 and float32 (m,)."""

    u: Float32
    words: Int32
    weights: Float32


class Matrix(NamedTuple):
    """Encoded documents: v, float32 (n, N), t as in Rows, and b, float32 (n,)."""

    dense: Float32
    indptr: Int64
    indices: Int32
    values: Float32
    bias: Float32


def read_only(part: Part) -> Part:
    """Return a record whose arrays cannot be written: a kernel is compiled for one type of each record."""
    values = []
    for value in part:
        if isinstance(value, np.ndarray):
            value = value.view(np.ndarray)
            value.flags.writeable = False
        values.append(value)
    return type(part)(*values)


def record(kind: Any, *fields: Any) -> Any:
    """Return the type of a record in kernels; without the types of its fields they are those of its files."""
    if not fields:
        files = STORED[kind].values()
        stored = [array(dtype, len(shape.split())) for dtype, shape in files]
        fields = (*stored, *[FLOAT64] * (len(kind._fields) - len(stored)))
    make: Any = types.BaseTuple.from_types
    return make(fields, kind)


TABLES = record(Tables, *map(record, STORED))
QUERY = record(
    CodedQuery,
    output("int8"), FLOAT64, FLOAT64, output("int8"), FLOAT64, FLOAT64, FLOAT64, FLOAT64, FLOAT64,
)  # fmt: skip
LIMITS = record(Limits, output("int32"), FLOAT64, FLOAT64, INT64, FLOAT64)
SLACK = record(Slack, FLOAT64, FLOAT64, FLOAT64, FLOAT64, FLOAT64)
READS = record(
    Reads, INT64, FLOAT64, INT64, FLOAT64, INT64, INT64, output("float64"), output("int64")
)
VECTOR = record(Vector, array("float32"), array("int32"), array("float32"))
MATRIX = record(
    Matrix, array("float32", 2), array("int64"), array("int32"), array("float32"), array("float32")
)
