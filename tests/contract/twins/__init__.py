"""A second, plain implementation of every kind of model, in float64, that calls no product code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fullrank.models.contract import Parts
from fullrank.storage.encoding import Encoded
from tests.contract.twins import expansion, language, linear, mixed, pairs, translation

Float64 = npt.NDArray[np.float64]


class Twin(Protocol):
    """A plain implementation of a model's parts."""

    def scores(
        self, queries: Sequence[str], documents: Sequence[Mapping[str, str]]
    ) -> tuple[Float64, Float64]:
        """Return (dense, lexical) of every pair, float64 (queries, documents) each."""


TWINS: dict[str, Callable[[Parts], Twin]] = {
    "expansion": expansion.Twin,
    "language": language.Twin,
    "linear": linear.Twin,
    "mixed": lambda parts: mixed.Twin(parts, lambda part: TWINS[part.config["kind"]](part).scores),
    "pairs": pairs.Twin,
    "translation": translation.Twin,
}


def twin_of(parts: Parts, stored: Encoded, *, transductive: bool = False) -> Twin:
    """Make the twin of a model. `stored` is the corpus in the bundle, for the trained vector of each document.

    transductive  a linear model whose documents have dense vectors of their own, those that are stored
    """
    if transductive:
        return linear.TransductiveTwin(parts, stored)
    return TWINS[parts.config["kind"]](parts)
