"""Documents as they come from a corpus, and the mapped store that a bundle answers hits from."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fullrank.errors import BundleError
from fullrank.storage.strings import StringTable


@dataclass(frozen=True, slots=True)
class Document:
    """One document: its id and every other field of its corpus line (JSON values)."""

    id: str
    fields: Mapping[str, Any]

    def texts(self, names: Iterable[str]) -> dict[str, str]:
        """The named text fields; one that is absent or null is the empty string.

        Raises TypeError when a named field holds something other than text.
        """
        texts = {}
        for name in names:
            value = self.fields.get(name)
            if value is not None and not isinstance(value, str):
                kind = type(value).__name__
                raise TypeError(f"document {self.id!r}: field {name!r} is {kind}, not text")
            texts[name] = value or ""
        return texts


def fields_line(document: Document) -> str:
    """The stored fields as one JSON line, in the order the corpus gave them.

    Raises BundleError naming the document when a value has no JSON form (NaN, infinity).
    """
    try:
        line = json.dumps(
            document.fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        )
        line.encode()
    except UnicodeEncodeError:
        # JSON can spell a lone surrogate that utf-8 cannot hold; escaped it survives the trip.
        line = json.dumps(document.fields, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise BundleError(f"document {document.id!r} cannot be stored: {error}") from error
    return line + "\n"


class DocumentStore:
    """Stored fields by row, rows by id; rows are in ascending id order.

    Ids ascend by code point, which is also the order of their utf-8 bytes, so "ties by id" and
    "ties by row" are the same rule. Finding a row is a binary search over the mapped ids: nothing
    is built at load and worker processes share the pages.
    """

    def __init__(self, ids: Sequence[str], lines: Sequence[str]) -> None:
        """ids ascending and distinct; lines[row] is the JSON object of that row's fields."""
        self._ids = ids
        self._lines = lines

    @classmethod
    def of(cls, documents: Sequence[Document]) -> DocumentStore:
        """A store in memory, for documents already in ascending id order."""
        return cls(
            StringTable.of(document.id for document in documents),
            StringTable.of(fields_line(document) for document in documents),
        )

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> Sequence[str]:
        """The id of every row."""
        return self._ids

    def row(self, id: str) -> int:
        """The row of a document id. Raises KeyError if there is none."""
        row = bisect_left(self._ids, id)
        if row == len(self._ids) or self._ids[row] != id:
            raise KeyError(id)
        return row

    def line(self, row: int) -> str:
        """The stored fields of one row as the JSON line that they are."""
        return self._lines[row]

    def corpus_line(self, row: int) -> str:
        """One row as the line of a corpus.jsonl: its id as _id, and its fields."""
        id, line = json.dumps(self._ids[row], ensure_ascii=False), self._lines[row]
        return f'{{"_id":{id}}}\n' if line.rstrip() == "{}" else f'{{"_id":{id},{line[1:]}'

    def fields(self, row: int) -> dict[str, Any]:
        """The stored fields of one row. Raises IndexError, or BundleError on a damaged line."""
        try:
            fields = json.loads(self._lines[row])
        except ValueError as error:
            raise BundleError(f"documents/fields.jsonl: row {row}: {error}") from error
        if not isinstance(fields, dict):
            raise BundleError(f"documents/fields.jsonl: row {row} is not a JSON object")
        return fields

    def document(self, row: int) -> Document:
        """One row as a Document."""
        return Document(self._ids[row], self.fields(row))
