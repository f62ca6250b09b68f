"""Segments: added documents in few immutable pieces, as in a log-structured merge tree.

``build_segment`` encodes new documents as a segment, and ``merge_small`` puts them at once together with the few others
that are still small. Larger segments wait: ``due`` chooses those to merge next, and ``merge`` copies them into one, on
any thread, while the view with the old ones is searched and written on. While writes come, segments of about one size
are merged, a few at a time, so that a document is copied only a few times. After that nearly all become one, because
each segment costs every search some time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import merge as merge_sorted
from itertools import chain, compress, count
from typing import Any

import numpy as np

from fullrank.filters.columns import Column, ColumnPart, Columns, Kind, columns_of
from fullrank.filters.columns.build import MAX_FIELDS
from fullrank.filters.columns.table import BOOLEANS
from fullrank.models.contract import Model
from fullrank.models.mixed import MixedModel
from fullrank.models.reading import DocumentReading
from fullrank.models.unseen import OpenModel
from fullrank.retrieval import Retriever
from fullrank.retrieval.index.build import INDEXED_FROM, index_of_segment
from fullrank.retrieval.ranking import remaining
from fullrank.search.complete import is_completing_word
from fullrank.search.part import Part
from fullrank.search.rerank.facts import DocumentFacts
from fullrank.search.rerank.stage import SecondStage
from fullrank.search.searchable import Selection, gather, gather_facts, gather_in_model_features
from fullrank.storage.documents import fields_line
from fullrank.storage.encoding import Encoded, Int64, distinct
from fullrank.storage.records import Documents
from fullrank.storage.strings import DocumentStore, StringTable

# Copy documents of several parts into one: encodings, facts and columns.
#
# The copies are made in kernels and by whole arrays, so that a merge on a background thread rarely holds the
# interpreter.


def gather_columns(tables: Sequence[Columns], selected: Selection) -> Columns | None:
    """Copy the columns of documents; None if only the documents themselves can tell which fields are columns."""
    names = list(dict.fromkeys(name for table in tables for name in table.by_name))
    if len(names) > MAX_FIELDS or any(table.refused for table in tables):
        return None
    count = len(selected)
    columns = {}
    for name in names:
        own = [table.by_name.get(name) for table in tables]
        kinds = sorted({kind for column in own if column is not None for kind in column.parts})
        parts = {}
        for kind in kinds:
            found = [None if column is None else column.parts.get(kind) for column in own]
            part = _gather_part(kind, found, selected)
            if part is not None:
                parts[kind] = part
        columns[name] = Column(name, parts, count)
    return Columns(count, columns, {})


def _gather_part(
    kind: Kind, parts: Sequence[ColumnPart | None], selected: Selection
) -> ColumnPart | None:
    """Copy the values of one kind; None if no document has any."""
    entries = [
        (part, *_entries(part, selected, i)) for i, part in enumerate(parts) if part is not None
    ]
    rows = np.concatenate([rows for _, rows, _ in entries])
    if not len(rows):
        return None
    values, places = _union(kind, [(part, codes) for part, _, codes in entries])
    codes = np.concatenate([place[c] for place, (_, _, c) in zip(places, entries, strict=True)])
    order = np.argsort(rows, kind="stable")
    rows, codes = rows[order], codes[order].astype(np.min_scalar_type(-max(1, len(values))))
    count = len(selected)
    if np.any(rows[1:] == rows[:-1]):
        indptr = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=count), out=indptr[1:])
        return ColumnPart(values, codes, indptr)
    single = np.full(count, -1, codes.dtype)
    single[rows] = codes
    return ColumnPart(values, single)


def _entries(part: ColumnPart, selected: Selection, number: int) -> tuple[Int64, Any]:
    """Return the place and the code of each value of one part's selected documents."""
    here = selected.places(number)
    rows = selected.row[here]
    if part.indptr is None:
        codes = part.codes[rows]
        kept = np.flatnonzero(codes >= 0)
        return here[kept], codes[kept]
    first = part.indptr[rows]
    sizes = part.indptr[rows + 1] - first
    before = np.cumsum(sizes) - sizes
    return np.repeat(here, sizes), part.codes[
        np.arange(sizes.sum()) + np.repeat(first - before, sizes)
    ]


def _union(kind: Kind, parts: Sequence[tuple[ColumnPart, Any]]) -> tuple[Any, list[Int64]]:
    """Return the values that some codes stand for, ascending, and the new code of each code of each part."""
    if kind == "boolean":
        return BOOLEANS, [np.arange(len(BOOLEANS)) for _ in parts]
    used = [np.unique(codes) for _, codes in parts]
    values: Any
    if kind == "number":
        found: list[Any] = [
            np.asarray(part.values)[codes] for (part, _), codes in zip(parts, used, strict=True)
        ]
        values = np.unique(np.concatenate(found))
        new = [np.searchsorted(values, own) for own in found]
    else:
        tables = [StringTable.of(part.values) for part, _ in parts]
        number = np.repeat(np.arange(len(used), dtype=np.int32), [*map(len, used)])
        texts = [*StringTable.gather(tables, number, np.concatenate(used).astype(np.int64))]
        distinct = sorted({*texts})
        code = {text: i for i, text in enumerate(distinct)}
        codes_of = np.fromiter(map(code.__getitem__, texts), np.int64, len(texts))
        new = np.split(codes_of, np.cumsum([*map(len, used[:-1])]))
        values = StringTable.of(distinct)
    places = []
    for (part, _), codes, own in zip(parts, used, new, strict=True):
        place = np.zeros(len(part.values), np.int64)
        place[codes] = own
        places.append(place)
    return values, places


# Smaller segments are merged at once: that costs less than searching one more.
_MIN_DOCUMENTS = 256
# While writes come, as many segments as this are merged when the largest of them is at most this many times as large
# as the smallest.
_TIER = 4
# Without writes, a segment this many times as large as all others together is left as it is.
_LARGE = 8
_segment_numbers = count(1)


@dataclass(frozen=True, eq=False)
class Merged:
    """A finished merge: the segments that it copied, as they were, and the new one."""

    old: tuple[Part, ...]
    part: Part


def build_segment(
    model: Model,
    documents: Mapping[str, Mapping[str, Any]],
    earlier: Sequence[Part],
    stage: SecondStage | None = None,
) -> Part:
    """Encode new documents as a segment."""
    ids = sorted(documents)
    fields = [documents[id] for id in ids]
    facts = None if stage is None else stage.facts(fields)
    lines = StringTable.of([fields_line(id, documents[id]) for id in ids])
    columns = _columns_of(fields, [part.columns for part in earlier], earlier[0].columns.refused)
    reading = DocumentReading.of(fields)
    own, base = model.encode_documents(reading), earlier[0]
    encoded = with_clicks(model, own, ids, base.store, base.retriever.documents)
    part = _make_part(model, StringTable.of(ids), lines, encoded, columns, facts, earlier[0])
    return replace(part, new_words=_new_words(model, reading))


def merge_small(model: Model, segments: Sequence[Part], base: Part) -> tuple[Part, ...]:
    """Drop empty segments and merge the small ones, as ``merge`` does; oldest first."""
    alive = [part for part in segments if part.n_live]
    small = [part for part in alive if len(part) < _MIN_DOCUMENTS]
    if len(small) < 2:
        return tuple(alive)
    return (*(part for part in alive if len(part) >= _MIN_DOCUMENTS), merge(model, small, base))


def due(segments: Sequence[Part], *, idle: bool) -> tuple[Part, ...]:
    """Choose segments to merge next.

    Args:
        idle: No writes came lately.

    Returns:
        Segments, none if nothing is to be merged. ``merge_small`` may take small ones meanwhile; the view that adopts
        the merge has those documents once.
    """
    found = sorted((part for part in segments if part.n_live), key=lambda part: part.n_live)
    if not idle:
        found = [part for part in found if len(part) >= _MIN_DOCUMENTS]
        for first in range(len(found) - _TIER + 1):
            tier = found[first : first + _TIER]
            if tier[-1].n_live <= _TIER * tier[0].n_live:
                return tuple(tier)
        return ()
    if not found:
        return ()
    *others, largest = found
    is_wasteful = 2 * largest.n_live < len(largest)
    if others and (is_wasteful or largest.n_live < _LARGE * sum(part.n_live for part in others)):
        return tuple(found)
    if len(others) > 1:
        return tuple(others)
    return (largest,) if is_wasteful else ()


def merge(model: Model, segments: Sequence[Part], base: Part) -> Part:
    """Copy the live documents of some segments into one.

    Args:
        base: The documents of the bundle. No view can filter on fields that it has no columns of.
    """
    selected = _live(segments)
    ids = _gathered([part.store.ids for part in segments], selected)
    lines = _gathered([part.store.lines for part in segments], selected)
    tables = [part.columns for part in segments]
    columns = gather_columns(tables, selected)
    facts = gather_facts(segments, selected)
    if segments[0].features is None:
        encoded = gather_in_model_features(segments, selected, model.n_sparse)
        features = None
    else:
        features, targets = _join([part.features for part in segments])
        documents = [part.retriever.documents for part in segments]
        encoded = gather(documents, selected, len(features), targets)
        encoded, features = _without_unused(encoded, features)
    part = _make_part(model, ids, lines, encoded, columns, facts, base, features)
    new_words = words_of(segments)
    if isinstance(model, OpenModel) and any(own.n_removed for own in segments):
        is_left = part.has_features(model.features_of(new_words)).tolist()
        new_words = StringTable.of(compress(new_words, is_left))
    part = replace(part, new_words=new_words)
    if columns is not None:
        return part
    # Fields that no column can hold: only the documents tell whether those have remained.
    fields = map(part.store.fields, range(len(part)))
    return replace(part, fields=_columns_of(fields, tables, base.columns.refused))


def with_clicks(
    model: Model, encoded: Encoded, ids: Sequence[str], store: DocumentStore, earlier: Documents
) -> Encoded:
    """Give new documents the clicks of earlier documents with their ids."""
    blend = model.model if isinstance(model, OpenModel) else model
    if not isinstance(blend, MixedModel) or not blend.has_memory:
        return encoded
    known = {}
    for place, id in enumerate(ids):
        with suppress(KeyError):
            known[place] = store.row(id)
    places, rows = (np.array([*numbers], np.int64) for numbers in (known, known.values()))
    return blend.with_clicks(encoded, places, earlier.take(rows))


def _new_words(model: Model, reading: DocumentReading) -> Sequence[str]:
    """Return the words of documents that people may be typing and the model was not trained on, ascending."""
    if not isinstance(model, OpenModel):
        return ()
    return StringTable.of(filter(is_completing_word, model.unseen_words(reading)))


def words_of(parts: Sequence[Part]) -> Sequence[str]:
    """Return the new words of several parts, ascending."""
    found = [part.new_words for part in parts if part.new_words]
    return found[0] if len(found) == 1 else StringTable.of(sorted(set(chain.from_iterable(found))))


def _join(features: Sequence[Any]) -> tuple[Any, list[Any]]:
    joined, places = distinct(np.concatenate(features))
    return joined, np.split(places, np.cumsum([len(own) for own in features[:-1]]))


def _without_unused(encoded: Encoded, features: Any) -> tuple[Encoded, Any]:
    """Drop the columns that only removed documents had, and their features."""
    sparse, is_used = encoded.sparse, np.zeros(len(features), np.bool_)
    is_used[sparse.indices] = True
    if is_used.all():
        return encoded, features
    place = np.cumsum(is_used, dtype=np.int32) - np.int32(1)
    left = replace(sparse, indices=place[sparse.indices], width=int(np.count_nonzero(is_used)))
    return replace(encoded, sparse=left), features[is_used]


def live_rows(parts: Sequence[Part]) -> Iterator[tuple[str, int, int]]:
    """Yield (id, index of the part, row) of every live document, ids ascending."""

    def rows_of(number: int, part: Part) -> Iterator[tuple[str, int, int]]:
        removed = part.removed
        for row, id in enumerate(part.store.ids):
            if removed is None or not removed[row]:
                yield id, number, row

    return merge_sorted(*(rows_of(number, part) for number, part in enumerate(parts)))


def _live(parts: Sequence[Part]) -> Selection:
    """Return where all live documents are, in ascending order of their ids."""
    ids: list[str] = []
    numbers, rows = [], []
    for number, part in enumerate(parts):
        own = list(part.store.ids)
        live = remaining(len(own), part.removed)
        ids += own if len(live) == len(own) else [own[row] for row in live.tolist()]
        numbers.append(np.full(len(live), number, np.int32))
        rows.append(live)
    order = sorted(range(len(ids)), key=ids.__getitem__)
    return Selection(np.concatenate(numbers)[order], np.concatenate(rows)[order])


def _gathered(strings: Sequence[Sequence[str]], selected: Selection) -> StringTable:
    return StringTable.gather([*map(StringTable.of, strings)], selected.number, selected.row)


def _columns_of(
    fields: Iterable[Mapping[str, Any]], earlier: Sequence[Columns], refused: Collection[str]
) -> Columns:
    """Make the columns of documents, at least one, that come after others; none of refused fields.

    The number of columns is limited. Fields of earlier documents come first, or filters would miss these.
    """
    known: dict[str, Any] = dict.fromkeys(
        name for columns in earlier for name in (*columns.by_name, *columns.refused)
    )
    documents = iter(fields)
    return columns_of(chain([known | {**next(documents)}], documents), refused)


def _make_part(
    model: Model,
    ids: Sequence[str],
    lines: Sequence[str],
    encoded: Encoded,
    columns: Columns | None,
    facts: DocumentFacts | None,
    base: Part,
    features: Any = None,
) -> Part:
    store, key = DocumentStore(ids, lines), f"live-{next(_segment_numbers)}"
    fields = Columns(len(ids), {}, {}) if columns is None else columns
    scorer = model.scorer(encoded) if features is None else None
    if scorer is not None:
        # A scorer needs the model's own feature numbers.
        part = Part(key, store, Retriever(encoded, scorer), fields, facts=facts)
    else:
        if features is None:
            features, used = distinct(encoded.sparse.indices)
            local = replace(encoded.sparse, indices=used, width=len(features))
            encoded = replace(encoded, sparse=local)
        index = (
            index_of_segment(encoded, base.retriever.index)
            if len(encoded) >= INDEXED_FROM
            else None
        )
        retriever = Retriever(encoded, index=index)
        part = Part(key, store, retriever, fields, features, facts=facts)
    # Builds caches now, so that the first request does not wait for them.
    part.retriever.warm()
    return part
