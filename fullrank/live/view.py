"""One bundle and its live documents at one position of the log."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from typing import Any

import numpy as np

from fullrank.bundle.catalog import Bundle
from fullrank.bundle.write import Batch
from fullrank.columns import Columns, aligned
from fullrank.encoding import Encoded
from fullrank.errors import BundleError, DocumentRefused
from fullrank.filters.columns.build import ColumnsBuilder
from fullrank.live.operation import Operation
from fullrank.live.part import Part
from fullrank.live.segments import gathered, in_model, merged_rows, segment, settled
from fullrank.model import Model
from fullrank.retrieval import Mask
from fullrank.storage.documents import Document, fields_line


@dataclass(frozen=True, slots=True)
class Hit:
    """One document of an answer: where it is, and its score = learned + exact + bias."""

    part: Part
    row: int
    id: str
    score: float
    learned: float
    exact: float
    bias: float


@dataclass(frozen=True, slots=True)
class Found:
    """An answer, best first, ties by id.

    certified: provably the top of the full ranking; total: documents that could have been returned.
    """

    hits: list[Hit]
    certified: bool
    total: int


@dataclass(frozen=True, eq=False)
class View:
    """A bundle with what was added, replaced and deleted since. Never changes: ``apply`` makes another.

    seq    the last operation that is in it
    base   the bundle's documents
    added  segments, oldest first
    """

    bundle: Bundle
    seq: int
    base: Part
    added: tuple[Part, ...] = ()

    @classmethod
    def of(cls, bundle: Bundle, seq: int = 0) -> View:
        """What the bundle holds. seq: the last operation of the log that it contains."""
        return cls(bundle, seq, Part.of(bundle))

    @property
    def parts(self) -> tuple[Part, ...]:
        """Everything there is to search."""
        return (self.base, *self.added)

    @property
    def encoder(self) -> Model:
        """What added documents are encoded by: the bundle's model with rows for words that it does not know."""
        return self.bundle.live_model or self.bundle.model

    @property
    def model(self) -> Model:
        """What a query is encoded by: without added documents the bundle's own model."""
        return self.encoder if self.added else self.bundle.model

    @cached_property
    def columns(self) -> list[Columns]:
        """The stored fields of each part as columns that take the same questions."""
        return aligned([part.columns for part in self.parts]) if self.added else [self.base.columns]

    @cached_property
    def keys(self) -> list[str]:
        """What a filter's bitmap over each part is remembered under."""
        if not self.added:
            return [self.base.key]
        # Which questions are lawful depends on all parts.
        held = {
            name: sorted(column.elsewhere)
            for name, column in sorted(self.columns[0].by_name.items())
        }
        asked = blake2b(repr(held).encode(), digest_size=8).hexdigest()
        return [f"{part.key}/{asked}" for part in self.parts]

    def __len__(self) -> int:
        """Documents that can be found."""
        return sum(part.live for part in self.parts)

    def check(self, id: str, fields: Mapping[str, Any]) -> None:
        """Raise DocumentRefused, saying why, where this bundle cannot take a document."""
        model = self.bundle.live_model
        if model is None:
            raise DocumentRefused(
                f"The model of {self.bundle.version} takes no live documents: each of them would change "
                "the score of others"
            )
        texts = {name for column in model.rule.columns for name in column}
        for name in sorted(texts):
            value = fields.get(name)
            if value is not None and not isinstance(value, str):
                raise DocumentRefused(f"Field {name!r} is {type(value).__name__}, not text")
        try:
            fields_line(Document(id, fields))
        except BundleError as error:
            raise DocumentRefused(str(error)) from error
        # One that does not fit would take the field from the filters of all others.
        builder, asked = ColumnsBuilder(), self.columns[0]
        builder.add({n: value for n, value in fields.items() if n in asked and n not in texts})
        for name, why in builder.refused.items():
            raise DocumentRefused(f"Filters ask about field {name!r}, and {why}")

    def apply(self, operations: Iterable[Operation]) -> View:
        """The view after some operations, ascending by seq; those that are in it already change nothing.

        Raises DocumentRefused where the model takes no live documents and there is one.
        """
        seq, latest = self.seq, dict[str, Mapping[str, Any] | None]()
        for operation in operations:
            if operation.seq > seq:
                seq = operation.seq
                latest[operation.id] = operation.fields
        if seq == self.seq:
            return self
        base, *added = [
            part.without([row for id in latest if (row := part.row(id)) is not None])
            for part in self.parts
        ]
        new = {id: fields for id, fields in latest.items() if fields is not None}
        if new:
            if self.bundle.live_model is None:
                self.check("", {})
            added.append(segment(self.encoder, new, [base, *added]))
        return replace(self, seq=seq, base=base, added=settled(self.encoder, added))

    def find(self, id: str) -> tuple[Part, int]:
        """Where a document is. Raises KeyError if there is none."""
        # The newest first: what was written of late is asked for.
        for part in reversed(self.parts):
            row = part.row(id)
            if row is not None:
                return part, row
        raise KeyError(id)

    def fields(self, id: str) -> dict[str, Any]:
        """The stored fields of a document. Raises KeyError if there is none."""
        part, row = self.find(id)
        return part.store.fields(row)

    def batches(self, size: int = 4096) -> Iterator[Batch]:
        """All documents in ascending id order with their encodings, a batch at a time, as ``stream_bundle`` takes them.

        The bundle's rows are copied as they are.
        """
        wholes = [in_model(part, self.encoder.n_sparse) for part in self.parts]
        rest = merged_rows(self.parts)
        while places := list(islice(rest, size)):
            documents = [
                Document(id, self.parts[number].store.fields(row)) for id, number, row in places
            ]
            yield documents, gathered(wholes, places)

    def deleted(
        self, matching: Sequence[Mask] | None = None, exclude: Collection[str] = ()
    ) -> list[Mask | None]:
        """What must not be returned of each part: what is gone, what no filter lets through, and the excluded ids."""
        masks: list[Mask | None] = []
        for i, part in enumerate(self.parts):
            mask = part.removed
            if matching is not None:
                mask = ~matching[i] if mask is None else mask | ~matching[i]
            masks.append(mask)
        for id in exclude:
            for i, part in enumerate(self.parts):
                row = part.row(id)
                if row is None:
                    continue
                mask = masks[i]
                if mask is None:
                    mask = np.zeros(len(part), np.bool_)
                elif mask is part.removed:
                    mask = mask.copy()
                mask[row] = True
                masks[i] = mask
        return masks

    def search(
        self,
        query: Encoded,
        limit: int,
        *,
        offset: int = 0,
        deleted: Sequence[Mask | None] | None = None,
        mode: str = "exact",
    ) -> Found:
        """The places offset..offset + limit of the ranking of all documents for one query.

        query    as ``model`` encodes it
        deleted  what ``deleted`` returned; by default what is gone
        mode     as Retriever.search takes it; added documents are always searched exactly
        """
        deleted = self.deleted() if deleted is None else deleted
        if not self.added:
            wanted, first = limit, offset
        else:
            wanted, first = offset + limit, 0
        hits: list[Hit] = []
        certified, total = True, 0
        for part, mask in zip(self.parts, deleted, strict=True):
            found = part.search(query, wanted, offset=first, deleted=mask, mode=mode)
            certified, total = certified and found.certified, total + found.total
            rows = found.rows.tolist()
            hits += map(
                Hit,
                [part] * len(rows),
                rows,
                [part.store.ids[row] for row in rows],
                found.scores.tolist(),
                found.learned.tolist(),
                found.exact.tolist(),
                found.bias.tolist(),
            )
        if self.added:
            hits.sort(key=lambda hit: (-hit.score, hit.id))
            hits = hits[offset : offset + limit]
        return Found(hits, certified, total)
