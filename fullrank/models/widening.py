"""An encoded query with lexical features beside its own: of synonyms, of words that begin with its last word.

    s′_f = s_f, and where the query has no feature f, the addition of f with the largest absolute weight

u stays as it is. The new query is a query like any other: exact search over it is certified as before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from fullrank.encoding import Encoded, Float32, Int32, Int64, Rows
from fullrank.kernels.rows import widen_row
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


@dataclass(frozen=True, eq=False)
class Widened:
    """A widened query.

    Attributes:
        encoded: The query.
        find_terms: Returns `terms`; most answers need none.
    """

    encoded: Encoded
    find_terms: Callable[[], list[TermShare]] = list

    @cached_property
    def terms(self) -> list[TermShare]:
        """What each addition gave the query, for explanations."""
        return self.find_terms()


def widen(query: Encoded, additions: Sequence[Addition]) -> Widened:
    """Return a query with additions.

    Args:
        query: One query, (1, N) and (1, F).
        additions: With features below F.
    """
    if not additions:
        return Widened(query)
    features = np.concatenate([addition.indices for addition in additions])
    weights = np.concatenate([addition.weights for addition in additions])
    indices, values, gained = widen_row(*query.sparse.row(0), features, weights)
    if not len(gained):
        return Widened(query)
    row = Rows(np.array([0, len(indices)], np.int64), indices, values, query.sparse.width)
    encoded = Encoded(query.dense, row, query.bias)
    return Widened(encoded, partial(_terms, additions, features, gained, query.dense.shape[1]))


def _terms(
    additions: Sequence[Addition], features: Int32, gained: Int64, n_dense: int
) -> list[TermShare]:
    """Return the share of each addition that gave a query something.

    Args:
        additions: Of the query.
        features: Of all additions, one after another.
        gained: The places of those that the query gained, ascending by feature.
        n_dense: N.
    """
    nothing = np.zeros(n_dense, np.float32)
    found, first = [], 0
    for addition in additions:
        last = first + len(addition.indices)
        own = gained[(gained >= first) & (gained < last)]
        weights = addition.weights[own - first]
        if len(own) == 1:
            share = TermShare(addition.term, nothing, int(features[own[0]]), float(weights[0]))
            found.append(share)
        elif len(own):
            found.append(TermShare(addition.term, nothing, features[own], weights))
        first = last
    return found
