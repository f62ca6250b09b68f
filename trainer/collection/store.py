"""Documents of a collection in a temporary file: a training reads texts a few times and needs the memory in between."""

from __future__ import annotations

import marshal
import os
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np

from fullrank.encoding import Int64
from fullrank.storage.documents import Document


class StoredDocuments(Sequence[Document]):
    """Documents in ascending order of id; each is read from an anonymous file when it is asked for.

    Attributes:
        ids: of the documents.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        """Store documents of distinct ids, which come in any order, one by one."""
        found: list[str] = []
        ends = array("q", [0])
        with tempfile.TemporaryFile() as file:
            for document in documents:
                found.append(document.id)
                ends.append(ends[-1] + file.write(marshal.dumps(dict(document.fields))))
            file.flush()
            self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)
        order = sorted(range(len(found)), key=found.__getitem__)
        self.ids = [found[i] for i in order]
        bounds = np.array(ends, np.int64)
        self._starts, self._sizes = bounds[order], np.diff(bounds)[order]

    @property
    def stored_order(self) -> Int64:
        """The row of each document, in the order in which they came, int64 (documents,)."""
        return np.argsort(self._starts)

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> Document: ...

    @overload
    def __getitem__(self, place: slice) -> list[Document]: ...

    def __getitem__(self, place: int | slice) -> Document | list[Document]:
        if isinstance(place, slice):
            return [self[row] for row in range(*place.indices(len(self)))]
        size, start = int(self._sizes[place]), int(self._starts[place])
        return Document(self.ids[place], marshal.loads(os.pread(self._file, size, start)))

    def __iter__(self) -> Iterator[Document]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(
            mine == theirs for mine, theirs in zip(self, other, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]
