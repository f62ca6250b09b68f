"""An encoded query with lexical features beside its own: of synonyms, of words that begin with its last word.

    s′_f = s_f, and where the query has no feature f, the addition of f with the largest absolute weight

u stays as it is. The new query is a query like any other: exact search over it is certified as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fullrank.encoding import Encoded, Float32, Int32, Rows
from fullrank.scoring import TermShare


@dataclass(frozen=True, slots=True)
class Addition:
    """Lexical features that a query may gain.

    Attributes:
        term: What has them, for explanations.
        indices: int32 (m,).
        weights: float32 (m,).
    """

    term: str
    indices: Int32
    weights: Float32


@dataclass(frozen=True, slots=True)
class Widened:
    """A widened query.

    Attributes:
        encoded: The query.
        terms: What each addition gave it, for explanations.
    """

    encoded: Encoded
    terms: list[TermShare]


def widen(query: Encoded, additions: Sequence[Addition]) -> Widened:
    """Return a query with additions.

    Args:
        query: One query, (1, N) and (1, F).
        additions: With features below F.
    """
    if not additions:
        return Widened(query, [])
    indices, values = query.sparse.row(0)
    own = set(indices.tolist())
    gained: dict[int, tuple[float, int]] = {}
    for number, addition in enumerate(additions):
        pairs = zip(addition.indices.tolist(), addition.weights.tolist(), strict=True)
        for feature, weight in pairs:
            if feature not in own and abs(weight) > abs(gained.get(feature, (0.0, 0))[0]):
                gained[feature] = weight, number
    if not gained:
        return Widened(query, [])
    weights = [weight for weight, _ in gained.values()]
    row = [*indices.tolist(), *gained], [*values.tolist(), *weights]
    widened = replace(query, sparse=Rows.from_lists([row], query.sparse.width))
    nothing = np.zeros(query.dense.shape[1], np.float32)
    terms = []
    for number, addition in enumerate(additions):
        features = sorted(f for f, (_, by) in gained.items() if by == number)
        own_weights = np.array([gained[f][0] for f in features], np.float32)
        if len(features) == 1:
            terms.append(TermShare(addition.term, nothing, features[0], float(own_weights[0])))
        elif features:
            terms.append(
                TermShare(addition.term, nothing, np.array(features, np.int32), own_weights)
            )
    return Widened(widened, terms)
