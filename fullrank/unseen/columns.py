"""Sparse columns of known and of unseen words: side by side and apart, of texts and of terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fullrank.encoding import Encoded, Int64
from fullrank.features import Rows
from fullrank.features import beside as side_by_side
from fullrank.model import TermShare


def beside(encoded: Encoded, unseen: Rows) -> Encoded:
    """[s | s′] of each text."""
    own = Rows(encoded.indptr, encoded.indices, encoded.weights, encoded.width)
    both = side_by_side(own, unseen)
    return replace(
        encoded, indptr=both.indptr, indices=both.indices, weights=both.values, width=both.width
    )


def known(encoded: Encoded, width: int) -> Encoded:
    """The first ``width`` sparse columns alone."""
    if encoded.width == width:
        return encoded
    kept = encoded.indices < width
    return replace(
        encoded,
        indptr=_before(kept)[encoded.indptr],
        indices=encoded.indices[kept],
        weights=encoded.weights[kept],
        width=width,
    )


def beyond(texts: Encoded | Rows, width: int) -> Rows:
    """The sparse columns from ``width`` on."""
    kept = texts.indices >= width
    values = texts.weights if isinstance(texts, Encoded) else texts.values
    indices = (texts.indices[kept] - width).astype(np.int32)
    return Rows(_before(kept)[texts.indptr], indices, values[kept], texts.width - width)


def _before(kept: np.ndarray) -> Int64:
    """How many entries are kept before each, int64 (entries + 1,)."""
    counted = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(kept, out=counted[1:])
    return counted


def features_of(term: TermShare) -> list[tuple[int, float]]:
    features, weights = np.atleast_1d(term.feature), np.atleast_1d(term.weight)
    return [(f, w) for f, w in zip(features.tolist(), weights.tolist(), strict=True) if f >= 0]


def _of(term: TermShare, features: Sequence[tuple[int, float]]) -> TermShare:
    """The term with other sparse features."""
    if len(features) < 2:
        [(feature, weight)] = features or [(-1, 0.0)]
        return term._replace(feature=feature, weight=weight)
    places, weights = zip(*features, strict=True)
    return term._replace(feature=np.array(places, np.int32), weight=np.array(weights, np.float32))


def within(term: TermShare, width: int) -> TermShare:
    """The term's features below ``width`` alone."""
    found = features_of(term)
    kept = [(feature, weight) for feature, weight in found if feature < width]
    return term if len(kept) == len(found) else _of(term, kept)


def with_feature(term: TermShare, feature: int, weight: float) -> TermShare:
    """The term with one more feature behind its own."""
    return _of(term, [*features_of(term), (feature, weight)])
