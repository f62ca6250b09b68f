"""From words to weighted sparse rows: tf-idf unit vectors, BM25 weights, letter trigrams.

Training and serving share these functions, for a corpus and for a single query, so a model is served with the same
features, bit for bit, that it was trained with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from fullrank.kernels import tokens
from fullrank.kernels.arrays import UInt8
from fullrank.kernels.compiler import direct
from fullrank.kernels.rows import sort_rows, unit_rows
from fullrank.storage.encoding import Float32, Int32, Int64, Rows
from fullrank.storage.strings import Lexicon, Names, NameTable, StringTable
from fullrank.text.sequences import SPLITTERS, Counted, Tally, TextCounter, chunks_of, tally_words
from fullrank.text.words import BYTES, EVERY_BYTE, count_words, query_words, trigrams

Zeros = Callable[[Sequence[int], npt.DTypeLike], npt.NDArray[Any]]
"""Makes an array of zeros of a shape and dtype, as ``numpy.zeros`` does, but perhaps in a file."""

read_words = direct(tokens.read_words)
_FEW = 64
_TRIGRAM_WORDS = (
    1 << 14
)  # at once: lists of the trigrams of all words would be larger than their rows


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Known words, then `buckets` rows for unknown words; with no buckets, unknown words have no row.

    The buckets of a recipe are trained; those of live documents (fullrank.models.unseen) are not.
    """

    words: Sequence[str]
    buckets: int = 0

    def __len__(self) -> int:
        return len(self.words) + self.buckets

    @cached_property
    def known(self) -> Lexicon:
        return Lexicon.of(self.words)

    def row(self, word: str) -> int:
        """Return the row of a word: its own, that of its bucket, or -1."""
        row = self.known.find(word)
        return len(self.words) + self.bucket(word) if row < 0 and self.buckets else row

    def bucket(self, word: str) -> int:
        """Return the bucket of an unknown word, crc32(word) mod the number of buckets."""
        return crc32(word.encode("utf-8", "surrogatepass")) % self.buckets

    def buckets_of(self, words: Sequence[str]) -> Int32:
        return np.fromiter(map(self.bucket, words), np.int32, len(words))

    def rows(self, words: Sequence[str]) -> Int32:
        """Return the row of each word, int32, -1 where it has none. Do not write to it."""
        found = self.known.rows(words)
        if self.buckets and found.min(initial=0) < 0:
            found = found.copy()
            missing = np.flatnonzero(found < 0)
            unknown = [words[i] for i in missing.tolist()]
            found[missing] = len(self.words) + self.buckets_of(unknown)
        return found


@dataclass(frozen=True, eq=False)
class Counts:
    """A counted corpus: its distinct words, ascending, and one matrix of counts per column of texts."""

    words: Sequence[str]
    columns: list[Rows]

    def in_table(self) -> Counts:
        """Return the counts with their words in a table; no word has a lone surrogate, which no table can hold."""
        table = StringTable.of(self.words)
        return Counts(NameTable(table.blob, table.offsets), self.columns)

    def document_frequency(self) -> Int64:
        """Count the rows in which each word occurs, in any column, int64 (words,)."""
        total = sum((column.csr() for column in self.columns[1:]), self.columns[0].csr())
        return np.bincount(total.indices, minlength=len(self.words)).astype(np.int64)


def count_corpus(
    columns: Sequence[Sequence[str]],
    *,
    processes: int = 1,
    counter: TextCounter = count_words,
    zeros: Zeros = np.zeros,
) -> Counts:
    """Count the words of each column of texts in one pass.

    Args:
        processes: With more than one, a thread splits the next texts meanwhile. The result does not depend on it.
        counter: Counts the words, or phrases, of one text.
        zeros: Makes the arrays of the counts.
    """
    if len(columns) == 1 and len(columns[0]) == 1:
        return count_one(counter(columns[0][0]))
    by_column = [[*chunks_of(column)] for column in columns]
    chunks = [*chain(*by_column)]
    if counter in SPLITTERS:
        tally = tally_words(chunks, processes, SPLITTERS[counter])
    else:
        tally = Tally(counter)
        for number, chunk in enumerate(chunks):
            tally.count(number, chunk.read())
    words = Names(sorted(tally.number))
    index = {word: i for i, word in enumerate(words)}
    place = np.fromiter(map(index.__getitem__, tally.number), np.int32, len(tally.number))
    parts = [_Part(tally.chunks, i, place) for i in range(len(chunks))]
    in_order = iter(parts)
    merged = [_merge([*islice(in_order, len(own))], len(words), zeros) for own in by_column]
    return Counts(words, merged)


def count_one(counted: Mapping[str, int]) -> Counts:
    """Return the counts of a single text, a query, as count_corpus does in more time."""
    words = Names(sorted(counted))
    size = len(words)
    values = np.fromiter(map(counted.__getitem__, words), np.float32, size)
    return Counts(words, [Rows(np.array([0, size]), np.arange(size, dtype=np.int32), values, size)])


class TextWords(NamedTuple):
    """The words of one text, as ``fullrank.kernels.tokens.read_words`` returns them."""

    names: UInt8
    bounds: Int64
    amounts: Float32
    sequence: UInt8
    places: Int64

    @staticmethod
    def of(text: str) -> TextWords:
        """Split and count one text, as `words` and `count_corpus` do in more time."""
        table = BYTES
        if not text.isascii():
            text, table = " ".join(query_words(text)), EVERY_BYTE
        blob = bytearray(text.encode("utf-8", "surrogatepass") + b" ")
        return TextWords(*read_words(np.frombuffer(blob, np.uint8), table))

    def counts(self) -> Counts:
        size = len(self.amounts)
        indptr, indices = np.array([0, size]), np.arange(size, dtype=np.int32)
        rows = Rows(indptr, indices, self.amounts, size)
        return Counts(NameTable(self.names, self.bounds), [rows])


def count_each(texts: Sequence[str]) -> Counts:
    """Return the counts of texts of one word each, as count_corpus does in more time."""
    words = Names(sorted({*texts}))
    place = {word: i for i, word in enumerate(words)}
    indices = np.array([place[text] for text in texts], np.int32)
    ones = np.ones(len(texts), np.float32)
    return Counts(words, [Rows(np.arange(len(texts) + 1), indices, ones, len(words))])


class _Part(NamedTuple):
    """Chunk `number` of those that were counted together; place: int32, of each of their words among all."""

    chunks: dict[int, Counted]
    number: int
    place: Int32

    @property
    def counted(self) -> Counted:
        return self.chunks[self.number]

    def take(self) -> tuple[Int64, Int32, Float32]:
        """Return sizes, indices and counts, entries ascending inside a row, and forget the chunk."""
        counted = self.chunks.pop(self.number)
        sizes, indices, counts = counted.sizes, self.place[counted.indices], counted.counts
        # Pack (row, index, count) into one integer: sorting integers is many times faster than sorting row by row,
        # and than argsort.
        width = int(indices.max(initial=0)) + 1
        owner = np.repeat(np.arange(len(sizes)) * width, sizes)
        keys = owner + indices
        bits = int(counts.max(initial=0)).bit_length()
        if (len(sizes) * width).bit_length() + bits < 64:
            packed = np.sort((keys << bits) | counts)
            counts, keys = packed & ((1 << bits) - 1), packed >> bits
        else:
            order = np.argsort(keys)
            counts, keys = counts[order], keys[order]
        return sizes, (keys - owner).astype(np.int32), counts.astype(np.float32)


def _merge(parts: Sequence[_Part], width: int, zeros: Zeros) -> Rows:
    indptr = np.zeros(sum(len(part.counted.sizes) for part in parts) + 1, np.int64)
    entries = sum(len(part.counted.indices) for part in parts)
    indices, values = zeros([entries], np.int32), zeros([entries], np.float32)
    row = place = 0
    for part in parts:
        sizes, found, counts = part.take()
        end = place + len(found)
        np.cumsum(sizes, out=indptr[row + 1 : row + 1 + len(sizes)])
        indptr[row + 1 : row + 1 + len(sizes)] += place
        indices[place:end], values[place:end] = found, counts
        row, place = row + len(sizes), end
    return Rows(indptr, indices, values, width)


def unit(rows: Rows) -> Rows:
    return rows.with_values(unit_rows(rows.indptr, rows.values))


def tfidf(counts: Rows, idf: Float32) -> Rows:
    """Weigh counts as unit vectors of (1 + ln tf) · idf, the papers' feature map up to the damping of tf."""
    return unit(counts.with_values(damped(counts.values) * idf[counts.indices]))


def damped(tf: Float32) -> Float32:
    """Return 1 + ln tf, and a tf below 1 as it is."""
    if (tf == 1).all():  # most queries
        return tf
    return (1 + np.log(np.maximum(tf, 1))) * np.minimum(tf, 1)


def bm25(counts: Rows, idf: Float32, *, k1: float, b: float, mean_length: float) -> Rows:
    """Weigh documents as Robertson: idf · tf (k1 + 1) / (tf + k1 (1 − b + b · length / mean length))."""
    lengths = counts.sums() / np.float32(max(mean_length, 1e-9))
    scale = counts.spread(k1 * (1 - b + b * lengths)).astype(np.float32)
    tf = counts.values
    return counts.with_values(idf[counts.indices] * tf * np.float32(k1 + 1) / (tf + scale))


def saturate(counts: Rows, k3: float) -> Rows:
    """Weigh queries as BM25: tf (k3 + 1) / (tf + k3); k3 = 0 counts each word once, k3 = inf counts it tf times."""
    tf = counts.values
    if k3 == np.inf:
        return counts
    return counts.with_values(tf * np.float32(k3 + 1) / (tf + np.float32(k3)))


def tfidf_idf(document_frequency: Int64, documents: int) -> Float32:
    """Return idf = 1 + ln((1 + n) / (1 + df)), float32; never zero, so a word of all texts still has some weight."""
    return (1 + np.log((1 + documents) / (1 + document_frequency))).astype(np.float32)


def bm25_idf(document_frequency: Int64, documents: int) -> Float32:
    """Return idf = ln(1 + (n − df + ½) / (df + ½)), float32, positive."""
    df = document_frequency
    return np.log1p((documents - df + 0.5) / (df + 0.5)).astype(np.float32)


def trigram_rows(words: Iterable[str], vocabulary: Vocabulary) -> Rows:
    """Make a row per word: its known letter trigrams, each 1 / √(number of trigrams of the word), repeats added up."""
    waiting = iter(words)
    blocks = [_trigram_block([*islice(waiting, _TRIGRAM_WORDS)], vocabulary)]
    while block := [*islice(waiting, _TRIGRAM_WORDS)]:
        blocks.append(_trigram_block(block, vocabulary))
    return blocks[0] if len(blocks) == 1 else Rows.vstack(blocks)


def _trigram_block(words: Sequence[str], vocabulary: Vocabulary) -> Rows:
    if len(words) <= _FEW:
        return _few_trigrams(words, vocabulary)
    sizes = np.fromiter(map(len, words), np.int64, len(words))
    owner = np.repeat(np.arange(len(words)), sizes)
    found = vocabulary.rows(_windows(words, owner))
    is_known = found >= 0
    owner = owner[is_known]
    indptr = np.zeros(len(words) + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=len(words)), out=indptr[1:])
    shares = np.array([0.0, *(n**-0.5 for n in range(1, sizes.max() + 1))], np.float32)
    entries = sort_rows(indptr, found[is_known], shares[sizes[owner]])
    return Rows(*entries, len(vocabulary))


def _few_trigrams(words: Sequence[str], vocabulary: Vocabulary) -> Rows:
    parts = list(map(trigrams, words))
    known = iter(vocabulary.rows([trigram for several in parts for trigram in several]).tolist())
    rows = []
    for several in parts:
        found = [row for row in islice(known, len(several)) if row >= 0]
        rows.append((found, [len(several) ** -0.5] * len(found)))
    return Rows.from_lists(rows, len(vocabulary))


def _windows(words: Sequence[str], owner: Int64) -> Sequence[str]:
    """Return the trigrams of words one after another; owner: the word of each, int64."""
    marked = "".join([f"#{word}#" for word in words])
    if not marked.isascii():
        return [trigram for word in words for trigram in trigrams(word)]
    letters = np.frombuffer(marked.encode(), np.uint8)
    windows = sliding_window_view(letters, 3)[np.arange(len(owner)) + 2 * owner]
    return NameTable(windows.ravel(), np.arange(len(owner) + 1) * 3)
