"""The two sides of a linear model: u = U φ(q) and v = V φ(d), and the lexical parts s and t."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fullrank.kernels import encode as kernels
from fullrank.kernels.encode import weigh_lexical
from fullrank.models.reading import Reading
from fullrank.storage.encoding import Float32, Float64, Int32, Int64, Rows
from fullrank.storage.strings import Names
from fullrank.text.features import (
    Vocabulary,
    bm25,
    count_corpus,
    damped,
    saturate,
    tfidf,
    trigram_rows,
    unit,
)
from fullrank.text.forms import Forms, FormTables
from fullrank.text.phrases import Phrases
from fullrank.text.spelling import (
    MAX_WORDS,
    Variants,
    short_queries,
    variant_shares,
    weigh_variants,
)
from fullrank.text.words import is_bigram

# Layers above a table: from the weighted sum of word vectors to the dense vector of a text.
#
#     a = table · φ                                          the weighted sum, N₀ numbers
#     h₁ = tanh(a + b₀),  hᵢ₊₁ = tanh(Wᵢᵀ hᵢ + bᵢ)           Huang et al. 2013, eq. 3; the word hashing is φ
#     y = hₙ₊₁                                               or, with `skip`: y = a + Wₙᵀ hₙ + bₙ
#
# With `skip`, the last layer is linear and the table's sum is added to it: a linear model plus a correction.


@dataclass(frozen=True, eq=False)
class Tower:
    """The layers of one side; without any, the identity. Raises ValueError where shapes do not fit together.

    Attributes:
        weights: n arrays, float32 (Nᵢ₋₁, Nᵢ): W₁ … Wₙ.
        biases: n + 1 arrays, float32 (Nᵢ,): b₀ … bₙ; empty without layers.
        skip: Add the table's sum to the last layer; then Nₙ = N₀ and n > 0.
    """

    weights: Sequence[Float32] = ()
    biases: Sequence[Float32] = ()
    skip: bool = False

    def __post_init__(self) -> None:
        if not self.biases:
            if self.weights or self.skip:
                raise ValueError("a tower without biases has no layers")
            return
        if len(self.biases) != len(self.weights) + 1:
            raise ValueError(f"{len(self.weights)} weights, {len(self.biases)} biases")
        for i, weight in enumerate(self.weights):
            if weight.shape != (len(self.biases[i]), len(self.biases[i + 1])):
                raise ValueError(f"layer {i + 1} does not fit its neighbours: {weight.shape}")
        if self.skip and (not self.weights or len(self.biases[-1]) != len(self.biases[0])):
            raise ValueError("a tower with skip ends as wide as it starts")

    def __bool__(self) -> bool:
        """Tell whether there are layers."""
        return len(self.biases) > 0

    def arrays(self) -> Iterator[tuple[str, Float32]]:
        """Yield each array with its name: W1, …, b0, …"""
        yield from ((f"W{i}", weight) for i, weight in enumerate(self.weights, 1))
        yield from ((f"b{i}", bias) for i, bias in enumerate(self.biases))

    def copy(self) -> Tower:
        """Return an independent copy."""
        return Tower([w.copy() for w in self.weights], [b.copy() for b in self.biases], self.skip)

    def width(self, table: int) -> int:
        """Return N above a table of `table` columns. Raises ValueError if the two do not fit."""
        if not self:
            return table
        if table != len(self.biases[0]):
            raise ValueError(
                f"tower.b0 has {len(self.biases[0])} numbers where the table has {table} columns"
            )
        return len(self.biases[-1])

    def apply(self, a: Float32) -> Float32:
        """Compute y of each row of a, float32 (B, N₀) → (B, N). The bits of a row depend on that row alone."""
        if not self:
            return a
        out = np.empty((len(a), len(self.biases[-1])), np.float32)
        for row, y in zip(a, out, strict=True):
            y[:] = self._one(row)
        return out

    def _one(self, a: Float32) -> Float32:
        last = len(self.weights) - 1
        h: Float32 = np.tanh(a + self.biases[0])
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases[1:], strict=True)):
            # No BLAS product: its order of additions depends on the number of rows, the threads and the machine.
            # This sum adds in the order of the rows.
            h = np.add.reduce(h[:, None] * weight, axis=0) + bias
            if not (self.skip and i == last):
                h = np.tanh(h)
        return a + h if self.skip else h


# The dense part of one side: u = U φ(q) or v = V φ(d), through a tower if the model has one.


@dataclass(frozen=True, eq=False)
class DenseSide:
    """φ, the table that multiplies it, and the layers above.

    Attributes:
        words: The vocabulary of this side.
        idf: float32 (W + 1,), of each word, and last of unknown words.
        table: float32 (W, N), U or V with the trigrams of each word added.
        trigrams: Known letter trigrams; without any, unknown words are ignored.
        trigram_table: float32 (G, N).
        terms: The number of top words to keep of a text; 0 keeps all.
        counted: φ is not a tf-idf unit vector but counts: tf of a word times the root of its number of trigrams, so
            that each trigram counts as often as it occurs.
        tower: The layers above the table; a text without features stays at zero.
    """

    words: Vocabulary
    idf: Float32
    table: Float32
    trigrams: Vocabulary = field(default_factory=lambda: Vocabulary([]))
    trigram_table: Float32 = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    terms: int = 0
    counted: bool = False
    tower: Tower = field(default_factory=Tower)

    @cached_property
    def width(self) -> int:
        return self.tower.width(self.table.shape[1])

    @cached_property
    def has_bigrams(self) -> bool:
        """Whether φ counts 2-grams."""
        return any(map(is_bigram, self.words.words))

    def features(
        self, words: Sequence[str], columns: Sequence[Rows], weights: Sequence[float]
    ) -> tuple[Rows, list[str]]:
        """Compute φ of texts: unit rows over the vocabulary, then the unknown words; and these, ascending.

        Args:
            words: The words of the columns of each matrix of counts, one matrix per field.
            weights: One weight per field; 0 leaves a field out.
        """
        target, unseen = self._rows(words)
        factor = self.factor
        if unseen:
            factor = np.concatenate([factor, self._late_factor(unseen)])
        weigh = _scale if self.counted else tfidf
        parts = []
        for rows, weight in zip(columns, weights, strict=True):
            if not weight:
                continue
            part = weigh(rows.remap_columns(target, len(factor)), factor)
            parts.append(part.with_values(part.values * np.float32(weight)))
        found = Rows.add(parts).top_entries(self.terms)
        return found if self.counted else unit(found), unseen

    def _rows(self, words: Sequence[str]) -> tuple[Int32, list[str]]:
        """Return the row of each word, -1 where it has none, and the unknown words; those come after the vocabulary."""
        target = self.words.rows(words)
        unseen: list[str] = []
        if len(self.trigrams) and target.min(initial=0) < 0:
            missing = np.flatnonzero(target < 0)
            unseen, target = [words[i] for i in missing.tolist()], target.copy()
            target[missing] = len(self.words) + np.arange(len(missing), dtype=np.int32)
        return target, unseen

    @cached_property
    def factor(self) -> Float32:
        """The factor of the count of each word of the vocabulary: idf, or the root of its number of trigrams."""
        known = len(self.words)
        if not self.counted:
            return self.idf[:known]
        return (
            _trigram_roots(self.words.words) if len(self.trigrams) else np.ones(known, np.float32)
        )

    def _late_factor(self, unseen: Sequence[str]) -> Float32:
        if self.counted:
            return _trigram_roots(unseen)
        return np.full(len(unseen), self.idf[len(self.words)], np.float32)

    def rows_for(self, unseen: Sequence[str]) -> Float32:
        """Return the sums of the trigrams of unknown words, float32 (len(unseen), N)."""
        return trigram_rows(unseen, self.trigrams).matmul(self.trigram_table)

    def embed(
        self, words: Sequence[str], columns: Sequence[Rows], weights: Sequence[float]
    ) -> Float32:
        """Compute U φ, or the tower over it, float32 (B, N)."""
        x, unseen = self.features(words, columns, weights)
        known = len(self.words)
        dense = x.columns(0, known).matmul(self.table)
        if unseen:
            dense = dense + x.columns(known, x.width).matmul(self.rows_for(unseen))
        return self._finish(dense, np.diff(x.indptr))

    def embed_queries(self, words: Sequence[str], counts: Rows) -> Float32:
        """Compute U φ of queries, or the tower over it, float32 (B, N); `embed` with one field, in one pass."""
        target, unseen = self._rows(words)
        weights = counts.values if self.counted else damped(counts.values)
        late_factor, late = self.idf[:0], self.table[:0]
        if unseen:
            late_factor, late = self._late_factor(unseen), self.rows_for(unseen)
        dense, sizes = kernels.embed(
            (counts.indptr, counts.indices, weights), target, (self.factor, self.table),
            (late_factor, late), self.terms, int(not self.counted),
        )  # fmt: skip
        return self._finish(dense, sizes)

    def _finish(self, dense: Float32, sizes: Int64) -> Float32:
        """Apply the tower; a text without features, whose size is 0, stays at zero."""
        if self.tower:
            dense = self.tower.apply(np.asarray(dense, np.float32))
            dense[sizes == 0] = 0
        return np.ascontiguousarray(dense, np.float32)


def _scale(counts: Rows, factor: Float32) -> Rows:
    return counts.with_values(counts.values * factor[counts.indices])


def _trigram_roots(words: Sequence[str]) -> Float32:
    """Return √ of the number of trigrams of `#word#`, which is the number of letters of the word."""
    return np.sqrt(np.array([len(word) for word in words], np.float32))


# The lexical part: s of queries, t of documents.


@dataclass(frozen=True, eq=False)
class SparseSide:
    """The lexical part: word weights of queries, and of documents per field with D folded in.

    Attributes:
        words: The documents' vocabulary, hash buckets included; only these words can match.
        idf: float32 (W,).
        D: float32 (fields, W), the diagonals.
        phrases: Titles as features, after the words.
        P: float32 (phrases,), their weights: idf times diagonal.
        scheme: "bm25", "tfidf" or "none".
        terms: The number of words to keep of a query, those of the largest weight times idf; 0 keeps all.
        folded: Discount of a word of the documents that equals one of the query after folding; 0: no such match.
        plurals: Discount of one that equals it in the singular; 0: no such match.
        compounds: Those of the documents, each in parts; only read if folded is above 0.
        variants: More sources of the known words that a query's word may stand for, the first one first.
        form_tables: What other forms are found by; None to make them on first use.
    """

    words: Vocabulary
    idf: Float32
    D: Float32
    phrases: Phrases
    P: Float32
    scheme: str
    k1: float = 1.2
    b: float = 0.75
    k3: float = 1.0
    terms: int = 0
    mean_lengths: tuple[float, ...] = ()
    folded: float = 0.0
    plurals: float = 0.0
    compounds: Sequence[str] = ()
    variants: Sequence[Variants] = ()
    form_tables: FormTables | None = None

    @cached_property
    def width(self) -> int:
        return len(self.words) + len(self.phrases)

    @cached_property
    def forms(self) -> Forms | None:
        if self.scheme == "none" or not (self.folded or self.plurals):
            return None
        # The idf is in the documents' weights; under tf-idf it is in the queries' too.
        strength = self.idf if self.scheme == "bm25" else np.square(self.idf)
        discounts = (self.folded, self.plurals)
        return Forms(self.words, strength, *discounts, self.compounds, self.form_tables)

    @cached_property
    def sources(self) -> Sequence[Variants]:
        return self.variants if self.forms is None else (self.forms, *self.variants)

    def sequences(self, texts: Sequence[str]) -> Rows:
        """Return what the order of the words of queries adds, (B, F): joined words, then counts of known phrases."""
        reading = Reading.of(texts)
        if len(reading) == 1:
            phrases = self.phrases.rows_of(reading.spaced, len(self.words))
            counted = {} if self.forms is None else self.forms.count_joined(reading.neighbours)
            return self._beside(counted, phrases) if counted else phrases
        if reading.are_words:  # no neighbours, and no phrase but the word itself
            return self.phrases.whole(reading, len(self.words))
        phrases = self.phrases.rows(texts)
        if self.forms is None:
            return Rows.hstack(Rows.empty(len(texts), len(self.words)), phrases)
        counts = count_corpus([texts], counter=self.forms.count)
        found = counts.words, counts.columns[0], [self.forms], len(self.words)
        return Rows.hstack(weigh_variants(*found), phrases)

    def _beside(self, counted: Mapping[str, int], phrases: Rows) -> Rows:
        """Put the forms of the joined words of one text before its phrases, whose columns come after the words."""
        assert self.forms is not None
        found = [
            (row, float(np.float32(counted[compound]) * np.float32(share)))
            for compound in sorted(counted)
            for row, share in self.forms.of(compound)
        ]
        joined = Rows.from_lists([([row for row, _ in found], [x for _, x in found])], self.width)
        return Rows(
            joined.indptr + phrases.indptr,
            np.concatenate([joined.indices, phrases.indices]),
            np.concatenate([joined.values, phrases.values]),
            self.width,
        )

    def query(self, words: Sequence[str], counts: Rows, sequences: Rows) -> Rows:
        """Compute s of queries from counts over `words` and what `sequences` returned."""
        if self.scheme == "none":
            return Rows.empty(len(counts), self.width)
        target, width = self.words.rows(words), len(self.words)
        if self.scheme == "bm25":
            # A variant gets its share of the weight that the word itself has, or would have.
            late = variant_shares(words, counts, self.sources, width, self._late(words))
            given = counts.arrays, target, self.known_forms, late.arrays, sequences.arrays
            found = weigh_lexical(*given, self.idf, self.k3, (self.terms, MAX_WORDS))
            return Rows(*found, self.width)
        known = counts.remap_columns(target, width)
        joined, phrases = sequences.columns(0, width), sequences.columns(width, self.width)
        added = weigh_variants(words, short_queries(counts), self.sources, width)
        rows = self._top(tfidf(Rows.add([known, joined, added]), self.idf))
        return Rows.hstack(rows, saturate(phrases, self.k3))

    @cached_property
    def known_forms(self) -> tuple[Int64, Int32, Float64]:
        """The forms of each known word, as kernels take them."""
        if self.forms is None:
            return np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0)
        tables = self.forms.tables
        return tables.starts, tables.rows, tables.shares

    def _late(self, words: Sequence[str]) -> Sequence[int]:
        """Return the places of the words whose variants are not among the forms of known words."""
        if self.variants:
            starts, rows = self.known_forms[0], self.words.known.rows(words)
            if self.forms is None:
                return range(len(words))
            return np.flatnonzero((rows < 0) | (starts[rows] == starts[rows + 1])).tolist()
        return Names.of(words).missing(self.words.known) if self.sources else ()

    def _top(self, rows: Rows) -> Rows:
        """Keep the top words of queries."""
        if not self.terms:
            return rows
        weighted = rows.with_values(rows.values * self.idf[rows.indices])
        kept = weighted.top_entries(self.terms)
        return kept.with_values(kept.values / self.idf[kept.indices])

    def field(self, target: Int32, counts: Rows, index: int) -> Rows:
        """Compute z_f, f = `index`, before its diagonal; target: the row of each column in `words`, or -1."""
        found = counts.remap_columns(target, len(self.words))
        if self.scheme == "none":
            return Rows.empty(len(found), found.width)
        if self.scheme == "tfidf":
            return tfidf(found, self.idf)
        mean = self.mean_lengths[index]
        return bm25(found, self.idf, k1=self.k1, b=self.b, mean_length=mean)

    def document(self, fields: Sequence[Rows], own: Rows) -> Rows:
        """Compute t = Σ_f D_f z_f, then the phrase that each title is."""
        parts = [z.with_values(z.values * self.D[f, z.indices]) for f, z in enumerate(fields)]
        return Rows.hstack(Rows.add(parts), own.with_values(own.values * self.P[own.indices]))
