"""Documents that are read once: the models of a blend share the counts of their fields.

DocumentReading  counts the words of fields
SplitDocuments   has the words of some fields already
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Any

import numpy as np

from fullrank.models.contract import fields_texts
from fullrank.storage.encoding import Float32, Int64, Rows
from fullrank.storage.strings import NameTable
from fullrank.text.features import Counts, TextWords, count_corpus, count_each, damped
from fullrank.text.forms import Joined, Neighbours, joined
from fullrank.text.words import query_words, words

# Queries that are read once: the models of a blend share their words and counts.

_FEW = 16


class Reading(Sequence[str]):
    """Texts, and what every model reads in them; a model that takes texts takes this too."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    @staticmethod
    def of(texts: Sequence[str]) -> Reading:
        return texts if isinstance(texts, Reading) else Reading(texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, place: Any) -> Any:
        return self._texts[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    @cached_property
    def words(self) -> list[str]:
        """The words of the only text, in order; of several texts they would take too much memory."""
        [text] = self._texts
        return list(query_words(text))

    @cached_property
    def are_words(self) -> bool:
        """Whether the texts are few, and each is one word as words are written; so are the completions of a word."""
        return len(self) <= _FEW and all(query_words(text) == (text,) for text in self._texts)

    @cached_property
    def typed(self) -> TextWords:
        """The words of the only text."""
        [text] = self._texts
        return TextWords.of(text)

    @cached_property
    def damped(self) -> Float32:
        """The damped counts of its words."""
        return damped(self.typed.amounts)

    @cached_property
    def spaced(self) -> NameTable:
        """The words of the only text in order, with a space behind each."""
        return NameTable(self.typed.sequence, self.typed.places)

    @cached_property
    def neighbours(self) -> Neighbours:
        """The neighbouring words of the only text."""
        return Neighbours(self.spaced)

    @cached_property
    def joined(self) -> list[Joined]:
        """The neighbouring words of the only text, joined."""
        return joined(self.words)

    @cached_property
    def counts(self) -> Counts:
        """The counts of the words of each text: one column."""
        if len(self) == 1:
            return self.typed.counts()
        if self.are_words:
            return count_each(self._texts)
        return count_corpus([self._texts])


Columns = Sequence[Sequence[str]]
"""The source fields of each column of texts."""


class DocumentReading(Sequence[Mapping[str, Any]]):
    """Documents, field → text, and the counts of their words; a model that takes documents takes this too."""

    def __init__(self, documents: Sequence[Mapping[str, Any]]) -> None:
        self._documents = documents
        self._texts: dict[tuple[str, ...], list[str]] = {}
        self._counts: dict[tuple[tuple[str, ...], ...], Counts] = {}

    @staticmethod
    def of(documents: Sequence[Mapping[str, Any]]) -> DocumentReading:
        return documents if isinstance(documents, DocumentReading) else DocumentReading(documents)

    def __len__(self) -> int:
        return len(self._documents)

    def __getitem__(self, place: Any) -> Any:
        return self._documents[place]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self._documents)

    def texts(self, sources: Sequence[str]) -> list[str]:
        """Return one column of texts: the named fields of each document, joined. Do not change it."""
        key = tuple(sources)
        if key not in self._texts:
            self._texts[key] = fields_texts(self._documents, key)
        return self._texts[key]

    def counts(self, columns: Columns) -> Counts:
        """Return the counts of the words of each column."""
        key = tuple(map(tuple, columns))
        if key not in self._counts:
            self._counts[key] = count_corpus([self.texts(sources) for sources in columns])
        return self._counts[key]


class SplitDocuments(DocumentReading):
    """Documents some of whose fields are already split into words.

    Args:
        known: All words of the split fields.
        split: For each document the places in `known` of the words of a field, int64, by name.
    """

    def __init__(
        self,
        documents: Sequence[Mapping[str, Any]],
        known: Sequence[str],
        split: Sequence[Mapping[str, Int64]],
    ) -> None:
        super().__init__(documents)
        self._number = {word: i for i, word in enumerate(known)}
        self._split = [dict(fields) for fields in split]

    def counts(self, columns: Columns) -> Counts:
        """Count over the words of all fields that were split so far; those of fields split only now come last."""
        key = tuple(map(tuple, columns))
        if key not in self._counts:
            self._split_also({name for sources in columns for name in sources})
            found = [self._column(sources) for sources in columns]
            self._counts[key] = Counts(list(self._number), found)
        return self._counts[key]

    def _split_also(self, names: Set[str]) -> None:
        """Split the fields of these names that are not split yet."""
        number = self._number
        for document, split in zip(self, self._split, strict=True):
            for name in names - split.keys():
                if isinstance(text := document.get(name), str):
                    places = [number.setdefault(word, len(number)) for word in words(text)]
                    split[name] = np.array(places, np.int64)

    def _column(self, sources: Sequence[str]) -> Rows:
        width, count = len(self._number), len(self)
        found = [
            split[name] + i * width
            for i, split in enumerate(self._split)
            for name in sources
            if name in split
        ]
        if not found:
            return Rows.empty(count, width)
        entries, counts = np.unique(np.concatenate(found), return_counts=True)
        bounds = np.arange(count + 1) * width
        indptr = np.searchsorted(entries, bounds)
        indices = (entries - np.repeat(bounds[:-1], np.diff(indptr))).astype(np.int32)
        return Rows(indptr, indices, counts.astype(np.float32), width)
