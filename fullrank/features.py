"""From words to weighted sparse vectors: tf-idf unit vectors, BM25 weights, letter trigrams.

Everything here works on rows of counts in CSR form, a corpus and a single query alike, so that what a model saw while
training is, bit for bit, what it sees while serving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from zlib import crc32

import numpy as np
import scipy.sparse as sp

from fullrank.encoding import Float32, Int32, Int64
from fullrank.text.counting import Counted, TextCounter, count_chunks
from fullrank.text.words import count_words, trigrams

# Below this many characters one process is done before another has started.
_PARALLEL_CHARACTERS = 4_000_000
_CHUNK_CHARACTERS = 1_000_000
_ZERO = np.zeros(1, np.float32)


@dataclass(frozen=True, eq=False)
class Rows:
    """B sparse rows: indptr int64 (B + 1,), indices int32 ascending inside a row, values float32, width F."""

    indptr: Int64
    indices: Int32
    values: Float32
    width: int

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def csr(self) -> sp.csr_array[np.float32]:
        """The rows as a (B, F) matrix over the same memory."""
        return sp.csr_array((self.values, self.indices, self.indptr), shape=(len(self), self.width))

    def with_values(self, values: Float32) -> Rows:
        """The same entries with other values."""
        return Rows(self.indptr, self.indices, values.astype(np.float32, copy=False), self.width)

    def take(self, rows: Int64) -> Rows:
        """The given rows, in the given order."""
        return rows_of(self.csr()[rows])

    @staticmethod
    def from_lists(rows: Sequence[tuple[Sequence[int], Sequence[float]]], width: int) -> Rows:
        """Rows of (indices, values), in any order inside a row; equal indices are added up."""
        indptr = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(indices) for indices, _ in rows], out=indptr[1:])
        indices = np.fromiter((i for row in rows for i in row[0]), np.int32, int(indptr[-1]))
        values = np.fromiter((v for row in rows for v in row[1]), np.float32, int(indptr[-1]))
        matrix = sp.csr_array((values, indices, indptr), shape=(len(rows), width))
        matrix.sum_duplicates()
        return rows_of(matrix)


def rows_of(matrix: sp.csr_array[np.float32]) -> Rows:
    """A scipy matrix as rows, entries ascending inside each."""
    matrix.sort_indices()
    return Rows(
        matrix.indptr.astype(np.int64, copy=False),
        matrix.indices.astype(np.int32, copy=False),
        matrix.data.astype(np.float32, copy=False),
        matrix.shape[1],
    )


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Known words, then ``buckets`` rows that unseen words are hashed into (none: unseen words are dropped)."""

    words: Sequence[str]
    buckets: int = 0

    def __len__(self) -> int:
        return len(self.words) + self.buckets

    @cached_property
    def index(self) -> dict[str, int]:
        """Word → row."""
        return {word: i for i, word in enumerate(self.words)}

    def row(self, word: str) -> int:
        """The row of a word: its own, its bucket's, or -1."""
        found = self.index.get(word)
        if found is not None:
            return found
        if self.buckets:
            return len(self.words) + crc32(word.encode("utf-8", "surrogatepass")) % self.buckets
        return -1

    def rows(self, words: Sequence[str]) -> Int32:
        """The row of each word, int32, -1 where it has none."""
        return np.fromiter(map(self.row, words), np.int32, len(words))


@dataclass(frozen=True, eq=False)
class Counts:
    """A corpus after one pass: every distinct word, ascending, and one matrix of counts per column of texts."""

    words: list[str]
    columns: list[Rows]

    def over(self, vocabulary: Vocabulary) -> list[Rows]:
        """The columns over another vocabulary; words without a row there are left out."""
        target = vocabulary.rows(self.words)
        return [moved(column, target, len(vocabulary)) for column in self.columns]

    def document_frequency(self) -> Int64:
        """In how many rows each word stands, in any column, int64 (words,)."""
        total = sum((column.csr() for column in self.columns[1:]), self.columns[0].csr())
        return np.bincount(total.indices, minlength=len(self.words)).astype(np.int64)


def moved(rows: Rows, target: Int32, width: int) -> Rows:
    """Rows with column j moved to target[j]; -1 leaves it out, columns that meet are added up."""
    place = target[rows.indices]
    known = place >= 0
    keys, values = place[known], rows.values[known]
    if len(rows) > 1:
        owner = np.repeat(np.arange(len(rows)), np.diff(rows.indptr))[known]
        keys = owner * np.int64(width) + keys
    if len(keys) > 1 and not (keys[1:] > keys[:-1]).all():
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], values[order]
        first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        keys, values = keys[first], np.add.reduceat(values, first)
    if len(rows) == 1:
        return Rows(np.array([0, len(keys)]), keys, values, width)
    indptr = np.searchsorted(keys, np.arange(len(rows) + 1) * np.int64(width))
    return Rows(indptr.astype(np.int64), (keys % max(width, 1)).astype(np.int32), values, width)


def _chunks(texts: Sequence[str]) -> Iterable[Sequence[str]]:
    start = size = 0
    for i, text in enumerate(texts):
        size += len(text)
        if size >= _CHUNK_CHARACTERS:
            yield texts[start : i + 1]
            start, size = i + 1, 0
    yield texts[start:]


def count_corpus(
    columns: Sequence[Sequence[str]],
    *,
    processes: int = 1,
    progress: Callable[[int], object] | None = None,
    counter: TextCounter = count_words,
) -> Counts:
    """Count the words of each column of texts in one pass, over several processes when there is enough to do.

    columns    texts, e.g. titles and bodies; columns may differ in length
    processes  cores to use, this process's own among them
    progress   called with the number of texts of each finished chunk
    counter    what counts a text: its words, or phrases

    The result does not depend on ``processes``.
    """
    if len(columns) == 1 and len(columns[0]) == 1 and progress is None:
        return _count_one(columns[0][0], counter)
    chunks = [(c, chunk) for c, column in enumerate(columns) for chunk in _chunks(column)]
    characters = sum(len(text) for column in columns for text in column)
    if characters < _PARALLEL_CHARACTERS:
        processes = 1
    tallies = count_chunks(
        [chunk for _, chunk in chunks], processes, progress or (lambda texts: None), counter
    )
    words = sorted(set().union(*(tally.number for tally in tallies)))
    index = {word: i for i, word in enumerate(words)}
    counted: dict[int, Counted] = {}
    for tally in tallies:
        number = tally.number
        place = np.fromiter(map(index.__getitem__, number), np.int32, len(number))
        for i, chunk in tally.chunks.items():
            counted[i] = chunk._replace(indices=place[chunk.indices])
    merged: list[list[Counted]] = [[] for _ in columns]
    for i, (c, _) in enumerate(chunks):
        merged[c].append(counted[i])
    return Counts(words, [_merge(parts, len(words)) for parts in merged])


def _count_one(text: str, counter: TextCounter) -> Counts:
    """As ``count_corpus``, of a single text: a query."""
    counted = counter(text)
    words = sorted(counted)
    size = len(words)
    values = np.fromiter(map(counted.__getitem__, words), np.float32, size)
    return Counts(words, [Rows(np.array([0, size]), np.arange(size, dtype=np.int32), values, size)])


def _merge(parts: list[Counted], width: int) -> Rows:
    """The rows of all parts one after another, entries ascending inside each."""
    sizes = np.concatenate([part.sizes for part in parts])
    indptr = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=indptr[1:])
    indices = np.concatenate([part.indices for part in parts])
    counts = np.concatenate([part.counts for part in parts])
    # (row, index, count) as one integer: sorting plain integers is many times faster than sorting
    # row by row, and than sorting places.
    owner = np.repeat(np.arange(len(sizes)) * width, sizes)
    keys = owner + indices
    bits = int(counts.max(initial=0)).bit_length()
    if (len(sizes) * width).bit_length() + bits < 64:
        packed = np.sort((keys << bits) | counts)
        counts, keys = packed & ((1 << bits) - 1), packed >> bits
    else:
        order = np.argsort(keys)
        counts, keys = counts[order], keys[order]
    return Rows(indptr, (keys - owner).astype(np.int32), counts.astype(np.float32), width)


def row_sums(rows: Rows, values: Float32 | None = None) -> Float32:
    """Sum of each row, float32 (B,), added in float64."""
    data = rows.values if values is None else values
    if len(rows) == 1:
        # One after another, as bincount adds; a plain sum takes another order.
        return np.cumsum(data, dtype=np.float64)[-1:].astype(np.float32) if len(data) else _ZERO
    owner = np.repeat(np.arange(len(rows)), np.diff(rows.indptr))
    return np.bincount(owner, weights=data, minlength=len(rows)).astype(np.float32)


def _spread(values: Float32, rows: Rows) -> Float32:
    """A value of each row, for each of its entries."""
    return np.repeat(values, np.diff(rows.indptr))


def unit(rows: Rows) -> Rows:
    """Each row divided by its Euclidean norm; an all-zero row stays zero."""
    norm = np.sqrt(row_sums(rows, np.square(rows.values)))
    norm[norm == 0] = 1
    each: Float32 = norm if len(rows) == 1 else _spread(norm, rows)
    return rows.with_values(rows.values / each)


def tfidf(counts: Rows, idf: Float32) -> Rows:
    """Unit vectors of (1 + ln tf) · idf, the papers' feature map up to the damping of tf.

    Below 1, as expected counts of a translation may be, tf counts as it is.
    """
    tf = counts.values
    damped = (1 + np.log(np.maximum(tf, 1))) * np.minimum(tf, 1)
    return unit(counts.with_values(damped * idf[counts.indices]))


def summed(parts: Sequence[Rows]) -> Rows:
    """The sum of matrices of one shape."""
    if len(parts) == 1:
        return parts[0]
    return rows_of(sp.csr_array(sum((p.csr() for p in parts[1:]), parts[0].csr())))


def beside(left: Rows, right: Rows) -> Rows:
    """Columns of two matrices side by side."""
    width = left.width + right.width
    if not len(right.indices):
        return Rows(left.indptr, left.indices, left.values, width)
    if len(left) == 1:
        indices = np.concatenate([left.indices, right.indices + np.int32(left.width)])
        values = np.concatenate([left.values, right.values])
        return Rows(left.indptr + right.indptr, indices, values, width)
    return rows_of(sp.csr_array(sp.hstack([left.csr(), right.csr()], format="csr")))


def times(rows: Rows, table: Float32) -> Float32:
    """rows · table, float32 (B, N); a row's products are added in the order of its entries."""
    if len(rows) == 1 and table.shape[1] > 1:
        products = table[rows.indices]
        products *= rows.values[:, None]
        return np.add.reduce(products, axis=0, keepdims=True, initial=np.float32(0))
    return np.asarray(rows.csr() @ table)


def bm25(counts: Rows, idf: Float32, *, k1: float, b: float, mean_length: float) -> Rows:
    """Robertson's document weights: idf · tf (k1 + 1) / (tf + k1 (1 − b + b · length / mean length))."""
    lengths = row_sums(counts) / np.float32(max(mean_length, 1e-9))
    scale = _spread(k1 * (1 - b + b * lengths), counts).astype(np.float32)
    tf = counts.values
    return counts.with_values(idf[counts.indices] * tf * np.float32(k1 + 1) / (tf + scale))


def saturate(counts: Rows, k3: float) -> Rows:
    """BM25's weights of a query: tf (k3 + 1) / (tf + k3); k3 = 0 counts each word once, k3 = inf counts it tf times."""
    tf = counts.values
    if np.isinf(k3):
        return counts
    return counts.with_values(tf * np.float32(k3 + 1) / (tf + np.float32(k3)))


def strongest(rows: Rows, keep: int) -> Rows:
    """The ``keep`` entries of each row that are largest in absolute value, ties by index; 0 keeps all."""
    if keep == 0 or len(rows.values) <= keep:
        return rows
    sizes = np.diff(rows.indptr)
    long = np.flatnonzero(sizes > keep)
    if len(long) == 0:
        return rows
    kept = np.ones(len(rows.values), np.bool_)
    size = np.abs(rows.values)
    for row in long.tolist():
        start, stop = rows.indptr[row], rows.indptr[row + 1]
        order = np.argsort(-size[start:stop], kind="stable")
        kept[start + order[keep:]] = False
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.minimum(sizes, keep), out=indptr[1:])
    return Rows(indptr, rows.indices[kept], rows.values[kept], rows.width)


def tfidf_idf(document_frequency: Int64, documents: int) -> Float32:
    """idf = 1 + ln((1 + n) / (1 + df)), float32; never zero, so a word that all texts hold still counts a little."""
    return (1 + np.log((1 + documents) / (1 + document_frequency))).astype(np.float32)


def bm25_idf(document_frequency: Int64, documents: int) -> Float32:
    """idf = ln(1 + (n − df + ½) / (df + ½)), float32, positive."""
    df = document_frequency
    return np.log1p((documents - df + 0.5) / (df + 0.5)).astype(np.float32)


def trigram_rows(words: Iterable[str], vocabulary: Vocabulary) -> Rows:
    """One row per word: its known letter trigrams, each 1 / √(number of trigrams of the word), repeats added up."""
    rows = []
    for word in words:
        parts = trigrams(word)
        found = [i for i in map(vocabulary.row, parts) if i >= 0]
        rows.append((found, [len(parts) ** -0.5] * len(found)))
    return Rows.from_lists(rows, len(vocabulary))
