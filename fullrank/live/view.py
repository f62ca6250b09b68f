"""A bundle and its live documents up to one position of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple, Self

import numpy as np

from fullrank.bundle import Bundle
from fullrank.bundle.write import Batch
from fullrank.live.entry import Entry, NewFields
from fullrank.live.segments import (
    Merged,
    build_segment,
    due,
    live_rows,
    merge,
    merge_small,
)
from fullrank.models.contract import Model
from fullrank.search.part import Part
from fullrank.search.query import Analyzer
from fullrank.search.rerank.facts import DocumentFacts
from fullrank.search.searchable import Searchable, Selection, gather_facts, gather_in_model_features
from fullrank.storage.documents import Document
from fullrank.storage.strings import Names

# One write of the log.


class Operation(NamedTuple):
    """A write to one document.

    Attributes:
        seq: Position in the log, ascending from 1.
        fields: All fields of the document from now on; None deletes it.
    """

    seq: int
    id: str
    fields: Mapping[str, Any] | None


@dataclass(frozen=True, eq=False)
class View(Searchable):
    """A bundle with the documents added, replaced and deleted since. Immutable: ``apply`` returns another view.

    Example:
        >>> view = View.of(open_bundle("bundles/docs/docs-1"))
        >>> view = view.apply([Operation(1, "ls", {"title": "ls", "text": "List files"})])
        >>> hits = view.search(view.analyzer.query("list files"), 10).hits
    """

    bundle: Bundle = field(kw_only=True)
    seq: int = field(kw_only=True)

    @classmethod
    def of(cls, bundle: Bundle, seq: int = 0) -> Self:
        """Return the view of a bundle without later writes.

        Args:
            seq: The last operation of the log that the bundle itself contains.
        """
        return cls(bundle.part, (), bundle.second_stage, bundle=bundle, seq=seq)

    @property
    def titled(self) -> tuple[Part, ...]:
        """The documents whose titles may complete what people type."""
        return self.parts

    @property
    def encoder(self) -> Model:
        """The model that encodes added documents: the bundle's, with rows for unseen words."""
        return self.bundle.live_model or self.bundle.model

    @property
    def model(self) -> Model:
        """The model that encodes queries: the bundle's own if there are no added documents."""
        return self.encoder if self.added else self.bundle.model

    @cached_property
    def keys(self) -> list[str]:
        """The cache key of each part, for bitmaps of filters."""
        if not self.added:
            return [self.base.key]
        # A part's bitmaps depend on the other parts too: their fields decide which filters are valid.
        kinds = {
            name: sorted(column.kinds_elsewhere)
            for name, column in sorted(self.columns[0].by_name.items())
        }
        fingerprint = blake2b(repr(kinds).encode(), digest_size=8).hexdigest()
        return [f"{part.key}/{fingerprint}" for part in self.parts]

    @cached_property
    def analyzer(self) -> Analyzer:
        """Analyses the queries of this generation."""
        own = self.bundle.analyzer
        return own.with_added(self.added) if self.added else own

    def check(self, id: str, fields: Mapping[str, Any], *, is_storable: bool = False) -> None:
        """Raise DocumentRefused unless this bundle can take a document; the arguments are those of ``Entry.check``."""
        self._entry.check(id, fields, is_storable=is_storable)

    def memory_of(self, fields: Mapping[str, Any]) -> int:
        """Estimate the bytes of memory that the words and vectors of a document take."""
        return self._entry.memory_of(fields)

    def new_fields(self) -> NewFields:
        """Return what no document has yet, to check documents of one request against each other."""
        return self._entry.new_fields()

    @cached_property
    def _entry(self) -> Entry:
        return Entry(self.bundle, self.columns[0])

    def apply(self, operations: Iterable[Operation]) -> View:
        """Return the view after some operations.

        Raises:
            DocumentRefused: There is a document, and the model supports no live documents.
        """
        seq, latest = self.seq, dict[str, Mapping[str, Any] | None]()
        for operation in operations:
            if operation.seq > seq:
                seq = operation.seq
                latest[operation.id] = operation.fields
        if seq == self.seq:
            return self
        ids = Names(latest)
        base, *added = [part.remove(part.live_rows(ids)) for part in self.parts]
        new = {id: fields for id, fields in latest.items() if fields is not None}
        if new:
            if self.bundle.live_model is None:
                self.check("", {})
            added.append(build_segment(self.encoder, new, [base, *added], self.bundle.second_stage))
        return replace(self, seq=seq, base=base, added=merge_small(self.encoder, added, base))

    def due(self, *, idle: bool = False) -> tuple[Part, ...]:
        """Choose segments to merge next, none if there is nothing to merge; idle: no writes came lately."""
        return due(self.added, idle=idle)

    def merge(self, segments: Sequence[Part]) -> Merged:
        """Merge some segments of this view. May take seconds; any thread can do it while others use the view."""
        part = merge(self.encoder, segments, self.base)
        return Merged(tuple(segments), part)

    def adopt(self, merged: Merged) -> View:
        """Return this view with merged segments, without what was removed from the old ones meanwhile.

        Args:
            merged: What an earlier view merged. Documents of a segment that is gone meanwhile are left out: they were
                removed, or are in another segment.
        """
        now = {part.key: part for part in self.added}
        gone: list[str] = []
        for old in merged.old:
            part = now.pop(old.key, None)
            removed = np.ones(len(old), np.bool_) if part is None else part.removed
            if removed is not None and removed is not old.removed:
                rows = np.flatnonzero(removed if old.removed is None else removed & ~old.removed)
                gone += [old.store.ids[row] for row in rows.tolist()]
        part = merged.part.remove(merged.part.live_rows(gone))
        return replace(self, added=(*([part] if part.n_live else []), *now.values()))

    def settled(self) -> View:
        """Return this view with all due merges done."""
        view = self
        while segments := view.due(idle=True):
            view = view.adopt(view.merge(segments))
        return view

    def find(self, id: str) -> tuple[Part, int]:
        """Return the part and the row of a document.

        Raises:
            KeyError: There is no document with this id.
        """
        # Newest first: recently written documents are read most often.
        for part in reversed(self.parts):
            if (row := part.row(id)) is not None:
                return part, row
        raise KeyError(id)

    def is_live(self, id: str) -> bool:
        """Return whether a document was written since the bundle was made. Raises KeyError without such a document."""
        return self.find(id)[0] is not self.base

    def fields(self, id: str) -> dict[str, Any]:
        """Return the stored fields of a document.

        Raises:
            KeyError: There is no document with this id.
        """
        part, row = self.find(id)
        return part.store.fields(row)

    def batches(self, size: int = 4096) -> Iterator[Batch]:
        """Yield all documents with their encodings, in ascending id order, as ``stream_bundle`` takes them.

        Rows of the bundle are copied unchanged.
        """
        remaining = live_rows(self.parts)
        while rows := list(islice(remaining, size)):
            documents = [
                Document(id, self.parts[number].store.fields(row)) for id, number, row in rows
            ]
            selected = Selection.of([(number, row) for _, number, row in rows])
            yield documents, gather_in_model_features(self.parts, selected, self.encoder.n_sparse)

    def facts(self, size: int = 4096) -> Iterator[DocumentFacts]:
        """Yield the facts about all documents in ascending id order, as ``stream_bundle`` takes them."""
        remaining = live_rows(self.parts)
        while rows := list(islice(remaining, size)):
            selected = Selection.of([(number, row) for _, number, row in rows])
            found = gather_facts(self.parts, selected)
            if found is not None:
                yield found
