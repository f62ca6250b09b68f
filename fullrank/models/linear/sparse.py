"""The lexical part: s of queries, t of documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fullrank.encoding import Float32, Float64, Int32, Int64, Rows
from fullrank.kernels.encode import weigh_lexical
from fullrank.storage.lexicon import Names
from fullrank.text.counting import TextCounter
from fullrank.text.features import Vocabulary, bm25, count_corpus, saturate, tfidf
from fullrank.text.form_tables import FormTables
from fullrank.text.forms import Forms
from fullrank.text.phrases import Phrases
from fullrank.text.reading import Reading
from fullrank.text.variants import (
    MAX_WORDS,
    Variants,
    short_queries,
    variant_shares,
    weigh_variants,
)


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
        """F, the number of sparse features."""
        return len(self.words) + len(self.phrases)

    @cached_property
    def forms(self) -> Forms | None:
        """Other forms of words; None if the model does not fold."""
        if self.scheme == "none" or not (self.folded or self.plurals):
            return None
        # The idf is in the documents' weights; under tf-idf it is in the queries' too.
        strength = self.idf if self.scheme == "bm25" else np.square(self.idf)
        discounts = (self.folded, self.plurals)
        return Forms(self.words, strength, *discounts, self.compounds, self.form_tables)

    @cached_property
    def sources(self) -> Sequence[Variants]:
        """All sources of variants."""
        return self.variants if self.forms is None else (self.forms, *self.variants)

    def sequences(self, texts: Sequence[str], *, processes: int = 1) -> Rows:
        """Return what the order of the words of queries adds, (B, F): joined words, then counts of known phrases."""
        reading = Reading.of(texts)
        if len(reading) == 1:
            phrases = self.phrases.rows_of(reading.spaced, len(self.words))
            counted = {} if self.forms is None else self.forms.count_joined(reading.neighbours)
            return self._beside(counted, phrases) if counted else phrases
        if reading.are_words:  # no neighbours, and no phrase but the word itself
            return self.phrases.whole(reading, len(self.words))
        phrases = self.phrases.rows(texts, processes=processes)
        counts = count_corpus([texts], counter=self._count_joined)
        forms = [] if self.forms is None else [self.forms]
        joined = weigh_variants(counts.words, counts.columns[0], forms, len(self.words))
        return Rows.hstack(joined, phrases)

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

    @property
    def _count_joined(self) -> TextCounter:
        return _count_nothing if self.forms is None else self.forms.count

    def query(self, words: Sequence[str], counts: Rows, sequences: Rows) -> Rows:
        """Compute s of queries from counts over `words` and what `sequences` returned."""
        if self.scheme == "none":
            return Rows.empty(len(counts), self.width)
        target, width = self.words.rows(words), len(self.words)
        if self.scheme == "bm25":
            # A variant gets its share of the weight that the word itself has, or would have.
            late = variant_shares(words, counts, self.sources, width, self._late(words))
            given = (*counts.arrays, target, *self._known_forms, *late.arrays, *sequences.arrays)
            found = weigh_lexical(*given, self.idf, *self._k3, self.terms, MAX_WORDS)
            return Rows(*found, self.width)
        known = counts.remap_columns(target, width)
        joined, phrases = sequences.columns(0, width), sequences.columns(width, self.width)
        added = weigh_variants(words, short_queries(counts), self.sources, width)
        rows = self._top(tfidf(Rows.add([known, joined, added]), self.idf))
        return Rows.hstack(rows, saturate(phrases, self.k3))

    @cached_property
    def _k3(self) -> tuple[np.float32, np.float32]:
        return np.float32(self.k3), np.float32(self.k3 + 1)

    @cached_property
    def _known_forms(self) -> tuple[Int64, Int32, Float64]:
        """The forms of each known word, as kernels take them."""
        if self.forms is None:
            return np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0)
        tables = self.forms.tables
        return tables.starts, tables.rows, tables.shares

    def _late(self, words: Sequence[str]) -> Sequence[int]:
        """Return the places of the words whose variants are not among the forms of known words."""
        if self.variants:
            starts, rows = self._known_forms[0], self.words.known.rows(words)
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
        """Compute z_f: the weights of field `index` over the words, before its diagonal.

        Args:
            target: int32, the row in `words` of each column of counts; -1 where it has none.
            counts: Of B texts.
            index: f.
        """
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


def _count_nothing(text: str) -> dict[str, int]:
    return {}
