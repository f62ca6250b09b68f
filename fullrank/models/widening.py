"""An encoded query with lexical features beside its own: of synonyms, of words that begin with its last word.

    s′_f = s_f, and where the query has no feature f, the addition of f with the largest absolute weight

u stays as it is. The new query is a query like any other: exact search over it is certified as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from fullrank.kernels.rows import widen_row
from fullrank.retrieval.scoring import TermShare
from fullrank.storage.encoding import Encoded, Float32, Int32, Int64, Rows


class Addition(NamedTuple):
    """Lexical features that a query may gain, int32 (m,), and their weights; `term` names what has them."""

    term: str
    indices: Int32
    weights: Float32


@dataclass(frozen=True, slots=True)
class Additions:
    """Additions one after another: the features of term i are those from bounds[i] to bounds[i + 1]."""

    terms: tuple[str, ...]
    bounds: tuple[int, ...]
    indices: Int32
    weights: Float32

    @staticmethod
    def of(additions: Iterable[Addition]) -> Additions:
        several = list(additions)
        if not several:
            return NO_ADDITIONS
        return Additions(
            tuple(one.term for one in several),
            tuple(accumulate((len(one.indices) for one in several), initial=0)),
            np.concatenate([one.indices for one in several]),
            np.concatenate([one.weights for one in several]),
        )

    def __len__(self) -> int:
        return len(self.terms)

    def __iter__(self) -> Iterator[Addition]:
        for term, (first, last) in zip(self.terms, pairwise(self.bounds), strict=True):
            yield Addition(term, self.indices[first:last], self.weights[first:last])

    def __add__(self, other: Additions) -> Additions:
        """Put the additions of another one behind these."""
        if not self.terms or not other.terms:
            return self if self.terms else other
        return Additions.of([*self, *other])


NO_ADDITIONS = Additions((), (0,), np.zeros(0, np.int32), np.zeros(0, np.float32))


class Widened(NamedTuple):
    """A widened query; ``find_terms`` says what each addition gave it, for explanations."""

    encoded: Encoded
    find_terms: Callable[[], list[TermShare]] = list


def widen(query: Encoded, additions: Additions) -> Widened:
    """Return one query with additions, whose features are below its width F."""
    if not additions:
        return Widened(query)
    sparse = query.sparse
    row = widen_row(sparse.indices, sparse.values, additions.indices, additions.weights)
    indices, values, gained = row
    if not len(gained):
        return Widened(query)
    rows = Rows(np.array([0, len(indices)], np.int64), indices, values, sparse.width)
    encoded = Encoded(query.dense, rows, query.bias)
    return Widened(encoded, partial(_terms, additions, gained, query.dense.shape[1]))


def _terms(additions: Additions, gained: Int64, n_dense: int) -> list[TermShare]:
    """Return the share of each addition that gave a query something; gained: places of its features, ascending."""
    nothing = np.zeros(n_dense, np.float32)
    found: list[TermShare] = []
    for term, (first, last) in zip(additions.terms, pairwise(additions.bounds), strict=True):
        own = gained[(gained >= first) & (gained < last)]
        features, weights = additions.indices[own], additions.weights[own]
        if len(own) == 1:
            found.append(TermShare(term, nothing, int(features[0]), float(weights[0])))
        elif len(own):
            found.append(TermShare(term, nothing, features, weights))
    return found


def shares_of(terms: Sequence[str], sparse: Rows, share: float) -> Additions:
    """Return a share of the sparse part of B encoded texts as additions, each named by a term."""
    return Additions(
        tuple(terms),
        tuple(sparse.indptr.tolist()),
        sparse.indices,
        np.float32(share) * sparse.values,
    )
