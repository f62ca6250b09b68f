"""Added documents in few immutable pieces.

A new document becomes a segment of its own, and segments that are no longer much larger than what came after them are
merged with it: as in a log-structured merge tree, a document is copied a few times on its way up, and there are few
segments to search, each several times as large as the next, and beyond them full ones that are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from itertools import chain, count
from typing import Any

import numpy as np

from fullrank.columns import columns_of
from fullrank.encoding import Encoded, Int64, concatenate
from fullrank.live.part import Part
from fullrank.model import Model
from fullrank.retrieval import Retriever
from fullrank.retrieval.index.build import index_in_memory
from fullrank.storage.documents import Document, DocumentStore, fields_line

# A segment stays as it is while it is so many times as large as all that came after it.
_RATIO = 4
# Smaller ones are merged at once: that costs less than to search one more.
_SMALL = 256
# Larger ones are left alone: a merge must not hold up what was just written.
_LARGE = 8_192
# Below so many a scan of the documents themselves is as quick.
_INDEXED_FROM = 4_096
_numbers = count(1)


def segment(
    model: Model, documents: Mapping[str, Mapping[str, Any]], before: Sequence[Part]
) -> Part:
    """New documents, fields by id, encoded by the model. before: the parts of the view that they come to."""
    ids = sorted(documents)
    encoded = model.encode_documents([documents[id] for id in ids])
    lines = [fields_line(Document(id, documents[id])) for id in ids]
    return _part(model, ids, lines, encoded, before)


def settled(model: Model, parts: Sequence[Part]) -> tuple[Part, ...]:
    """Segments, oldest first, with those merged that are due; without those that are all gone."""
    alive = [part for part in parts if part.live]
    if not alive:
        return ()
    first, size = len(alive) - 1, alive[-1].live
    while first and alive[first - 1].live < min(max(_RATIO * size, _SMALL), _LARGE):
        first -= 1
        size += alive[first].live
    groups = [[part] for part in alive[:first]] + [alive[first:]]
    # What is mostly gone is written anew without it.
    return tuple(
        group[0] if len(group) == 1 and 2 * group[0].live >= len(group[0]) else merged(model, group)
        for group in groups
    )


def merged(model: Model, parts: Sequence[Part]) -> Part:
    """The live documents of some segments as one."""
    places = list(merged_rows(parts))
    encoded = gathered([in_model(part, model.n_sparse) for part in parts], places)
    lines = [parts[number].store.line(row) for _, number, row in places]
    return _part(model, [id for id, _, _ in places], lines, encoded, parts)


def merged_rows(parts: Sequence[Part]) -> Iterator[tuple[str, int, int]]:
    """(id, number of the part, row) of every live document, ids ascending."""

    def live(number: int, part: Part) -> Iterator[tuple[str, int, int]]:
        gone = part.removed
        for row, id in enumerate(part.store.ids):
            if gone is None or not gone[row]:
                yield id, number, row

    return merge(*(live(number, part) for number, part in enumerate(parts)))


def gathered(parts: Sequence[Encoded], places: Sequence[tuple[str, int, int]]) -> Encoded:
    """The encodings of documents of several parts, in the order of ``places`` (as ``merged_rows`` gives them)."""
    number = np.array([number for _, number, _ in places])
    row = np.array([row for _, _, row in places])
    pieces, order = [], np.empty(len(places), np.int64)
    done = 0
    for i, part in enumerate(parts):
        here = np.flatnonzero(number == i)
        order[here] = np.arange(done, done + len(here))
        pieces.append(_taken(part, row[here]))
        done += len(here)
    return _taken(concatenate(pieces), order)


def in_model(part: Part, width: int) -> Encoded:
    """The documents of a part among the sparse features of the model."""
    documents = part.retriever.documents
    indices = documents.indices if part.features is None else part.features[documents.indices]
    return replace(documents, indices=indices, width=width)


def _taken(documents: Encoded, rows: Int64) -> Encoded:
    """The given rows, in the given order."""
    sizes = documents.indptr[rows + 1] - documents.indptr[rows]
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(sizes, out=indptr[1:])
    place = np.arange(indptr[-1]) + np.repeat(documents.indptr[rows] - indptr[:-1], sizes)
    return Encoded(
        documents.dense[rows],
        indptr,
        documents.indices[place],
        documents.weights[place],
        documents.width,
        documents.bias[rows],
    )


def _part(
    model: Model,
    ids: Sequence[str],
    lines: Sequence[str],
    encoded: Encoded,
    before: Sequence[Part],
) -> Part:
    store, key = DocumentStore(ids, lines), f"live-{next(_numbers)}"
    # There are only so many columns: a field that others have comes before new ones, or filters would pass over these.
    known: dict[str, Any] = dict.fromkeys(
        name for part in before for name in (*part.columns.by_name, *part.columns.refused)
    )
    first, *others = range(len(store))
    columns = columns_of(chain([known | store.fields(first)], map(store.fields, others)))
    scorer = model.scorer(encoded)
    if scorer is not None:
        # It knows words by the model's numbers.
        part = Part(key, store, Retriever(encoded, scorer), columns)
    else:
        features, place = np.unique(encoded.indices, return_inverse=True)
        own = replace(encoded, indices=place.astype(np.int32), width=len(features))
        index = index_in_memory(own) if len(own) >= _INDEXED_FROM else None
        part = Part(key, store, Retriever(own, None, index), columns, features)
    # What a first request would have to build.
    part.retriever.warm()
    return part
