"""Documents of a collection in a temporary file: a training reads texts a few times and needs the memory in between."""

from __future__ import annotations

import marshal
import os
import tempfile
import weakref
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np

from fullrank.errors import CollectionError
from fullrank.storage.documents import Document, field_text
from fullrank.storage.encoding import Int64
from fullrank.text.sequences import StoredTexts
from fullrank_trainer.collection.pairs import Ids
from fullrank_trainer.lines import (
    Lines,
    ReadReport,
    find_file,
    id_field,
    read_objects,
    string_field,
)

Item = TypeVar("Item")


class Records:
    """Bytes in an anonymous file; starts and sizes are those of each record, int64."""

    def __init__(self, records: Iterable[bytes]) -> None:
        ends = array("q", [0])
        with tempfile.TemporaryFile() as file:
            for record in records:
                ends.append(ends[-1] + file.write(record))
            file.flush()
            self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)
        bounds = np.array(ends, np.int64)
        self.starts, self.sizes = bounds[:-1], np.diff(bounds)

    def __getitem__(self, place: int) -> bytes:
        return os.pread(self._file, int(self.sizes[place]), int(self.starts[place]))


class Stored(Sequence[Item], ABC):
    """Items that are read from a file when they are asked for."""

    @abstractmethod
    def read(self, place: int) -> Item:
        """Read the item at a place, which is at least 0 and below their number."""

    @overload
    def __getitem__(self, place: int) -> Item: ...

    @overload
    def __getitem__(self, place: slice) -> list[Item]: ...

    def __getitem__(self, place: int | slice) -> Item | list[Item]:
        places = range(len(self))[place]
        return self.read(places) if isinstance(places, int) else [*map(self.read, places)]

    def __iter__(self) -> Iterator[Item]:
        return map(self.read, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(
            mine == theirs for mine, theirs in zip(self, other, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]


class StoredDocuments(Stored[Document]):
    """Documents in ascending order of id; each is read from an anonymous file when it is asked for."""

    def __init__(self, documents: Iterable[Document]) -> None:
        """Store documents of distinct ids, which come in any order, one by one."""
        found: list[str] = []

        def contents() -> Iterator[bytes]:
            for document in documents:
                found.append(document.id)
                yield marshal.dumps(dict(document.fields))

        self._contents = Records(contents())
        order = sorted(range(len(found)), key=found.__getitem__)
        self.ids = Ids(found[i] for i in order)
        self._order = np.array(order, np.int64)

    @property
    def stored_order(self) -> Int64:
        """The row of each document, in the order in which they came, int64 (documents,)."""
        return np.argsort(self._order)

    def texts(self, field: str) -> StoredTexts:
        return _FieldTexts(self, field)

    @property
    def sizes(self) -> Int64:
        """The bytes of each document in the file, int64 (documents,)."""
        return self._contents.sizes[self._order]

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, place: int) -> Document:
        content = self._contents[int(self._order[place])]
        return Document(self.ids[place], marshal.loads(content))


class _FieldTexts(Stored[str], StoredTexts):
    def __init__(self, documents: StoredDocuments, field: str) -> None:
        self._documents, self._fields = documents, [field]

    @property
    def characters(self) -> Sequence[int]:
        """An upper bound on the characters of each text: the bytes of all its fields."""
        sizes: list[int] = self._documents.sizes.tolist()
        return sizes

    def __len__(self) -> int:
        return len(self._documents)

    def read(self, place: int) -> str:
        return field_text(self._documents.read(place).fields, self._fields)


@dataclass(frozen=True, slots=True)
class Query:
    """One query: its id and its text."""

    id: str
    text: str


class _Texts(Stored[str], StoredTexts):
    def __init__(self, contents: Records) -> None:
        self._contents = contents

    @property
    def characters(self) -> Sequence[int]:
        sizes: list[int] = self._contents.sizes.tolist()
        return sizes

    def __len__(self) -> int:
        return len(self._contents.sizes)

    def read(self, place: int) -> str:
        return self._contents[place].decode("utf-8", "surrogatepass")


class StoredQueries(Stored[Query]):
    """Queries in the order of their file; the text of each is read when it is asked for."""

    def __init__(self, lines: Lines, report: ReadReport) -> None:
        """Read queries, and count them. Raises CollectionError."""
        seen: dict[str, int] = {}

        def texts() -> Iterator[bytes]:
            for number, item in read_objects(lines, report):
                try:
                    id_field(lines, number, item, seen)
                    string_field(lines, number, item, "text")
                    if "title" in item:
                        string_field(lines, number, item, "title")
                except CollectionError as error:
                    lines.refuse(error)
                    continue
                text = query_text(item)
                report.empty_queries += not text.strip()
                yield text.encode("utf-8", "surrogatepass")

        self.texts = _Texts(Records(texts()))
        if not seen:
            raise CollectionError(f"{lines.path}: no queries")
        self.ids = Ids(seen)
        report.queries = len(seen)

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, place: int) -> Query:
        return Query(self.ids[place], self.texts.read(place))


def read_queries(path: str | Path) -> Sequence[Query]:
    """Read a queries.jsonl[.gz], or that of a folder. Raises CollectionError."""
    given = Path(path)
    found = find_file(given, "queries.jsonl") if given.is_dir() else given
    if found is None:
        raise CollectionError(f"{given}: no queries.jsonl or queries.jsonl.gz")
    return StoredQueries(Lines(found), ReadReport())


def query_text(item: Mapping[str, Any]) -> str:
    """Return the text of a line of queries: its title, if it has one, and its text."""
    text: str = item["text"]
    return f"{item['title']}\n{text}" if "title" in item else text
