"""The candidates of a step by word, as the kernels of the lexical part read them."""

from __future__ import annotations

import numpy as np

from fullrank.encoding import Float32, Int32, Int64, Rows
from fullrank_trainer.systems.linear.batches import count_columns, fill_columns

# A word in more than this share of the candidates is read as a whole row, which is faster than a long list.
_COMMON = 1 / 16


Postings = tuple[Int64, Int32, Float32, Int32, Float32]


def postings_of(
    z: Rows, documents: Int64, asked: int, places: Int32, common: float = _COMMON
) -> Postings:
    """Return posting lists of the words of queries; common words get a row with a weight for every candidate instead.

    Args:
        z: documents, (documents, words).
        documents: rows of the candidates.
        asked: number of words of the queries.
        places: int32 (words,), the number of each of them, and -1 for the other words.
        common: a word is common if more than this share of the candidates have it.

    Returns:
        starts: int64 (asked + 1,); word w has the entries starts[w]:starts[w + 1], and a common word has none.
        texts: int32 (entries,), candidates, ascending inside a word.
        weights: float32 (entries,).
        row: int32 (asked,), the row of a common word in ``table``; -1 for other words.
        table: float32 (common words, candidates).
    """
    counts = count_columns(z, documents, asked, places)
    often = np.flatnonzero(counts.sum(axis=0) > common * len(documents))
    row = np.full(asked, -1, np.int32)
    row[often] = np.arange(len(often))
    table = np.zeros((len(often), len(documents)), np.float32)
    return *fill_columns(z, documents, counts, places, row, table), row, table
