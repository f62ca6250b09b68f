"""From the counts of queries to u and s, row by row, without a matrix in between.

A query is a row of counts over the words that were typed; `target` maps each of those to a row of a vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fullrank.kernels.arrays import Float32, Float64, Int32, Int64, UInt8, UInt64
from fullrank.kernels.compiler import FLOAT64, INT64, array, helper, kernel, output, several
from fullrank.kernels.index import record
from fullrank.kernels.joined import FORM_KEYS, FormKeys, count_phrases, joined_forms
from fullrank.kernels.rows import Arrays, add_row, keep_largest, normalise, sort_row
from fullrank.kernels.words import find_strings

_ROWS = (array("int64"), array("int32"), array("float32"))


@helper
def _longest(indptr: Int64) -> int:
    longest = 0
    for row in range(len(indptr) - 1):
        longest = max(longest, indptr[row + 1] - indptr[row])
    return longest


@kernel(
    several(output("float32", 2), output("int64")),
    several(*_ROWS), array("int32"), several(array("float32"), array("float32", 2)),
    several(array("float32"), array("float32", 2)), INT64, INT64,
)  # fmt: skip
def embed(
    counts: Arrays,
    target: Int32,
    words: tuple[Float32, Float32],
    unseen: tuple[Float32, Float32],
    keep: int,
    is_unit: int,
) -> tuple[Float32, Int64]:
    """Compute u of queries: U φ.

    Args:
        counts: The queries over typed words; a weight is a damped count.
        target: int32, the row of each typed word: of `words`, then of `unseen`; -1 drops it.
        words: The factor of each word of the model, float32 (W,), and its vector, float32 (W, N).
        unseen: The same of the unknown words.
        keep: Entries of φ with the largest absolute values to keep; 0 keeps all.
        is_unit: 1 to divide φ by its norm, before and after that; 0 to keep it.

    Returns:
        u, float32 (B, N), and the number of entries of each φ.
    """
    indptr, indices, weights = counts
    factor, table = words
    late_factor, late_table = unseen
    known = len(factor)
    count, width = len(indptr) - 1, table.shape[1]
    u, sizes = np.zeros((count, width), np.float32), np.zeros(count, np.int64)
    late = np.zeros(width, np.float32)
    longest = _longest(indptr)
    columns, values = np.empty(longest, np.int32), np.empty(longest, np.float32)
    for row in range(count):
        size = 0
        for p in range(indptr[row], indptr[row + 1]):
            column = target[indices[p]]
            if column >= 0:
                columns[size] = column
                values[size] = weights[p]
                size += 1
        size = sort_row(columns, values, 0, size)
        for p in range(size):
            column = columns[p]
            values[p] *= factor[column] if column < known else late_factor[column - known]
        if is_unit:
            normalise(values, size)
        size = keep_largest(columns, values, size, keep)
        if is_unit:
            normalise(values, size)
        sizes[row] = size
        total = u[row]
        first_late = 0
        while first_late < size and columns[first_late] < known:
            value, line = values[first_late], table[columns[first_late]]
            for j in range(width):
                total[j] += value * line[j]
            first_late += 1
        if first_late < size:
            late[:] = 0
            for p in range(first_late, size):
                value, line = values[p], late_table[columns[p] - known]
                for j in range(width):
                    late[j] += value * line[j]
            for j in range(width):
                total[j] += late[j]
    return u, sizes


@helper
def _saturate(tf: np.float32, k3: float) -> np.float32:
    """Weigh a count as text.features.saturate does."""
    if np.isinf(k3):
        return tf
    divisor = tf + np.float32(k3)
    return tf * np.float32(k3 + 1) / divisor if divisor != 0 else np.float32(0)


@helper
def _variants(
    word: int, target: Int32, form_indptr: Int64, late_indptr: Int64
) -> tuple[int, int, bool]:
    """Return where the variants of a typed word begin and end, and whether they are late ones."""
    row = target[word]
    if row >= 0 and row + 1 < len(form_indptr) and form_indptr[row] < form_indptr[row + 1]:
        return form_indptr[row], form_indptr[row + 1], False
    return late_indptr[word], late_indptr[word + 1], True


@kernel(
    several(output("int64"), output("int32"), output("float32")),
    several(*_ROWS), array("int32"), several(array("int64"), array("int32"), array("float64")),
    several(*_ROWS), several(*_ROWS), array("float32"), FLOAT64, several(INT64, INT64),
)  # fmt: skip
def weigh_lexical(
    typed: Arrays,
    target: Int32,
    known_forms: tuple[Int64, Int32, Float64],
    late_forms: Arrays,
    added_words: Arrays,
    idf: Float32,
    k3: float,
    most: tuple[int, int],
) -> Arrays:
    """Compute s of queries under BM25: saturated counts, words and phrases of the order of words, variants.

    Args:
        typed: Counts of the queries over typed words.
        target: int32, the row of each typed word; -1 for unknown words.
        known_forms: Rows of the variants of each known word, and their shares of its weight; shares are rounded to
            float32.
        late_forms: The same of each typed word that is unknown, or is known but has none there.
        added_words: Rows of what the order of the words of each query adds: weights of words (columns below W), counts
            of phrases (from W on).
        most: Words to keep of a query, those of the largest weight times idf, 0 keeps all; and the words of the longest
            query that has variants.
    """
    indptr, indices, counts = typed
    form_indptr, form_columns, forms = known_forms
    late_indptr, late_columns, late = late_forms
    more_indptr, more_columns, more = added_words
    keep, most_words = most
    width, count = len(idf), len(indptr) - 1
    longest = _longest(indptr)
    n_entries, longest_added = len(indices) + len(more_columns), 0
    for row in range(count):
        size = 0
        for p in range(indptr[row], indptr[row + 1]):
            begin, end, _ = _variants(indices[p], target, form_indptr, late_indptr)
            size += end - begin
        longest_added = max(longest_added, size)
        n_entries += size
    longest_sum = longest + _longest(more_indptr) + longest_added
    found, weights = np.empty(longest, np.int32), np.empty(longest, np.float32)
    added, added_weights = np.empty(longest_added, np.int32), np.empty(longest_added, np.float32)
    sums, sum_weights = np.empty(longest_sum, np.int32), np.empty(longest_sum, np.float32)
    ends = np.zeros(count + 1, np.int64)
    out, out_weights = np.empty(n_entries, np.int32), np.empty(n_entries, np.float32)
    stop = 0
    for row in range(count):
        first, last = indptr[row], indptr[row + 1]
        size = 0
        for p in range(first, last):
            column = target[indices[p]]
            if column >= 0:
                found[size] = column
                weights[size] = counts[p]
                size += 1
        size = sort_row(found, weights, 0, size)
        for p in range(size):
            weights[p] = _saturate(weights[p], k3)
        is_cut = 0 < keep < size
        if keep:
            for p in range(size):
                weights[p] *= idf[found[p]]
            size = keep_largest(found, weights, size, keep)
            for p in range(size):
                share = idf[found[p]]
                weights[p] = weights[p] / share if share != 0 else np.float32(0)
        n_added = 0
        if last - first <= most_words:
            for p in range(first, last):
                word = indices[p]
                begin, end, is_late = _variants(word, target, form_indptr, late_indptr)
                if begin == end:
                    continue
                weight, column = _saturate(counts[p], k3), target[word]
                if is_cut and column >= 0:
                    place = np.searchsorted(found[:size], column)
                    if place == size or found[place] != column:
                        weight = np.float32(0)
                for q in range(begin, end):
                    added[n_added] = late_columns[q] if is_late else form_columns[q]
                    share = late[q] if is_late else np.float32(forms[q])
                    added_weights[n_added] = weight * share
                    n_added += 1
            n_added = sort_row(added, added_weights, 0, n_added)
        begin = more_indptr[row]
        phrases = begin
        while phrases < more_indptr[row + 1] and more_columns[phrases] < width:
            phrases += 1
        joined, joined_weights = more_columns[begin:phrases], more[begin:phrases]
        n_sums = size
        if len(joined):
            n_sums = add_row(
                found, weights, size, joined, joined_weights, len(joined), sums, sum_weights
            )
        else:
            sums[:size], sum_weights[:size] = found[:size], weights[:size]
        if n_added:
            tail, tail_weights = out[stop:], out_weights[stop:]
            stop += add_row(
                sums, sum_weights, n_sums, added, added_weights, n_added, tail, tail_weights
            )
        else:
            for p in range(n_sums):
                out[stop] = sums[p]
                out_weights[stop] = sum_weights[p]
                stop += 1
        for p in range(phrases, more_indptr[row + 1]):
            out[stop] = more_columns[p]
            out_weights[stop] = _saturate(more[p], k3)
            stop += 1
        ends[row + 1] = stop
    return ends, out[:stop], out_weights[:stop]


class QueryTables(NamedTuple):
    """What a model encodes a query by.

    Attributes:
        blob, offsets, slots: The words of the lexical part, a lexicon.
        phrases, phrase_offsets, beginnings: Its phrases.
        form_starts, form_rows, form_shares: The forms of each known word, as `weigh_lexical` takes them.
        forms: The tables that find forms of joined words. A model without forms has a `longest` of 0.
        idf, factor, table: As `weigh_lexical` and `embed` take them.
        dense_blob, dense_offsets, dense_slots: The words of the dense part; without slots they are the lexical ones.
        k3: As of `weigh_lexical`.
        keep, most_words: As `most` of `weigh_lexical`.
        terms, is_unit: As `keep` and `is_unit` of `embed`.
        has_trigrams: Whether the dense part knows words by their trigrams.
    """

    blob: UInt8
    offsets: Int64
    slots: UInt64
    phrases: UInt8
    phrase_offsets: Int64
    beginnings: UInt64
    form_starts: Int64
    form_rows: Int32
    form_shares: Float64
    forms: FormKeys
    idf: Float32
    factor: Float32
    table: Float32
    dense_blob: UInt8
    dense_offsets: Int64
    dense_slots: UInt64
    k3: float
    keep: int
    most_words: int
    terms: int
    is_unit: int
    has_trigrams: int


_STRINGS = array("uint8"), array("int64"), array("uint64")
_TABLES = record(
    QueryTables,
    *_STRINGS, *_STRINGS, array("int64"), array("int32"), array("float64"), FORM_KEYS,
    array("float32"), array("float32"), array("float32", 2), *_STRINGS,
    FLOAT64, INT64, INT64, INT64, INT64, INT64,
)  # fmt: skip


@kernel(
    several(INT64, output("float32", 2), output("int64"), output("int32"), output("float32")),
    several(array("uint8"), array("int64"), array("float32"), array("uint8"), array("int64")),
    array("float32"), _TABLES,
)  # fmt: skip
def encode_known(
    typed: tuple[UInt8, Int64, Float32, UInt8, Int64], weights: Float32, tables: QueryTables
) -> tuple[int, Float32, Int64, Int32, Float32]:
    """Encode one query whose words are all known; the steps are those of any query, without Python between them.

    Args:
        typed: As ``fullrank.kernels.tokens.read_words`` returns it.
        weights: The damped counts.

    Returns:
        Whether it is encoded: 0 where it has unknown words, or neighbours beyond ASCII. Then u, and the one row of s.
    """
    names, bounds, counts, sequence, places = typed
    nothing, no_weights = np.empty(0, np.int32), np.empty(0, np.float32)
    u, indptr = np.zeros((1, tables.table.shape[1]), np.float32), np.array([0, len(counts)])
    lexicon, forms = (tables.blob, tables.offsets, tables.slots), tables.forms
    target = find_strings(*lexicon, names, bounds)
    is_joined = 1 < len(places) - 1 <= forms.longest
    is_other = (len(target) > 0 and target.min() < 0) or (
        is_joined and len(sequence) > 0 and sequence.max() > 127
    )
    dense_target = target
    if len(tables.dense_slots):
        dense_target = find_strings(
            tables.dense_blob, tables.dense_offsets, tables.dense_slots, names, bounds
        )
        is_other |= tables.has_trigrams != 0 and len(target) > 0 and dense_target.min() < 0
    if is_other:
        return 0, u, indptr, nothing, no_weights
    own = np.arange(len(counts)).astype(np.int32)
    _, phrases, amounts = count_phrases(
        tables.phrases, tables.phrase_offsets, tables.beginnings, sequence, places, len(tables.idf)
    )
    joined, shares = joined_forms(sequence, places, lexicon, forms)
    size = sort_row(joined, shares, 0, len(joined))
    more, more_weights = (
        np.empty(size + len(phrases), np.int32),
        np.empty(size + len(phrases), np.float32),
    )
    more[:size], more[size:] = joined[:size], phrases
    more_weights[:size], more_weights[size:] = shares[:size], amounts
    found = weigh_lexical(
        (indptr, own, counts), target, (tables.form_starts, tables.form_rows, tables.form_shares),
        (np.zeros(len(counts) + 1, np.int64), nothing, no_weights),
        (np.array([0, len(more)]), more, more_weights),
        tables.idf, tables.k3, (tables.keep, tables.most_words),
    )  # fmt: skip
    if u.shape[1]:
        u, _ = embed(
            (indptr, own, weights), dense_target, (tables.factor, tables.table),
            (no_weights, np.empty((0, u.shape[1]), np.float32)), tables.terms, tables.is_unit,
        )  # fmt: skip
    return 1, u, *found
