"""A mix read from the parts: the twin of each model, times its weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fullrank.model import Parts

Float64 = npt.NDArray[np.float64]
Scores = Callable[[Sequence[str], Sequence[Mapping[str, str]]], tuple[Float64, Float64]]


class Twin:
    """twin_of  makes the ``scores`` of each model's parts."""

    def __init__(self, parts: Parts, twin_of: Callable[[Parts], Scores]) -> None:
        self.weights: list[float] = parts.config["weights"]
        self.twins = []
        for number, config in enumerate(parts.config["models"]):
            arrays, strings = (
                {k.split(".", 1)[1]: v for k, v in table.items() if k.startswith(f"{number}.")}
                for table in (parts.arrays, parts.strings)
            )
            self.twins.append(twin_of(Parts(config, arrays, strings)))

    def scores(
        self, queries: Sequence[str], documents: Sequence[Mapping[str, str]]
    ) -> tuple[Float64, Float64]:
        """(learned, exact), each the weighted sum."""
        found = [scores(queries, documents) for scores in self.twins]
        learned, exact = (
            np.sum([w * part for w, part in zip(self.weights, column, strict=True)], axis=0)
            for column in zip(*found, strict=True)
        )
        return learned, exact
