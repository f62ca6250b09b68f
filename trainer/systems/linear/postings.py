"""The candidates of a step by word, as the kernels of the lexical part read them."""

from __future__ import annotations

import numpy as np

from fullrank.encoding import Float32, Int32, Int64, Rows

# A word in more than this share of the candidates is read as a whole row, which is faster than a long list.
_COMMON = 1 / 16


Postings = tuple[Int64, Int32, Float32, Int32, Float32]


def postings_of(z: Rows, common: float = _COMMON) -> Postings:
    """Return posting lists by word; common words also get a row with a weight for every candidate.

    Args:
        z: the candidates, (candidates, words).
        common: a word is common if more than this share of the candidates have it.

    Returns:
        starts: int64 (words + 1,); word w has the entries starts[w]:starts[w + 1].
        places: int32 (entries,), candidates, ascending inside a word.
        weights: float32 (entries,).
        row: int32 (words,), the row of a common word in ``table``; -1 for other words.
        table: float32 (common words, candidates).
    """
    by_word = z.csr().tocsc()
    often = np.flatnonzero(np.diff(by_word.indptr) > common * len(z))
    row = np.full(z.width, -1, np.int32)
    row[often] = np.arange(len(often))
    return (
        by_word.indptr.astype(np.int64),
        by_word.indices.astype(np.int32, copy=False),
        by_word.data.astype(np.float32, copy=False),
        row,
        np.ascontiguousarray(by_word[:, often].toarray().T, np.float32),
    )
