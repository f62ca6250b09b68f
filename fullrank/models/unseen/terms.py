"""The sparse features of a query's word: those of the model, then those of unknown words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fullrank.scoring import TermShare


def features_of(term: TermShare) -> list[tuple[int, float]]:
    """List the (feature, weight) pairs of a term."""
    features, weights = np.atleast_1d(term.feature), np.atleast_1d(term.weight)
    return [(f, w) for f, w in zip(features.tolist(), weights.tolist(), strict=True) if f >= 0]


def _with_features(term: TermShare, features: Sequence[tuple[int, float]]) -> TermShare:
    """Replace the sparse features of a term."""
    if len(features) < 2:
        [(feature, weight)] = features or [(-1, 0.0)]
        return term._replace(feature=feature, weight=weight)
    places, weights = zip(*features, strict=True)
    return term._replace(feature=np.array(places, np.int32), weight=np.array(weights, np.float32))


def within(term: TermShare, width: int) -> TermShare:
    """Keep the features of a term below `width`."""
    found = features_of(term)
    kept = [(feature, weight) for feature, weight in found if feature < width]
    return term if len(kept) == len(found) else _with_features(term, kept)


def with_feature(term: TermShare, feature: int, weight: float) -> TermShare:
    """Append a feature to a term."""
    return _with_features(term, [*features_of(term), (feature, weight)])
