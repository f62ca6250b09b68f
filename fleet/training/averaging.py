"""Average what slices learned in one round from the same start.

    x ← x₀ + (1/|S|) Σ_{i∈S} (xᵢ − x₀) = (1/|S|) Σ_{i∈S} xᵢ          S: the slices that changed the row

Slices that did not touch a word say nothing about it, so they do not count: what one slice learned of a rare word
stays whole. Sums run in the order of the slices in float64, so the result has the same bits on any machines, and that
of one slice is the slice's own. AdaGrad's sums of squares are averaged alike ("mean", local AdaGrad as in arXiv
1911.09030), or added up as if one machine had taken all steps ("sum"): s ← s₀ + Σ (sᵢ − s₀).

Under the softmax loss D_f = e^{a_f} M_f (trainer.systems.linear.softmax), and each step changes all of D_f by its
factor. Factor and entries are averaged apart: a ← mean aᵢ, and M_fw over the slices that changed s_fw, which is the sum
of squares of the entry:

    D_fw ← (1/|S|) Σ_{i∈S} e^{a − aᵢ} Dᵢ_fw                           S: all slices, if none changed s_fw
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float64, Int64

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
Squares = Literal["mean", "sum"]

_D, _LOG_FACTORS, _SQUARES_D = "now.D", "state.scale", "state.squares_D"
# Rows of the others are words, documents or inputs of a layer.
_BY_ENTRY = (_D, _SQUARES_D)
# The rest of a learner's state is sums of squares.
_PLAIN_STATE = ("state.start", _LOG_FACTORS, "state.rate")


def changes(before: Arrays, after: Arrays) -> dict[str, Array]:
    """Return what a slice changed.

    Args:
        before: The arrays at the start of the round.
        after: Those at its end: parameters with the prefix "now.", the rest with "state.".

    Returns:
        Two arrays for each: the changed rows, "<name>.rows", and their values, "<name>.values". Factors and the
        diagonals that they belong to are whole, because other slices may change the factors.
    """
    whole = (_D, _LOG_FACTORS) if _LOG_FACTORS in after else ()
    found: dict[str, Array] = {}
    for name, array in after.items():
        flat = _rows_of(name, array)
        start = _rows_of(name, before[name])
        rows = np.arange(len(flat)) if name in whole else changed_rows(start, flat)
        found[f"{name}.rows"], found[f"{name}.values"] = rows, flat[rows]
    return found


def changed_rows(before: Array, after: Array) -> Int64:
    """Return the rows of an array in which any bit differs, ascending; of one dimension, its entries."""
    bits = f"u{before.itemsize}"
    differs = before.view(bits) != after.view(bits)
    return np.flatnonzero(differs.any(axis=tuple(range(1, differs.ndim))))


def average(arrays: Arrays, slices: Sequence[Arrays], squares: Squares) -> None:
    """Change the arrays at the start of a round, in place, to those of all slices together.

    Args:
        arrays: As the learner has them.
        slices: What each slice changed, in their order, at least one (``changes``).
        squares: How AdaGrad's sums of squares are combined.
    """
    for name, array in arrays.items():
        if name == _D and _LOG_FACTORS in arrays:
            continue  # The factors must be averaged before.
        flat = _rows_of(name, array)
        total = _Total.of(flat)
        for found in slices:
            total.add(found[f"{name}.rows"], found[f"{name}.values"])
        is_sum = squares == "sum" and name.startswith("state.") and name not in _PLAIN_STATE
        total.write(flat, is_sum=is_sum)
    if _D in arrays and _LOG_FACTORS in arrays:
        _average_diagonals(arrays[_D], arrays[_LOG_FACTORS], slices)


def _average_diagonals(D: Array, factors: Array, slices: Sequence[Arrays]) -> None:
    """Average D in place; the log factors are averaged already."""
    flat = _rows_of(_D, D)
    changed, every = _Total.of(flat), _Total.of(flat)
    for found in slices:
        change = np.exp(factors - found[f"{_LOG_FACTORS}.values"])
        values = (found[f"{_D}.values"].reshape(D.shape) * change[:, None]).reshape(-1)
        rows = found[f"{_SQUARES_D}.rows"]
        changed.add(rows, values[rows])
        every.add(found[f"{_D}.rows"], values)
    every.write(flat)
    changed.write(flat)


@dataclass(frozen=True, eq=False)
class _Total:
    """Sums of rows in float64, and how many were added to each."""

    sums: Float64
    counts: Int64

    @classmethod
    def of(cls, array: Array) -> _Total:
        """Return an empty one for an array of rows."""
        # -0.0 is the sum of nothing that keeps the bits of what is added, also those of -0.0.
        return cls(np.full(array.shape, -0.0), np.zeros(len(array), np.int64))

    def add(self, rows: Int64, values: Array) -> None:
        """Add one slice, whose rows are distinct."""
        self.sums[rows] += values
        self.counts[rows] += 1

    def write(self, array: Array, *, is_sum: bool = False) -> None:
        """Set the rows that slices changed to their mean, or to the start plus the sum of the differences to it."""
        rows = np.flatnonzero(self.counts)
        counts = self.counts[rows].reshape(-1, *(1,) * (array.ndim - 1))
        if is_sum:
            # Equal to s₀ + Σ (sᵢ − s₀), in a form that is exact for one slice.
            array[rows] = self.sums[rows] - (counts - 1) * array[rows].astype(np.float64)
        else:
            array[rows] = self.sums[rows] / counts


def _rows_of(name: str, array: Array) -> Array:
    """Return the view of an array whose rows are averaged apart."""
    return array.reshape(-1) if name in _BY_ENTRY else array
