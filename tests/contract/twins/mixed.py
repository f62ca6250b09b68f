"""A mix from its stored parts: the twin of each model, times its weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fullrank.models.contract import Parts

Float64 = npt.NDArray[np.float64]
Scores = Callable[[Sequence[str], Sequence[Mapping[str, str]]], tuple[Float64, Float64]]


T = TypeVar("T")


def _own(table: Mapping[str, T], number: int) -> dict[str, T]:
    """The entries of one model of the mix, under their own names."""
    start = f"{number}."
    return {name[len(start) :]: v for name, v in table.items() if name.startswith(start)}


class Twin:
    """twin_of  makes the ``scores`` of each model's parts."""

    def __init__(self, parts: Parts, twin_of: Callable[[Parts], Scores]) -> None:
        self.weights: list[float] = parts.config["weights"]
        self.twins = []
        for number, config in enumerate(parts.config["models"]):
            arrays, strings = _own(parts.arrays, number), _own(parts.strings, number)
            self.twins.append(twin_of(Parts(config, arrays, strings)))

    def scores(
        self, queries: Sequence[str], documents: Sequence[Mapping[str, str]]
    ) -> tuple[Float64, Float64]:
        """Return (dense, lexical), each the weighted sum."""
        found = [scores(queries, documents) for scores in self.twins]
        dense, lexical = (
            np.sum([w * part for w, part in zip(self.weights, column, strict=True)], axis=0)
            for column in zip(*found, strict=True)
        )
        return dense, lexical
