"""Split s·t by word of the document: s_w t_w."""

from __future__ import annotations

from collections.abc import Container, Sequence

import numpy as np

from fullrank.encoding import Encoded, Float64, Mask


def are_in(words: Sequence[str], asked: Container[str]) -> Mask:
    """Return bool (W,): which of W words are among those asked for."""
    return np.fromiter((word in asked for word in words), np.bool_, len(words))


def lexical_shares(features: np.ndarray, query: Encoded, encoded: Encoded) -> Float64:
    """Return s_f t_f of the feature f of each of W words in B documents, float64 (B, W).

    Args:
        features: int32 (W,), -1 for a word without one.
        query: One query.
        encoded: The B documents.
    """
    found = np.zeros((len(encoded), len(features)))
    indices, weights = query.sparse.row(0)
    if not len(indices):
        return found
    at = np.minimum(np.searchsorted(indices, features), len(indices) - 1)
    asked = np.flatnonzero(indices[at] == features)
    # The entries of all documents by feature; several words may have one feature.
    order = np.argsort(encoded.sparse.indices, kind="stable")
    entries = encoded.sparse.indices[order]
    first = np.searchsorted(entries, features[asked])
    sizes = np.searchsorted(entries, features[asked], side="right") - first
    word = np.repeat(asked, sizes)
    before = np.cumsum(sizes) - sizes
    entry = order[np.repeat(first - before, sizes) + np.arange(len(word))]
    owner = np.searchsorted(encoded.sparse.indptr, entry, side="right") - 1
    found[owner, word] = weights[at[word]].astype(np.float64) * encoded.sparse.values[entry]
    return found
