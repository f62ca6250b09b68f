"""Segments: added documents in few immutable pieces.

New documents become a segment of their own. Older segments that are not much larger than all later ones together are
merged with them, as in a log-structured merge tree: a document is copied only a few times, there are few segments to
search, each several times as large as the next, and full segments are never merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from itertools import chain, count
from typing import Any

import numpy as np

from fullrank.encoding import Encoded, concatenate
from fullrank.filters.columns import columns_of
from fullrank.live.part import Part
from fullrank.models.contract import Model
from fullrank.rerank.facts import DocumentFacts
from fullrank.rerank.stage import SecondStage
from fullrank.retrieval import Retriever
from fullrank.retrieval.outline_scan import OutlineScan
from fullrank.storage.documents import Document, DocumentStore, fields_line

# A segment is merged unless it is this many times as large as all later segments together.
_SIZE_RATIO = 4
# Merging smaller segments costs less than searching one more.
_MIN_DOCUMENTS = 256
# Larger segments are not merged: a merge must not delay the newest documents.
_MAX_MERGED_DOCUMENTS = 8_192
# Smaller segments are searched as fast without.
_MIN_OUTLINED_DOCUMENTS = 1_024
_segment_numbers = count(1)


def build_segment(
    model: Model,
    documents: Mapping[str, Mapping[str, Any]],
    earlier: Sequence[Part],
    stage: SecondStage | None = None,
) -> Part:
    """Encode new documents as a segment.

    Args:
        model: Encodes the documents.
        documents: Fields by id.
        earlier: The other parts of the view.
        stage: The second stage of the bundle.

    Returns:
        The segment.
    """
    ids = sorted(documents)
    facts = None if stage is None else stage.facts([documents[id] for id in ids])
    encoded = model.encode_documents([documents[id] for id in ids])
    lines = [fields_line(Document(id, documents[id])) for id in ids]
    return _make_part(model, ids, lines, encoded, earlier, facts)


def merge_due_segments(model: Model, segments: Sequence[Part]) -> tuple[Part, ...]:
    """Merge the segments that are due and drop empty ones.

    Args:
        model: The model that encoded the segments.
        segments: Oldest first.

    Returns:
        The segments of the next view, oldest first.
    """
    alive = [part for part in segments if part.n_live]
    if not alive:
        return ()
    first, size = len(alive) - 1, alive[-1].n_live
    while first and alive[first - 1].n_live < min(
        max(_SIZE_RATIO * size, _MIN_DOCUMENTS), _MAX_MERGED_DOCUMENTS
    ):
        first -= 1
        size += alive[first].n_live
    groups = [[part] for part in alive[:first]] + [alive[first:]]
    return tuple(
        group[0] if len(group) == 1 and not _is_mostly_removed(group[0]) else _merge(model, group)
        for group in groups
    )


def _is_mostly_removed(part: Part) -> bool:
    """Return whether a copy without the removed documents saves more than half of the memory."""
    return 2 * part.n_live < len(part)


def _merge(model: Model, segments: Sequence[Part]) -> Part:
    """Copy the live documents of some segments into one."""
    rows = list(live_rows(segments))
    encoded = gather([in_model_features(part, model.n_sparse) for part in segments], rows)
    lines = [segments[number].store.line(row) for _, number, row in rows]
    facts = gather_facts(segments, [(number, row) for _, number, row in rows])
    return _make_part(model, [id for id, _, _ in rows], lines, encoded, segments, facts)


def live_rows(parts: Sequence[Part]) -> Iterator[tuple[str, int, int]]:
    """Yield (id, index of the part, row) of every live document, ids ascending."""

    def rows_of(number: int, part: Part) -> Iterator[tuple[str, int, int]]:
        removed = part.removed
        for row, id in enumerate(part.store.ids):
            if removed is None or not removed[row]:
                yield id, number, row

    return merge(*(rows_of(number, part) for number, part in enumerate(parts)))


def gather_facts(parts: Sequence[Part], rows: Sequence[tuple[int, int]]) -> DocumentFacts | None:
    """Copy facts about documents from several parts.

    Args:
        parts: The parts.
        rows: (index of the part, row) of each document.

    Returns:
        The facts in the order of rows; None if a part has no facts.
    """
    pieces, order = [], np.empty(len(rows), np.int64)
    number, row = np.array(rows, np.int64).reshape(-1, 2).T
    done = 0
    for i in np.unique(number).tolist():
        facts = parts[i].facts
        if facts is None:
            return None
        here = np.flatnonzero(number == i)
        order[here] = np.arange(done, done + len(here))
        pieces.append(facts.take(row[here]))
        done += len(here)
    if not pieces:
        return None
    return pieces[0] if len(pieces) == 1 else DocumentFacts.concatenate(pieces).take(order)


def gather(parts: Sequence[Encoded], rows: Sequence[tuple[str, int, int]]) -> Encoded:
    """Copy encoded documents from several parts.

    Args:
        parts: The encoded documents of each part, of one width.
        rows: (id, index of the part, row) of each document, as ``live_rows`` yields them.

    Returns:
        The encoded documents in the order of rows.
    """
    number = np.array([number for _, number, _ in rows])
    row = np.array([row for _, _, row in rows])
    pieces, order = [], np.empty(len(rows), np.int64)
    done = 0
    for i, part in enumerate(parts):
        here = np.flatnonzero(number == i)
        order[here] = np.arange(done, done + len(here))
        pieces.append(part.take(row[here]))
        done += len(here)
    return concatenate(pieces).take(order)


def in_model_features(part: Part, width: int) -> Encoded:
    """Return the encoded documents of a part with the sparse columns of the model, width of them."""
    documents = part.retriever.documents
    indices = documents.sparse.indices
    if part.features is not None:
        indices = part.features[indices]
    return replace(documents, sparse=replace(documents.sparse, indices=indices, width=width))


def _make_part(
    model: Model,
    ids: Sequence[str],
    lines: Sequence[str],
    encoded: Encoded,
    earlier: Sequence[Part],
    facts: DocumentFacts | None,
) -> Part:
    """Build the columns, the index and the caches of a segment."""
    store, key = DocumentStore(ids, lines), f"live-{next(_segment_numbers)}"
    # The number of columns is limited. Fields of earlier parts come first, or filters would miss these documents.
    known: dict[str, Any] = dict.fromkeys(
        name for part in earlier for name in (*part.columns.by_name, *part.columns.refused)
    )
    first, *others = range(len(store))
    columns = columns_of(chain([known | store.fields(first)], map(store.fields, others)))
    scorer = model.scorer(encoded)
    if scorer is not None:
        # A scorer needs the model's own feature numbers.
        part = Part(key, store, Retriever(encoded, scorer), columns, facts=facts)
    else:
        features, columns_used = np.unique(encoded.sparse.indices, return_inverse=True)
        local = replace(encoded.sparse, indices=columns_used.astype(np.int32), width=len(features))
        own = replace(encoded, sparse=local)
        outlines = OutlineScan(own) if len(own) >= _MIN_OUTLINED_DOCUMENTS else None
        retriever = Retriever(own, outlines=outlines)
        part = Part(key, store, retriever, columns, features, facts=facts)
    # Builds caches now, so that the first request does not wait for them.
    part.retriever.warm()
    return part
