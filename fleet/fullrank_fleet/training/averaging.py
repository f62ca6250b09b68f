"""Average what slices learned in one round from the same start.

    x ← x₀ + min(√k, 2) (x̄ − x₀),   x̄ = (1/k) Σᵢ xᵢ          over the k slices that changed the row
    s ← s̄                                                      AdaGrad's sums of squares

Slices that did not touch a word say nothing about it, so they do not count: what one slice learned of a rare word
stays whole. One machine would take the steps of all k slices in turn. AdaGrad's steps get shorter with the root of
their number, so it would go √k times as far as one slice; the mean alone goes as far as one slice, and a model that is
averaged in this way learns more slowly. With the mean of the sums of squares the same holds in later rounds: the
steps of a slice are √k times as long as with the sum, and one machine would take k times as many. Where slices move in
different directions, √k times their mean is no longer than the step of one of them. But one machine would see after
each step how far it came: with 16 slices, 4 times the mean went past the goal in the first rounds, so 2 is the limit.

Local AdaGrad with the plain mean ("mean" for ``steps``) is in arXiv 1911.09030; docs/results/speed.md compares both,
and the mean of the squares with their sum, s ← s₀ + Σᵢ (sᵢ − s₀).

Other ways to train embeddings on several machines, which were not compared: arXiv 1604.04661 (word2vec on several
nodes), 2003.03477 (ShadowSync: parameters are synchronized in the background), 2508.03854 (embedding tables divided in
two dimensions, with a scaled row-wise AdaGrad).

Sums run in the order of the slices in float64, so the result has the same bits on any machines, and that of one slice
is the slice's own.

Under the softmax loss D_f = e^{a_f} M_f (fullrank_trainer.systems.linear.softmax), and each step changes all of D_f by
its factor. The log factor a is averaged as any parameter. M_fw is averaged over the slices that changed its sum of
squares; if none did, D_fw only follows the factor:

    Dᵢ_fw → e^{a − aᵢ} Dᵢ_fw,   D₀_fw → e^{a − a₀} D₀_fw
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fullrank.storage.encoding import Float64, Int64

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
Squares = Literal["mean", "sum"]
Steps = Literal["mean", "root"]

_FURTHEST = 2.0
_D, _LOG_FACTORS, _SQUARES_D = "now.D", "state.scale", "state.squares_D"
# Rows of the others are words, documents or inputs of a layer.
_BY_ENTRY = (_D, _SQUARES_D)
# The rest of a learner's state is sums of squares.
_PLAIN_STATE = ("state.start", _LOG_FACTORS, "state.rate")


def changes(before: Arrays, after: Arrays) -> dict[str, Array]:
    """Return what a slice changed between two states.

    Args:
        before, after: Parameters have the prefix "now.", the rest of a learner's arrays "state.".

    Returns:
        Two arrays for each: the changed rows, "<name>.rows", and their values, "<name>.values". Factors and the
            diagonals
        that they belong to are whole, because other slices may change the factors.
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


def average(
    arrays: Arrays, slices: Sequence[Arrays], squares: Squares, steps: Steps = "root"
) -> None:
    """Change the arrays at the start of a round, in place, to those of all slices together.

    Args:
        slices: What each slice changed, in their order, at least one (``changes``).
        squares: How AdaGrad's sums of squares are combined.
        steps: How far all else moves: as the mean, or √k times as far but at most 2.
    """
    factors = arrays.get(_LOG_FACTORS)
    before = None if factors is None else factors.copy()
    for name, array in arrays.items():
        if name == _D and factors is not None:
            continue  # The factors must be averaged before.
        flat = _rows_of(name, array)
        total = _Total.of(flat)
        for found in slices:
            total.add(found[f"{name}.rows"], found[f"{name}.values"])
        is_squares = name.startswith("state.") and name not in _PLAIN_STATE
        total.write(flat, flat, squares if is_squares else steps)
    if factors is not None and before is not None:
        _average_diagonals(arrays[_D], slices, before, factors, steps)


def _average_diagonals(
    D: Array, slices: Sequence[Arrays], before: Float64, factors: Float64, steps: Steps
) -> None:
    """Average D in place; before: the log factors at the start of the round, factors: those of all slices together."""
    flat = _rows_of(_D, D)
    changed, every = _Total.of(flat), _Total.of(flat)
    for found in slices:
        values = _scaled(found[f"{_D}.values"], factors - found[f"{_LOG_FACTORS}.values"])
        rows = found[f"{_SQUARES_D}.rows"]
        changed.add(rows, values[rows])
        every.add(found[f"{_D}.rows"], values)
    start = _scaled(flat, factors - before)
    # The steps of one slice have rounded factors of their own, so its bits are not those of the start times a factor.
    every.write(flat, start, "mean")
    changed.write(flat, start, steps)


def _scaled(values: Array, change: Float64) -> Float64:
    """Return diagonals, one after another, times e to the change of their log factors."""
    return (values.reshape(len(change), -1) * np.exp(change)[:, None]).reshape(-1)


@dataclass(frozen=True, eq=False)
class _Total:
    """Sums of rows in float64, and how many were added to each."""

    sums: Float64
    counts: Int64

    @classmethod
    def of(cls, array: Array) -> _Total:
        # -0.0 is the sum of nothing that keeps the bits of what is added, also those of -0.0.
        return cls(np.full(array.shape, -0.0), np.zeros(len(array), np.int64))

    def add(self, rows: Int64, values: Array) -> None:
        self.sums[rows] += values
        self.counts[rows] += 1

    def write(self, array: Array, start: Array, how: Squares | Steps) -> None:
        """Set the rows that slices changed: they move from the start as far as the mean, √k times but at most 2, or k
        times.
        """
        rows = np.flatnonzero(self.counts)
        k = self.counts[rows].reshape(-1, *(1,) * (array.ndim - 1))
        mean = self.sums[rows] / k
        times = {"mean": np.ones(k.shape), "root": np.minimum(np.sqrt(k), _FURTHEST), "sum": k}[how]
        # Equal to x₀ + times · (x̄ − x₀), in a form that is exact for one slice.
        array[rows] = mean + (times - 1) * (mean - start[rows])


def _rows_of(name: str, array: Array) -> Array:
    """Return the view of an array whose rows are averaged apart."""
    return array.reshape(-1) if name in _BY_ENTRY else array
