"""Train one dense side: a table, the layers above it, unit length; forward values, backward gradients.

    a = Xᵀφ,  y = tower(a),  u = γ y / ‖y‖ if the score is a cosine               fullrank.models.linear.sides

A text without known features has u = 0 and no gradient. Without layers and unit length this is the plain linear table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from fullrank.models.linear.sides import Tower
from fullrank.storage.encoding import Float32, Int32, Int64, Rows
from fullrank_trainer.features.composition import Phi
from fullrank_trainer.systems.linear import kernels
from fullrank_trainer.systems.linear.batches import Scratch, by_column, number, split


@dataclass(frozen=True, eq=False)
class Tape:
    """The forward values of B texts that ``backward`` needs.

    Attributes:
        parts: the trained rows of the words that occur; None if ``x`` is over trained rows.
        x: φ, over the words that occur or over trained rows.
        present: float32 (B, 1), 1 if a text has features, else 0; None without layers and unit length, where u and the
            gradient of a text without features are zero anyway.
        h: h₁ … hₙ₊₁ (the last one before the skip connection), each (B, Nᵢ).
        scale: float32 (B, 1), γ / ‖y‖, or 1; None where ``present`` is.
        scratch: the buffers of this side; ``backward`` writes the gradients of the words there.
    """

    parts: Rows | None
    x: Rows
    present: Float32 | None
    h: list[Float32]
    u: Float32
    scale: Float32 | None
    gamma: float
    scratch: Scratch


def forward(phi: Phi, table: Float32, tower: Tower, gamma: float, scratch: Scratch) -> Tape:
    """Compute u of every row of φ. The next call overwrites the scratch, so its tape replaces this one."""
    parts, x = split(phi, scratch)
    width = table.shape[1]
    words = table
    if parts is not None:
        words = embed(parts, table, scratch.array("words", len(parts), width))
    a = embed(x, words, scratch.array("texts", len(x), width))
    if not tower and not gamma:
        return Tape(parts, x, None, [], a, None, 0.0, scratch)
    present = (np.diff(x.indptr) > 0).astype(np.float32)[:, None]
    y, h = layers(tower, a)
    scale = np.ones((len(x), 1), np.float32)
    if gamma:
        norm = np.sqrt(np.add.reduce(np.square(y), axis=1, keepdims=True))
        norm[norm == 0] = np.inf
        scale = np.asarray(gamma / norm, np.float32)
    return Tape(parts, x, present, h, y * (scale * present), scale, gamma, scratch)


def embed(x: Rows, table: Float32, out: Float32) -> Float32:
    """Write the weighted sums of the rows of a table, (len(x), N), and return them."""
    kernels.embed(x.indptr, x.indices, x.values, table, out)
    return out


def layers(tower: Tower, a: Float32) -> tuple[Float32, list[Float32]]:
    """Return (y, [h₁, …]) of a batch by matrix products; equals ``Tower.apply`` up to rounding."""
    if not tower:
        return a, []
    h = [np.tanh(a + tower.biases[0])]
    last = len(tower.weights) - 1
    for i, (weight, bias) in enumerate(zip(tower.weights, tower.biases[1:], strict=True)):
        p = h[-1] @ weight + bias
        h.append(p if tower.skip and i == last else np.tanh(p))
    return (a + h[-1] if tower.skip else h[-1]), h


@dataclass(frozen=True, eq=False)
class Gradient:
    """The gradient of one batch on one side.

    Attributes:
        x: over trained rows, of texts or of words.
        a: ∂L/∂ of the sums that x makes of the table, one a row of x.
    """

    x: Rows
    a: Float32
    weights: list[Float32]
    biases: list[Float32]
    scratch: Scratch


@dataclass(eq=False)
class Encoder:
    """One side in training; tied sides are one encoder.

    AdaGrad sums the squares of a row of the table, float32 (features,), and of each entry of a layer, weights first.
    """

    table: Float32
    tower: Tower = field(default_factory=Tower)
    squares: Float32 = field(init=False)
    sums: list[Float32] = field(init=False)

    def __post_init__(self) -> None:
        self.squares = np.zeros(len(self.table), np.float32)
        self.sums = [np.zeros_like(array) for _, array in self.tower.arrays()]

    def forward(self, phi: Phi, gamma: float, scratch: Scratch) -> Tape:
        """Compute u of every row of φ under the current parameters; the arguments are those of ``forward``."""
        return forward(phi, self.table, self.tower, gamma, scratch)

    def backward(self, tape: Tape, g: Float32) -> Gradient:
        """Compute the gradient, given g = ∂L/∂u; the parameters must not have changed since ``forward``.

        unit length:  ∂L/∂y = γ/‖y‖ (g − û (û·g)),  û = u/γ
        layers:       ∂L/∂pᵢ = ∂L/∂hᵢ₊₁ ∘ (1 − hᵢ₊₁²)   with pᵢ = Wᵢᵀhᵢ + bᵢ, hᵢ₊₁ = tanh pᵢ
                      ∂L/∂Wᵢ = hᵢ (∂L/∂pᵢ)ᵀ,  ∂L/∂bᵢ = ∂L/∂pᵢ,  ∂L/∂hᵢ = Wᵢ ∂L/∂pᵢ     summed over texts
        """
        if tape.present is None or tape.scale is None:
            return Gradient(*_of_table(tape, g), [], [], tape.scratch)
        g = np.asarray(g * tape.present, np.float32)
        if tape.gamma:
            along = np.add.reduce(tape.u * g, axis=1, keepdims=True) / np.float32(tape.gamma**2)
            g = np.asarray(tape.scale * (g - tape.u * along), np.float32)
        tower = self.tower
        if not tower:
            return Gradient(*_of_table(tape, g), [], [], tape.scratch)
        weights: list[Float32] = []
        biases: list[Float32] = []
        p = g if tower.skip else g * (1 - np.square(tape.h[-1]))
        for weight, h in zip(reversed(tower.weights), reversed(tape.h[:-1]), strict=True):
            weights.append(h.T @ p)
            biases.append(p.sum(axis=0))
            p = (p @ weight.T) * (1 - np.square(h))
        biases.append(p.sum(axis=0))
        a = p + g if tower.skip else p
        return Gradient(*_of_table(tape, a), weights[::-1], biases[::-1], tape.scratch)

    def step(self, gradients: Sequence[Gradient], rate: float, layer_rate: float) -> None:
        """Take an AdaGrad step on every touched row of the table and on every entry of the layers.

        Of two sides that share this encoder, layers take one step on the sum of the gradients, the table one on each.
        """
        for gradient in gradients:
            by_row = transpose(gradient.x, gradient.scratch)
            kernels.adagrad_table(*by_row, gradient.a, self.table, self.squares, rate)
        of_layers = [[*gradient.weights, *gradient.biases] for gradient in gradients]
        for i, (_, array) in enumerate(self.tower.arrays()):
            adagrad(array, self.sums[i], np.sum([g[i] for g in of_layers], axis=0), layer_rate)

    def state(self) -> Iterator[tuple[str, Float32]]:
        yield "table", self.squares
        for (name, _), total in zip(self.tower.arrays(), self.sums, strict=True):
            yield name, total


def _of_table(tape: Tape, a: Float32) -> tuple[Rows, Float32]:
    """Return x and a of a Gradient, given ∂L/∂ of the sum of every text: that of a word is Σ_text x_tw ∂L/∂a_t."""
    a = np.ascontiguousarray(a)
    if tape.parts is None:
        return tape.x, a
    x = tape.x
    indptr, texts, values = by_column(x, np.arange(len(x)), x.width)
    of_words = tape.scratch.array("words", x.width, a.shape[1])
    return tape.parts, embed(Rows(indptr, texts, values, len(a)), a, of_words)


def adagrad(array: Float32, squares: Float32, gradient: Float32, rate: float) -> None:
    """Take an AdaGrad step in place: h ← h + g²,  θ ← θ − rate · g / √h, entry by entry."""
    squares += gradient * gradient
    array -= np.float32(rate) * gradient / np.sqrt(squares + np.float32(1e-20))


def transpose(rows: Rows, scratch: Scratch) -> tuple[Int64, Int64, Int32, Float32]:
    """Return a batch by feature, (features that occur, indptr, rows, values)."""
    touched, places = number(rows.indices, rows.width, scratch)
    return touched, *by_column(rows, np.arange(len(rows)), len(touched), places)


def start_table(rows: int, width: int, deviation: float, rng: np.random.Generator) -> Float32:
    """Draw Normal(0, deviation²); with deviation 0, uniform(±√(6/(rows + width)))."""
    if deviation:
        table = rng.standard_normal((rows, width), np.float32)
        table *= np.float32(deviation)
        return table
    return _uniform(rows, width, rng)


def start_tower(sizes: Sequence[int], skip: bool, rng: np.random.Generator) -> Tower:
    """Draw layers of the given sizes, the table's width first: uniform(±√(6/(in + out))), biases 0.

    With ``skip`` the last layer starts at 0, so training starts from the table alone.
    """
    if not sizes:
        return Tower()
    weights = [_uniform(before, after, rng) for before, after in pairwise(sizes)]
    if skip:
        weights[-1][:] = 0
    return Tower(weights, [np.zeros(size, np.float32) for size in sizes], skip)


def _uniform(rows: int, columns: int, rng: np.random.Generator) -> Float32:
    bound = np.sqrt(6 / (rows + columns))
    return rng.uniform(-bound, bound, (rows, columns)).astype(np.float32)
