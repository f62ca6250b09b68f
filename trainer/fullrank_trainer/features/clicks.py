"""Clicked text: the training queries that led to a document, as one more field of it.

The words that people typed before they chose a document describe it well. Documents have the field in
training and in the bundle; a live document has it if its sender includes it under the field's name.

A training query must not find its own text in a document that it led to; otherwise training would only
learn to match that field. Each step therefore leaves the texts of its queries out of those documents,
as they will be left out for a query that training never saw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fullrank.encoding import Int64, Rows
from fullrank_trainer.features.lists import Lists

FIELD = "clicked"


@dataclass(frozen=True, eq=False)
class Clicks:
    """Word counts of clicked text.

    Attributes:
        texts: of each query, (queries, words).
        judged: 1 where a training query led to a document, (documents, queries).
        counts: of each document's field, (documents, words).
    """

    texts: Rows
    judged: sp.csr_array[np.float32]
    counts: Rows

    @staticmethod
    def of(relevant: Lists[np.int64], documents: int, texts: Rows) -> Clicks:
        """Count clicked text.

        Args:
            relevant: query row → rows of the documents it led to.
            documents: number of documents.
            texts: word counts of the queries, (queries, words).
        """
        queries, found = relevant.owners, relevant.entries
        judged = sp.csr_array(
            (np.ones(len(found), np.float32), (found, queries)),
            shape=(documents, len(texts)),
        )
        return Clicks(texts, judged, Rows.from_csr(sp.csr_array(judged @ texts.csr())))

    def without(
        self, queries: Int64, documents: Int64, cold: npt.NDArray[np.bool_] | None = None
    ) -> Rows:
        """Return the field of some documents without the texts of some queries.

        Args:
            queries: rows of the queries to leave out.
            documents: rows of the documents.
            cold: bool (documents,), which of them have an empty field.
        """
        own = sp.csr_array(self.judged[documents])
        own.data = np.where(np.isin(own.indices, queries), own.data, 0).astype(np.float32)
        own.eliminate_zeros()
        rest = sp.csr_array(self.counts.csr()[documents] - own @ self.texts.csr())
        if cold is not None:
            rest.data[np.repeat(cold, np.diff(rest.indptr))] = 0
        rest.eliminate_zeros()
        return Rows.from_csr(rest)
