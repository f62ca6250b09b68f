"""Regression trees as arrays: their sum for many rows at once, and its split by feature.

A row passes a node to the left where its feature is at most the threshold. `predict` does not walk: each node that
sends a row to the right rules out the leaves to its left, and the first leaf that no node ruled out is the row's
(QuickScorer; Lucchese et al., SIGIR 2015). A tree therefore has at most 16 leaves, one bit each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.storage.checks import misfits, shape_of
from fullrank.storage.encoding import Float32, Float64

MAX_LEAVES = 16
Int16 = npt.NDArray[np.int16]
UInt16 = npt.NDArray[np.uint16]
STORED = {
    "feature": ("<i2", "T M"),
    "threshold": ("<f4", "T M"),
    "left": ("<i2", "T M"),
    "right": ("<i2", "T M"),
    "value": ("<f8", "T M"),
    "leaf": ("<f8", "T M+1"),
}


@dataclass(frozen=True, eq=False)
class Trees:
    """T trees of at most M inner nodes and M + 1 leaves.

    A child is the number of a node, or −1 − the number of a leaf; leaves are numbered from left to right. The root is
    node 0; a tree without nodes has leaf 0 alone. Unused nodes have both children −1 − 0, feature 0.

    Attributes:
        feature: int16 (T, M).
        threshold: float32 (T, M).
        left, right: int16 (T, M), children.
        value: float64 (T, M), the mean of the training rows that passed the node.
        leaf: float64 (T, M + 1).
    """

    feature: Int16
    threshold: Float32
    left: Int16
    right: Int16
    value: Float64
    leaf: Float64

    @staticmethod
    def empty() -> Trees:
        """Make no tree."""
        return Trees(**Trees.zeros(0, 0))

    @staticmethod
    def zeros(trees: int, nodes: int) -> dict[str, npt.NDArray[Any]]:
        """Make the arrays of trees to be filled."""
        sizes = {"T": trees, "M": nodes}
        return {name: np.zeros(shape_of(s, sizes), dtype) for name, (dtype, s) in STORED.items()}

    def __len__(self) -> int:
        return len(self.leaf)

    def take(self, start: int, stop: int) -> Trees:
        """Return the trees from one place up to before another."""
        return Trees(**{name: getattr(self, name)[start:stop] for name in STORED})

    @cached_property
    def base(self) -> float:
        """The sum of the roots' values: the score before any feature is known."""
        return float(np.where(self._has_nodes, self._root_values, self.leaf[:, 0]).sum())

    @cached_property
    def _has_nodes(self) -> npt.NDArray[np.bool_]:
        if not self.feature.shape[1]:
            return np.zeros(len(self), np.bool_)
        return np.asarray(self.left[:, 0] != self.right[:, 0])

    @property
    def _root_values(self) -> Float64:
        return self.value[:, 0] if self.value.shape[1] else self.leaf[:, 0]

    @cached_property
    def _ruled_out(self) -> UInt16:
        """uint16 (T, M, 1): the leaves below the left child of each node, a bit each."""
        found = np.zeros((*self.feature.shape, 1), np.uint16)
        for tree in np.flatnonzero(self._has_nodes).tolist():
            _left_leaves(self.left[tree].tolist(), self.right[tree].tolist(), 0, found[tree, :, 0])
        return found

    def predict(self, features: Float32) -> Float64:
        """Return the sum of the trees, float64 (R,), of float32 (R, K) features."""
        trees, nodes = self.feature.shape
        rows = len(features)
        if not trees or not rows:
            return np.zeros(rows)
        columns = np.ascontiguousarray(features.T)
        right = columns.take(self.feature.ravel(), axis=0) > self.threshold.reshape(-1, 1)
        # A product, because np.where takes ten times as long.
        out = right.reshape(trees, nodes, rows) * self._ruled_out
        first = np.add(_FIRST_ZERO.take(np.bitwise_or.reduce(out, axis=1)), self._starts)
        return np.asarray(np.add.reduce(self.leaf.ravel().take(first), axis=0))

    @cached_property
    def _starts(self) -> npt.NDArray[np.int32]:
        starts = np.arange(len(self), dtype=np.int32) * self.leaf.shape[1]
        return np.asarray(starts[:, None], np.int32)

    def contributions(self, features: Float32) -> Float64:
        """Split the sums by feature along each row's path (Saabas).

        A step from a node to its child changes the expected value; the change belongs to the node's feature.

        Returns:
            float64 (R, K); base + the sum of a row is `predict` of it.
        """
        rows, width = features.shape
        found = np.zeros((rows, width))
        if not rows or not len(self):
            return found
        tree = np.flatnonzero(self._has_nodes)
        row, tree = (part.ravel() for part in np.meshgrid(np.arange(rows), tree, indexing="ij"))
        node = np.zeros(len(tree), np.int64)
        while len(tree):
            feature = self.feature[tree, node]
            goes_right = features[row, feature] > self.threshold[tree, node]
            child = np.where(goes_right, self.right[tree, node], self.left[tree, node]).astype(int)
            inner = child >= 0
            after = np.where(
                inner,
                self.value[tree, np.where(inner, child, 0)],
                self.leaf[tree, np.where(inner, 0, -1 - child)],
            )
            np.add.at(found, (row, feature), after - self.value[tree, node])
            row, tree, node = row[inner], tree[inner], child[inner]
        return found

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays under the names of STORED."""
        return {name: getattr(self, name) for name in STORED}

    @staticmethod
    def from_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Trees:
        """Make trees of `arrays()`."""
        return Trees(**{name: arrays[name] for name in STORED})

    def check(self, width: int) -> None:
        """Check that every path ends in a leaf and every feature is below `width`.

        Raises:
            ValueError: The arrays are no trees.
        """
        sizes = {"T": len(self.leaf), "M": self.feature.shape[-1]}
        for name, reason in misfits(self.arrays(), STORED, sizes):
            raise ValueError(f"{name}: {reason}")
        nodes = sizes["M"]
        if nodes >= MAX_LEAVES:
            raise ValueError(f"{nodes + 1} leaves a tree, at most {MAX_LEAVES}")
        if self.feature.size and not 0 <= self.feature.min() <= self.feature.max() < width:
            raise ValueError(f"a feature is not below {width}")
        number = np.arange(nodes)
        for child in (self.left, self.right):
            # Children come after their parents, so no path returns.
            inner = child >= 0
            if np.any(inner & ((child <= number) | (child >= nodes))) or np.any(-1 - child > nodes):
                raise ValueError("a child is not a later node or a leaf")


def _left_leaves(left: list[int], right: list[int], child: int, found: UInt16) -> int:
    """Return the leaves below a child as bits; write those to the left of each node below it."""
    if child < 0:
        return 1 << (-1 - child)
    bits = _left_leaves(left, right, left[child], found)
    found[child] = bits
    return bits | _left_leaves(left, right, right[child], found)


def _first_zero() -> npt.NDArray[np.int32]:
    numbers = np.arange(1 << MAX_LEAVES, dtype=np.int64)
    lowest = ~numbers & (numbers + 1)
    found = np.log2(np.maximum(lowest, 1)).astype(np.int32)
    return np.where(found < MAX_LEAVES, found, 0).astype(np.int32)


_FIRST_ZERO = _first_zero()
