"""Facts about documents that the second stage reads: words and length of each field, clicks, date.

A word is its CRC-32, so that documents added later need no vocabulary. Two words of one document share a number
with probability 2⁻³² a pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Int32, Int64
from fullrank.filters.columns.times import parse_time
from fullrank.models.contract import field_text
from fullrank.storage.checks import ascends
from fullrank.text.counting import TextCounter
from fullrank.text.words import count_words

UInt16 = npt.NDArray[np.uint16]
UInt32 = npt.NDArray[np.uint32]

NO_DATE = int(np.iinfo(np.int32).min)
_MAX_COUNT = int(np.iinfo(np.uint16).max)
DTYPES = {
    "indptr": "<i8",
    "words": "<u4",
    "counts": "<u2",
    "lengths": "<i4",
    "clicks": "<i4",
    "days": "<i4",
}


def word_number(word: str) -> int:
    """Return the number of a word, its CRC-32."""
    return crc32(word.encode("utf-8", "surrogatepass"))


def numbered(counts: Mapping[str, int]) -> tuple[UInt32, Int64]:
    """Return the distinct numbers of counted words, ascending, and the count of each."""
    totals: dict[int, int] = {}
    for word, count in counts.items():
        number = word_number(word)
        totals[number] = totals.get(number, 0) + count
    found = sorted(totals)
    return np.array(found, np.uint32), np.array([totals[number] for number in found], np.int64)


def day_of(value: object) -> int:
    """Return the days since 1970 of a text that is a time as in filters; NO_DATE for any other value."""
    found = parse_time(value.strip()) if isinstance(value, str) else None
    return NO_DATE if found is None else int(found // 86_400)


@dataclass(frozen=True)
class FactSettings:
    """What to read of a document.

    Attributes:
        fields: (name, the source fields it joins), the text fields.
        date: The field with its date; "" reads no date.
    """

    fields: tuple[tuple[str, tuple[str, ...]], ...]
    date: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the text fields."""
        return tuple(name for name, _ in self.fields)


@dataclass(frozen=True, eq=False)
class DocumentFacts:
    """Facts about n documents with F text fields; field f of document d is line d · F + f.

    Attributes:
        indptr: int64 (n · F + 1,); line i has the entries indptr[i]:indptr[i + 1].
        words: uint32 (entries,), ascending and distinct inside a line.
        counts: uint16 (entries,), of each word.
        lengths: int32 (n, F), words of each field, repeats included.
        clicks: int32 (n,), training queries that led to the document.
        days: int32 (n,), days since 1970; NO_DATE where it is unknown.
    """

    indptr: Int64
    words: UInt32
    counts: UInt16
    lengths: Int32
    clicks: Int32
    days: Int32

    def __len__(self) -> int:
        return len(self.clicks)

    @property
    def fields(self) -> int:
        """F, the number of text fields."""
        return int(self.lengths.shape[1])

    @staticmethod
    def of(
        documents: Sequence[Mapping[str, Any]],
        settings: FactSettings,
        clicks: Int32 | None = None,
        counter: TextCounter = count_words,
    ) -> DocumentFacts:
        """Read documents.

        Args:
            documents: Stored fields by name.
            settings: What to read.
            clicks: int32 (n,); by default no document has any.
            counter: Counts the words of a text.
        """
        lines = [
            numbered(counter(field_text(document, sources)))
            for document in documents
            for _, sources in settings.fields
        ]
        indptr = np.zeros(len(lines) + 1, np.int64)
        np.cumsum([len(words) for words, _ in lines], out=indptr[1:])
        lengths = np.array([int(counts.sum()) for _, counts in lines], np.int32)
        days = [day_of(document.get(settings.date)) for document in documents]
        return DocumentFacts(
            indptr,
            np.concatenate([np.zeros(0, np.uint32), *(words for words, _ in lines)]),
            np.concatenate(
                [
                    np.zeros(0, np.uint16),
                    *(np.minimum(counts, _MAX_COUNT).astype(np.uint16) for _, counts in lines),
                ]
            ),
            lengths.reshape(len(documents), len(settings.fields)),
            np.zeros(len(documents), np.int32) if clicks is None else clicks.astype(np.int32),
            np.array(days, np.int32),
        )

    def take(self, rows: Int64) -> DocumentFacts:
        """Copy the facts of the given documents, in the given order."""
        width = self.fields
        lines = (rows[:, None] * width + np.arange(width)).ravel()
        begin = self.indptr.take(lines)
        sizes = self.indptr.take(lines + 1) - begin
        indptr = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=indptr[1:])
        entries = np.repeat(begin - indptr[:-1], sizes)
        entries += np.arange(len(entries))
        return DocumentFacts(
            indptr,
            self.words.take(entries),
            self.counts.take(entries),
            self.lengths.take(rows, axis=0),
            self.clicks.take(rows),
            self.days.take(rows),
        )

    @staticmethod
    def concatenate(parts: Sequence[DocumentFacts]) -> DocumentFacts:
        """Put the facts of several groups of documents one after another."""
        starts = np.cumsum([0] + [int(part.indptr[-1]) for part in parts])
        tails = [part.indptr[1:] + start for part, start in zip(parts, starts, strict=False)]
        return DocumentFacts(
            np.concatenate([np.zeros(1, np.int64), *tails]),
            np.concatenate([part.words for part in parts]),
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.lengths for part in parts]),
            np.concatenate([part.clicks for part in parts]),
            np.concatenate([part.days for part in parts]),
        )

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays under the names of DTYPES."""
        return {name: getattr(self, name) for name in DTYPES}

    @staticmethod
    def from_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> DocumentFacts:
        """Make facts of `arrays()`."""
        return DocumentFacts(**{name: arrays[name] for name in DTYPES})

    def check(self, documents: int, fields: int, *, verify: bool) -> None:
        """Check shapes; with verify, also that line starts ascend and words ascend inside a line.

        Raises:
            ValueError: The arrays do not fit each other.
        """
        shapes = {
            "indptr": (documents * fields + 1,),
            "lengths": (documents, fields),
            "clicks": (documents,),
            "days": (documents,),
            "counts": self.words.shape,
        }
        for name, dtype in DTYPES.items():
            array = getattr(self, name)
            if array.dtype.str != dtype or array.shape != shapes.get(name, array.shape):
                raise ValueError(f"{name} is {array.dtype.str} {array.shape}")
        if self.words.ndim != 1:
            raise ValueError(f"words is {self.words.shape}")
        if self.indptr[0] != 0 or self.indptr[-1] != len(self.words):
            raise ValueError("indptr does not span words")
        if not verify:
            return
        if not ascends(self.indptr, len(self.words)):
            raise ValueError("indptr does not ascend")
        descends = np.flatnonzero(self.words[1:] <= self.words[:-1]) + 1
        if len(np.setdiff1d(descends, self.indptr)):
            raise ValueError("words do not ascend inside a line")
