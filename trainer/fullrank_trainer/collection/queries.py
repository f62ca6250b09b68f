"""Queries of a collection: their ids in memory, their texts in a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fullrank.errors import CollectionError
from fullrank.text.counting import StoredTexts
from fullrank_trainer.collection.lines import (
    Lines,
    ReadReport,
    find_file,
    id_field,
    read_objects,
    string_field,
)
from fullrank_trainer.collection.store import Records, Stored
from fullrank_trainer.collection.table import Ids


@dataclass(frozen=True, slots=True)
class Query:
    """One query: its id and its text."""

    id: str
    text: str


class _Texts(Stored[str], StoredTexts):
    """Texts in a file."""

    def __init__(self, contents: Records) -> None:
        self._contents = contents

    @property
    def characters(self) -> Sequence[int]:
        """How many bytes each text has."""
        sizes: list[int] = self._contents.sizes.tolist()
        return sizes

    def __len__(self) -> int:
        return len(self._contents.sizes)

    def read(self, place: int) -> str:
        """Read a text."""
        return self._contents[place].decode("utf-8", "surrogatepass")


class StoredQueries(Stored[Query]):
    """Queries in the order of their file; the text of each is read when it is asked for.

    Attributes:
        ids: of the queries.
        texts: of the queries.
    """

    def __init__(self, lines: Lines, report: ReadReport) -> None:
        """Read queries, and count them.

        Raises:
            CollectionError: a line is malformed, or there is no query.
        """
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
        """Read a query."""
        return Query(self.ids[place], self.texts.read(place))


def read_queries(path: str | Path) -> Sequence[Query]:
    """Read queries.

    Args:
        path: a queries.jsonl[.gz], or a folder that holds one.

    Raises:
        CollectionError: the file is missing or malformed.
    """
    given = Path(path)
    found = find_file(given, "queries.jsonl") if given.is_dir() else given
    if found is None:
        raise CollectionError(f"{given}: no queries.jsonl or queries.jsonl.gz")
    return StoredQueries(Lines(found), ReadReport())


def query_text(item: Mapping[str, Any]) -> str:
    """Return the text of a line of queries: its title, if it has one, and its text."""
    text: str = item["text"]
    return f"{item['title']}\n{text}" if "title" in item else text
