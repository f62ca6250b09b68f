"""Documents that are read once: the models of a blend share the counts of their fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fullrank.models.contract import field_text
from fullrank.text.features import Counts, count_corpus

Columns = Sequence[Sequence[str]]
"""The source fields of each column of texts."""


class DocumentReading(Sequence[Mapping[str, Any]]):
    """Documents, field → text, and the counts of their words; a model that takes documents takes this too.

    Example:
        >>> reading = DocumentReading.of([{"title": "Red apple"}])
        >>> DocumentReading.of(reading) is reading, reading.counts([["title"]]).words
        (True, ['apple', 'red'])
    """

    def __init__(self, documents: Sequence[Mapping[str, Any]]) -> None:
        self._documents = documents
        self._counts: dict[tuple[tuple[str, ...], ...], Counts] = {}

    @staticmethod
    def of(documents: Sequence[Mapping[str, Any]]) -> DocumentReading:
        """Return the documents as they are if they are a DocumentReading."""
        return documents if isinstance(documents, DocumentReading) else DocumentReading(documents)

    def __len__(self) -> int:
        return len(self._documents)

    def __getitem__(self, place: Any) -> Any:
        return self._documents[place]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self._documents)

    def texts(self, sources: Sequence[str]) -> list[str]:
        """Return one column of texts: the named fields of each document, joined."""
        return [field_text(document, sources) for document in self._documents]

    def counts(self, columns: Columns) -> Counts:
        """Return the counts of the words of each column."""
        key = tuple(map(tuple, columns))
        if key not in self._counts:
            self._counts[key] = count_corpus([self.texts(sources) for sources in columns])
        return self._counts[key]
