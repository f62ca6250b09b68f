"""Choose the weight of the second table of a mixed composition on the validation split, after the fit.

f = (U F x + c U' H x)·(V F y + c V' H y) + …           c = 0: frequent words only
"""

from __future__ import annotations

import numpy as np

from fullrank.encoding import Float32
from fullrank_trainer.systems.linear.learner import LinearLearner
from fullrank_trainer.training.validation import Validation

FACTORS = (0.0, 0.25, 0.5, 0.71, 1.0, 1.41, 2.0, 4.0)


def mix(learner: LinearLearner, valid: Validation | None) -> float:
    """Scale the second table in place by the factor of ``FACTORS`` with the highest MAP.

    Args:
        learner: a finished learner.
        valid: the validation queries.

    Returns:
        The factor; the smallest of equally good ones. Without validation queries, 1.
    """
    if valid is None:
        return 1.0
    features, values = learner.features, learner.values
    parts = [values.U[features.query_composition.second_table]]
    if values.V is not values.U:
        parts.append(values.V[features.document_composition.second_table])
    fitted = [part.copy() for part in parts]
    found: list[tuple[float, float]] = []
    for factor in FACTORS:
        _scale(parts, fitted, factor)
        found.append((learner.measure(valid), factor))
    best = max(found, key=lambda one: (one[0], -one[1]))[1]
    _scale(parts, fitted, best)
    return best


def _scale(parts: list[Float32], fitted: list[Float32], factor: float) -> None:
    for part, start in zip(parts, fitted, strict=True):
        part[...] = start * np.float32(factor)
