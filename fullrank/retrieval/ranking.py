"""The result of one query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float64, Int64
from fullrank.kernels.select import places_left

Mask = npt.NDArray[np.bool_]
NONE_DELETED: Mask = np.zeros(0, np.bool_)
"""For kernels, which take no None."""
# Where at most one document in so many is left, most groups of 32 have none, and a kernel finds them sooner than numpy.
_FEW_LEFT = 20


def remaining(count: int, deleted: Mask | None) -> Int64:
    """Return the rows of ``count`` documents that are not left out, ascending."""
    if deleted is None:
        return np.arange(count)
    n_left = count - int(np.count_nonzero(deleted))
    words = deleted[: count // 8 * 8].view(np.uint64)
    if n_left > count // _FEW_LEFT or not words.flags.aligned:
        return np.flatnonzero(~deleted)
    return places_left(words, deleted, n_left)


@dataclass(slots=True, eq=False)
class Ranking:
    """The result of one query, best first: score = dense + lexical + bias, all float64 (k,).

    Attributes:
        rows: int64 (k,), document rows.
        dense: u·v.
        lexical: s·t.
        bias: b.
        certified: The ranking is proven equal to that of the float64 scores of all documents.
        total: How many documents the search could have returned; a floor is not asked.
        found: How many documents reach the floor, if they were counted.
    """

    rows: Int64
    scores: Float64
    dense: Float64
    lexical: Float64
    bias: Float64
    certified: bool
    total: int
    found: int | None = None

    def take(self, places: Int64) -> Ranking:
        """Return the ranking of the documents at the given places, in the given order."""
        return replace(
            self,
            rows=self.rows[places],
            scores=self.scores[places],
            dense=self.dense[places],
            lexical=self.lexical[places],
            bias=self.bias[places],
        )

    def raised(self, lexical: Float64, bias: Float64) -> Ranking:
        """Return these documents in the same order with more added to the parts of their scores, float64 (k,) each."""
        lexical, bias = self.lexical + lexical, self.bias + bias
        return replace(self, scores=self.dense + lexical + bias, lexical=lexical, bias=bias)

    def with_others(self, others: Ranking) -> Ranking:
        """Return the ranking with documents of another one behind its own."""
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(others, name)])
            for name in ("rows", "scores", "dense", "lexical", "bias")
        }
        return replace(self, **columns)

    def places(self) -> Iterator[tuple[int, float, float, float, float]]:
        """Yield (row, score, dense, lexical, bias) of each document."""
        columns = (self.rows, self.scores, self.dense, self.lexical, self.bias)
        return zip(*(column.tolist() for column in columns), strict=True)
