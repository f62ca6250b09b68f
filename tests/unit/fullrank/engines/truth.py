"""The scores of a bundle by brute force: dense matrices in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fullrank import Bundle
from fullrank.storage.encoding import Float64

WORDS = [f"{first}{second}" for first in ("red", "blue", "old", "small") for second in
         ("apple", "bread", "chair", "door", "eagle", "flute")]  # fmt: skip
QUERIES = (
    "redapple bluebread",
    "olddoor",
    "smallflute smallflute redchair blueeagle",
    "unknown words only",
    "",
    *(" ".join(WORDS[start : start + 5]) for start in range(0, len(WORDS), 2)),
)
Found = Sequence[tuple[str, float]]


def true_scores(bundle: Bundle, text: str) -> Float64:
    """s·t + u·v + b of every document."""
    query, stored = bundle.encode(text), bundle.encoded.whole()
    sparse = stored.sparse.csr().toarray().astype(np.float64)
    dense = stored.dense.astype(np.float64)
    lexical = sparse @ query.sparse.csr().toarray()[0].astype(np.float64)
    return np.asarray(lexical + dense @ query.dense[0].astype(np.float64) + stored.bias)


def assert_is_top(
    bundle: Bundle, text: str, found: Found, limit: int = 10, offset: int = 0
) -> None:
    """Check that ids and scores are those of the best documents, in their order."""
    scores = true_scores(bundle, text)
    best = np.argsort(-scores, kind="stable")[offset : offset + limit]
    assert [id for id, _ in found] == [bundle.documents.ids[row] for row in best.tolist()]
    assert np.allclose([score for _, score in found], scores[best], rtol=0, atol=1e-5)
