"""Clicked text: the training queries that led to a document, as one more field of it.

What people typed before they chose a document says what it is for in their own words. The field is a document's in
training and in the bundle; a document added later has it when it is sent along under the field's name.

A training query must not find itself in its own answer, or matching the field would be all there is to learn. So each
step leaves the texts of its queries out of the documents that they led to, as they will be for a query never seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from fullrank.encoding import Int64
from fullrank.features import Rows, rows_of
from fullrank.model import field_text
from trainer.collection import Collection, relevant

FIELD = "clicked"


@dataclass(frozen=True, eq=False)
class Clicks:
    """Counts of clicked text.

    texts   of each query, (queries, words)
    judged  ones where a training query led to a document, (documents, queries)
    counts  of each document's field, (documents, words)
    """

    texts: Rows
    judged: sp.csr_array[np.float32]
    counts: Rows

    @staticmethod
    def of(relevant: Mapping[int, Int64], documents: int, texts: Rows) -> Clicks:
        """``relevant``: query row → the documents it led to."""
        queries = np.repeat(list(relevant), [len(found) for found in relevant.values()])
        found = np.concatenate([np.zeros(0, np.int64), *relevant.values()])
        judged = sp.csr_array(
            (np.ones(len(found), np.float32), (found, queries.astype(np.int64))),
            shape=(documents, len(texts)),
        )
        return Clicks(texts, judged, rows_of(sp.csr_array(judged @ texts.csr())))

    def without(self, queries: Int64, documents: Int64) -> Rows:
        """The field of the given documents with the texts of the given queries left out."""
        own = sp.csr_array(self.judged[documents])
        own.data = np.where(np.isin(own.indices, queries), own.data, 0).astype(np.float32)
        own.eliminate_zeros()
        left = sp.csr_array(self.counts.csr()[documents] - own @ self.texts.csr())
        left.eliminate_zeros()
        return rows_of(left)


def with_clicks(collection: Collection, titles: Sequence[str] = ("title",)) -> Collection:
    """The documents with their clicked text as a field: what a document sent later would hold.

    titles  the fields that speak for a document where documents are queries
    """
    if collection.queries is not None:
        texts = {query.id: query.text for query in collection.queries}
    else:
        texts = {d.id: field_text(d.fields, titles) for d in collection.documents}
    found: dict[str, list[str]] = {}
    for query, grades in collection.qrels("train").items():
        for document in relevant(grades):
            if not (collection.have_mates and document == query):
                found.setdefault(document, []).append(texts[query])
    documents = [
        replace(d, fields={**d.fields, FIELD: "\n".join(found[d.id])}) if d.id in found else d
        for d in collection.documents
    ]
    return replace(collection, documents=documents)
