"""Training the dense side of a text: a table, the layers above it, unit length; values forward, gradients back.

    a = Xᵀφ,  y = tower(a),  u = γ y / ‖y‖ where the score is a cosine               fullrank.towers

A text without known features has u = 0 and moves nothing. With no layers and no unit length this is the plain linear
table. Gradients are those of the parameters as they were at ``forward``; nothing moves before ``step``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from fullrank.encoding import Float32, Int32, Int64
from fullrank.features import Rows
from fullrank.towers import Tower
from trainer import kernels

Transposed = tuple[Int32, Int64, Int32, Float32]


@dataclass(frozen=True, eq=False)
class Tape:
    """What ``forward`` keeps for ``backward``, B texts.

    x         φ
    present   float32 (B, 1): 1 where a text has features, else 0
    h         h₁ … hₙ₊₁ (the last before its skip), each (B, Nᵢ)
    u         the result, (B, N)
    scale     float32 (B, 1): γ / ‖y‖, or 1
    """

    x: Rows
    present: Float32
    h: list[Float32]
    u: Float32
    scale: Float32


@dataclass(frozen=True, eq=False)
class Gradient:
    """∂L/∂ of one batch of one side: of a, of every weight and of every bias."""

    x: Rows
    a: Float32
    weights: list[Float32]
    biases: list[Float32]


@dataclass(eq=False)
class Encoder:
    """One side while it is trained; a tied pair of sides is one encoder.

    table    float32 (features, N₀)
    tower    the layers, their arrays changed in place
    gamma    γ; 0: no unit length
    squares, weight_squares, bias_squares   AdaGrad's sums: one per row of the table, one per entry of a layer
    """

    table: Float32
    tower: Tower = field(default_factory=Tower)
    gamma: float = 0.0
    squares: Float32 = field(default_factory=lambda: np.zeros(0, np.float32))
    weight_squares: list[Float32] = field(default_factory=list)
    bias_squares: list[Float32] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not len(self.squares):
            self.squares = np.zeros(len(self.table), np.float32)
        if not self.weight_squares:
            self.weight_squares = [np.zeros_like(w) for w in self.tower.weights]
        if not self.bias_squares:
            self.bias_squares = [np.zeros_like(b) for b in self.tower.biases]

    @property
    def width(self) -> int:
        """N."""
        return self.tower.width(self.table.shape[1])

    def forward(self, x: Rows) -> Tape:
        """u of every row of φ."""
        a = np.empty((len(x), self.table.shape[1]), np.float32)
        kernels.embed(x.indptr, x.indices, x.values, self.table, a)
        present = (np.diff(x.indptr) > 0).astype(np.float32)[:, None]
        y, h = layers(self.tower, a)
        scale = np.ones((len(x), 1), np.float32)
        if self.gamma:
            norm = np.sqrt(np.add.reduce(np.square(y), axis=1, keepdims=True))
            norm[norm == 0] = np.inf
            scale = np.asarray(self.gamma / norm, np.float32)
        return Tape(x, present, h, y * (scale * present), scale)

    def backward(self, tape: Tape, g: Float32) -> Gradient:
        """∂L/∂ of everything, given g = ∂L/∂u.

        unit length:  ∂L/∂y = γ/‖y‖ (g − û (û·g)),  û = u/γ
        layers:       ∂L/∂pᵢ = ∂L/∂hᵢ₊₁ ∘ (1 − hᵢ₊₁²)   with pᵢ = Wᵢᵀhᵢ + bᵢ, hᵢ₊₁ = tanh pᵢ
                      ∂L/∂Wᵢ = hᵢ (∂L/∂pᵢ)ᵀ,  ∂L/∂bᵢ = ∂L/∂pᵢ,  ∂L/∂hᵢ = Wᵢ ∂L/∂pᵢ     summed over texts
        """
        g = np.asarray(g * tape.present, np.float32)
        if self.gamma:
            along = np.add.reduce(tape.u * g, axis=1, keepdims=True) / np.float32(self.gamma**2)
            g = np.asarray(tape.scale * (g - tape.u * along), np.float32)
        tower = self.tower
        if not tower:
            return Gradient(tape.x, np.ascontiguousarray(g), [], [])
        weights: list[Float32] = []
        biases: list[Float32] = []
        p = g if tower.skip else g * (1 - np.square(tape.h[-1]))
        for weight, h in zip(reversed(tower.weights), reversed(tape.h[:-1]), strict=True):
            weights.append(h.T @ p)
            biases.append(p.sum(axis=0))
            p = (p @ weight.T) * (1 - np.square(h))
        biases.append(p.sum(axis=0))
        a = p + g if tower.skip else p
        return Gradient(tape.x, np.ascontiguousarray(a), weights[::-1], biases[::-1])

    def step(self, gradients: list[Gradient], rate: float, layer_rate: float) -> None:
        """AdaGrad: every touched row of the table by ``rate``, every entry of the layers by ``layer_rate``.

        gradients   of this step: one, or two where both sides share the encoder; layers take one
                    step on their sum, the table one on each
        """
        for gradient in gradients:
            kernels.adagrad_table(
                *transpose(gradient.x), gradient.a, self.table, self.squares, rate
            )
        pairs = [
            (self.tower.weights, self.weight_squares, [g.weights for g in gradients]),
            (self.tower.biases, self.bias_squares, [g.biases for g in gradients]),
        ]
        for arrays, squares, found in pairs:
            for i, (array, total) in enumerate(zip(arrays, squares, strict=True)):
                adagrad(array, total, sum(g[i] for g in found[1:]) + found[0][i], layer_rate)

    def arrays(self) -> Iterator[tuple[str, Float32]]:
        """What is learned, live, each under its name: table, W1, …, b0, …"""
        yield "table", self.table
        for i, weight in enumerate(self.tower.weights):
            yield f"W{i + 1}", weight
        for i, bias in enumerate(self.tower.biases):
            yield f"b{i}", bias

    def sums(self) -> Iterator[tuple[str, Float32]]:
        """AdaGrad's sums, live, under the names of what they belong to."""
        yield "table", self.squares
        for i, total in enumerate(self.weight_squares):
            yield f"W{i + 1}", total
        for i, total in enumerate(self.bias_squares):
            yield f"b{i}", total


def layers(tower: Tower, a: Float32) -> tuple[Float32, list[Float32]]:
    """(y, [h₁, …]) of a batch by matrix products: the values of ``Tower.apply`` up to rounding."""
    if not tower:
        return a, []
    h = [np.tanh(a + tower.biases[0])]
    last = len(tower.weights) - 1
    for i, (weight, bias) in enumerate(zip(tower.weights, tower.biases[1:], strict=True)):
        p = h[-1] @ weight + bias
        h.append(p if tower.skip and i == last else np.tanh(p))
    return (a + h[-1] if tower.skip else h[-1]), h


def adagrad(array: Float32, squares: Float32, gradient: Float32, rate: float) -> None:
    """h ← h + g²,  θ ← θ − rate · g / √h, entry by entry."""
    squares += gradient * gradient
    array -= np.float32(rate) * gradient / np.sqrt(squares + np.float32(1e-20))


def transpose(rows: Rows) -> Transposed:
    """(touched columns, indptr, rows, values): a batch by feature, only features that occur."""
    by_column = rows.csr().tocsc()
    touched = np.flatnonzero(np.diff(by_column.indptr))
    indptr = np.append(by_column.indptr[touched], by_column.indptr[-1]).astype(np.int64)
    return (
        touched.astype(np.int32),
        indptr,
        by_column.indices.astype(np.int32),
        by_column.data.astype(np.float32),
    )


def start_tower(sizes: tuple[int, ...], skip: bool, rng: np.random.Generator) -> Tower:
    """Layers as wide as ``sizes``, the table's width first: uniform(±√(6/(in + out))), biases 0 (Glorot, Bengio 2010).

    With ``skip`` the last layer starts at 0, so that training starts from the table alone.
    """
    if not sizes:
        return Tower()
    weights = []
    for before, after in pairwise(sizes):
        bound = np.sqrt(6 / (before + after))
        weights.append(rng.uniform(-bound, bound, (before, after)).astype(np.float32))
    if skip:
        weights[-1][:] = 0
    return Tower(weights, [np.zeros(size, np.float32) for size in sizes], skip)
