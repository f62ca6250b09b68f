"""Facts about documents that the second stage reads: words and length of each field, training queries, date.

A word is its CRC-32, so that documents added later need no vocabulary. Two words of one document share a number
with probability 2⁻³² a pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from fullrank.filters.columns.table import time_of
from fullrank.storage.checks import ascends, misfits
from fullrank.storage.documents import field_text
from fullrank.storage.encoding import Float32, Int32, Int64
from fullrank.text.sequences import TextCounter
from fullrank.text.words import count_words

UInt16 = npt.NDArray[np.uint16]
UInt32 = npt.NDArray[np.uint32]

NO_DATE = int(np.iinfo(np.int32).min)
_MAX_COUNT = int(np.iinfo(np.uint16).max)
MOST_ASKED = 64
"""Training queries of a document whose words are kept; more would cost time in every search."""
STORED = {
    "indptr": ("<i8", "L+1"),
    "words": ("<u4", "E"),
    "counts": ("<u2", "E"),
    "lengths": ("<i4", "n F"),
    "clicks": ("<i4", "n"),
    "days": ("<i4", "n"),
    "asked_indptr": ("<i8", "n+1"),
    "asked_words": ("<u4", "Q"),
    "asked_query": ("<u2", "Q"),
    "asked_weights": ("<f4", "Q"),
}
"""The arrays of facts, of L = n · F lines with E words, and Q words of training queries."""
ASKED = tuple(name for name in STORED if name.startswith("asked"))
"""The arrays about training queries, which older bundles lack."""


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
    found = time_of(value.strip()) if isinstance(value, str) else None
    return NO_DATE if found is None else int(found // 86_400)


@dataclass(frozen=True)
class FactSettings:
    """What to read of a document.

    Attributes:
        fields: (name, the source fields it joins), the text fields.
        date: The field with its date; "" reads no date.
        asked: The field with a line for each training query that led to the document; "" reads none, as older bundles.
    """

    fields: tuple[tuple[str, tuple[str, ...]], ...]
    date: str = ""
    asked: str = ""

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
        asked_indptr: int64 (n + 1,), where the training queries of each document begin, at most MOST_ASKED.
        asked_words: uint32, the distinct words of each of them.
        asked_query: uint16, which of the document's queries, from 0, has the word.
        asked_weights: float32, of the words; zero until ``Statistics.weigh`` sets them.
    """

    indptr: Int64
    words: UInt32
    counts: UInt16
    lengths: Int32
    clicks: Int32
    days: Int32
    asked_indptr: Int64
    asked_words: UInt32
    asked_query: UInt16
    asked_weights: Float32

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
        """Read documents."""
        lines = [
            numbered(counter(field_text(document, sources)))
            for document in documents
            for _, sources in settings.fields
        ]
        asked = [_asked(field_text(doc, [settings.asked]), counter) for doc in documents]
        lengths = np.array([int(counts.sum()) for _, counts in lines], np.int32)
        days = [day_of(document.get(settings.date)) for document in documents]
        return DocumentFacts(
            _starts([len(words) for words, _ in lines]),
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
            _starts([len(words) for words, _ in asked]),
            np.concatenate([np.zeros(0, np.uint32), *(words for words, _ in asked)]),
            np.concatenate([np.zeros(0, np.uint16), *(query for _, query in asked)]),
            np.zeros(sum(len(words) for words, _ in asked), np.float32),
        )

    def take(self, rows: Int64) -> DocumentFacts:
        """Copy the facts of the given documents, in the given order."""
        width = self.fields
        lines = (rows[:, None] * width + np.arange(width)).ravel()
        indptr, entries = _taken(self.indptr, lines)
        asked_indptr, asked = _taken(self.asked_indptr, rows)
        return DocumentFacts(
            indptr,
            self.words.take(entries),
            self.counts.take(entries),
            self.lengths.take(rows, axis=0),
            self.clicks.take(rows),
            self.days.take(rows),
            asked_indptr,
            self.asked_words.take(asked),
            self.asked_query.take(asked),
            self.asked_weights.take(asked),
        )

    @staticmethod
    def concatenate(parts: Sequence[DocumentFacts]) -> DocumentFacts:
        """Put the facts of several groups of documents one after another."""
        joined: dict[str, npt.NDArray[Any]] = {}
        for name in STORED:
            arrays = [getattr(part, name) for part in parts]
            if name.endswith("indptr"):
                joined[name] = _starts(np.concatenate([np.diff(indptr) for indptr in arrays]))
            else:
                joined[name] = np.concatenate(arrays)
        return DocumentFacts(**joined)

    @property
    def asked_of(self) -> Int64:
        """The training query that has each of the words: MOST_ASKED · document + its number there."""
        owner = np.repeat(np.arange(len(self)), np.diff(self.asked_indptr))
        return owner * MOST_ASKED + self.asked_query

    def with_clicks_of(self, earlier: DocumentFacts, rows: Int64) -> DocumentFacts:
        """Give documents the training queries that they had before.

        Args:
            rows: int64 (n,), the row in ``earlier`` of each document; -1: it is not there.
        """
        same = np.flatnonzero(rows >= 0)
        source = np.arange(len(self))
        source[same] = len(self) + np.arange(len(same))
        both = DocumentFacts.concatenate([self, earlier.take(rows[same])])
        found = both.take(source).arrays()
        return replace(self, **{name: found[name] for name in ("clicks", *ASKED)})

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays under the names of STORED."""
        return {name: getattr(self, name) for name in STORED}

    @staticmethod
    def from_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> DocumentFacts:
        """Make facts of `arrays()`, or of those of an older bundle."""
        sizes = dict.fromkeys(ASKED, 0) | {"asked_indptr": len(arrays["days"]) + 1}
        older = {name: np.zeros(size, STORED[name][0]) for name, size in sizes.items()}
        return DocumentFacts(**{name: (older | {**arrays})[name] for name in STORED})

    def check(self, documents: int, fields: int, *, verify: bool) -> None:
        """Check shapes; with verify, also that line starts ascend and words ascend inside a line.

        Raises:
            ValueError: The arrays do not fit each other.
        """
        sizes = {"n": documents, "F": fields, "L": documents * fields}
        sizes |= {"E": self.words.size, "Q": self.asked_words.size}
        for name, reason in misfits(self.arrays(), STORED, sizes):
            raise ValueError(f"{name}: {reason}")
        for prefix in ("", "asked_"):
            indptr, words = (getattr(self, prefix + name) for name in ("indptr", "words"))
            if indptr[0] != 0 or indptr[-1] != len(words):
                raise ValueError(f"{prefix}indptr does not span {prefix}words")
            if verify and not ascends(indptr, len(words)):
                raise ValueError(f"{prefix}indptr does not ascend")
        if not verify:
            return
        if self.asked_query.max(initial=0) >= MOST_ASKED:
            raise ValueError(f"asked_query is not below {MOST_ASKED}")
        descends = np.flatnonzero(self.words[1:] <= self.words[:-1]) + 1
        if len(np.setdiff1d(descends, self.indptr)):
            raise ValueError("words do not ascend inside a line")


def _asked(text: str, counter: TextCounter) -> tuple[UInt32, UInt16]:
    lines = dict.fromkeys(line for line in text.splitlines() if line.strip())
    words = [numbered(counter(line))[0] for line in islice(lines, MOST_ASKED)]
    number = np.repeat(np.arange(len(words), dtype=np.uint16), [len(line) for line in words])
    return np.concatenate([np.zeros(0, np.uint32), *words]), number


def _starts(sizes: Sequence[int] | Int64) -> Int64:
    found = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=found[1:])
    return found


def _taken(indptr: Int64, lines: Int64) -> tuple[Int64, Int64]:
    """Return where the given lines begin when they are put one after another, and their entries."""
    begin = indptr.take(lines)
    sizes = indptr.take(lines + 1) - begin
    found = _starts(sizes)
    entries = np.repeat(begin - found[:-1], sizes)
    entries += np.arange(len(entries))
    return found, entries
