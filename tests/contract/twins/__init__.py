"""A second, plain reading of every kind of model, in float64 and calling nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Encoded
from fullrank.model import Parts
from tests.contract.twins import expansion, language, linear, mixed, pairs, translation

Float64 = npt.NDArray[np.float64]


class Twin(Protocol):
    """What the parts of a model say, taken literally."""

    def scores(
        self, queries: Sequence[str], documents: Sequence[Mapping[str, str]]
    ) -> tuple[Float64, Float64]:
        """(learned, exact) of every pair, float64 (queries, documents) each."""


TWINS: dict[str, Callable[[Parts], Twin]] = {
    "expansion": expansion.Twin,
    "language": language.Twin,
    "linear": linear.Twin,
    "mixed": lambda parts: mixed.Twin(parts, lambda part: TWINS[part.config["kind"]](part).scores),
    "pairs": pairs.Twin,
    "translation": translation.Twin,
}


def twin_of(parts: Parts, stored: Encoded, *, transductive: bool = False) -> Twin:
    """The twin of a model. ``stored``: the corpus as the bundle holds it, for what was learned of each document.

    transductive  a linear model whose documents have dense vectors of their own, those that are stored
    """
    if transductive:
        return linear.TransductiveTwin(parts, stored)
    return TWINS[parts.config["kind"]](parts)
