"""Layers above a table: from the weighted sum of word vectors to the dense vector of a text.

    a = table · φ                                          the weighted sum, N₀ numbers
    h₁ = tanh(a + b₀),  hᵢ₊₁ = tanh(Wᵢᵀ hᵢ + bᵢ)           Huang et al. 2013, eq. 3; the word hashing is φ
    y = hₙ₊₁                                               or, with `skip`: y = a + Wₙᵀ hₙ + bₙ

With `skip`, the last layer is linear and the table's sum is added to it: a linear model plus a correction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.encoding import Float32


@dataclass(frozen=True, eq=False)
class Tower:
    """The layers of one side; a tower without layers is the identity.

    Attributes:
        weights: n arrays, float32 (Nᵢ₋₁, Nᵢ): W₁ … Wₙ.
        biases: n + 1 arrays, float32 (Nᵢ,): b₀ … bₙ; empty without layers.
        skip: Add the table's sum to the last layer; then Nₙ = N₀ and n > 0.

    Raises:
        ValueError: Shapes do not fit together.
    """

    weights: Sequence[Float32] = ()
    biases: Sequence[Float32] = ()
    skip: bool = False

    def __post_init__(self) -> None:
        if not self.biases:
            if self.weights or self.skip:
                raise ValueError("a tower without biases has no layers")
            return
        if len(self.biases) != len(self.weights) + 1:
            raise ValueError(f"{len(self.weights)} weights, {len(self.biases)} biases")
        for i, weight in enumerate(self.weights):
            if weight.shape != (len(self.biases[i]), len(self.biases[i + 1])):
                raise ValueError(f"layer {i + 1} does not fit its neighbours: {weight.shape}")
        if self.skip and (not self.weights or len(self.biases[-1]) != len(self.biases[0])):
            raise ValueError("a tower with skip ends as wide as it starts")

    def __bool__(self) -> bool:
        """Tell whether there are layers."""
        return len(self.biases) > 0

    def arrays(self) -> Iterator[tuple[str, Float32]]:
        """Yield each array with its name: W1, …, b0, …"""
        yield from ((f"W{i}", weight) for i, weight in enumerate(self.weights, 1))
        yield from ((f"b{i}", bias) for i, bias in enumerate(self.biases))

    def copy(self) -> Tower:
        """Return an independent copy."""
        return Tower([w.copy() for w in self.weights], [b.copy() for b in self.biases], self.skip)

    def width(self, table: int) -> int:
        """Return N above a table of `table` columns. Raises ValueError if the two do not fit."""
        if not self:
            return table
        if table != len(self.biases[0]):
            raise ValueError(
                f"tower.b0 has {len(self.biases[0])} numbers where the table has {table} columns"
            )
        return len(self.biases[-1])

    def apply(self, a: Float32) -> Float32:
        """Compute y of each row of a, float32 (B, N₀) → (B, N). The bits of a row depend on that row alone."""
        if not self:
            return a
        out = np.empty((len(a), len(self.biases[-1])), np.float32)
        for row, y in zip(a, out, strict=True):
            y[:] = self._one(row)
        return out

    def _one(self, a: Float32) -> Float32:
        last = len(self.weights) - 1
        h: Float32 = np.tanh(a + self.biases[0])
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases[1:], strict=True)):
            # No BLAS product: its order of additions depends on the number of rows, the threads and the machine.
            # This sum adds in the order of the rows.
            h = np.add.reduce(h[:, None] * weight, axis=0) + bias
            if not (self.skip and i == last):
                h = np.tanh(h)
        return a + h if self.skip else h
