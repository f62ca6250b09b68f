"""The lexical part: s of queries, t of documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fullrank.encoding import Float32, Int32, Rows
from fullrank.kernels.encode import weigh_lexical
from fullrank.text.counting import TextCounter
from fullrank.text.features import Vocabulary, bm25, count_corpus, count_one, saturate, tfidf
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
        return Forms(self.words, strength, self.folded, self.plurals, self.compounds)

    @cached_property
    def sources(self) -> Sequence[Variants]:
        """All sources of variants."""
        return self.variants if self.forms is None else (self.forms, *self.variants)

    def sequences(self, texts: Sequence[str], *, processes: int = 1) -> Rows:
        """Return what the order of the words of queries adds, (B, F): joined words, then counts of known phrases."""
        reading = Reading.of(texts)
        if len(reading) == 1:
            phrases = self.phrases.rows_of(reading.words)
            counted = {} if self.forms is None else self.forms.count_joined(reading.joined)
            if not counted and not len(phrases.indices):
                return self._nothing
            if not counted:
                indices = phrases.indices + np.int32(len(self.words))
                return Rows(phrases.indptr, indices, phrases.values, self.width)
            counts = count_one(counted)
        else:
            phrases = self.phrases.rows(texts, processes=processes)
            counts = count_corpus([texts], counter=self._count_joined)
        forms = [] if self.forms is None else [self.forms]
        joined = weigh_variants(counts.words, counts.columns[0], forms, len(self.words))
        return Rows.hstack(joined, phrases)

    @cached_property
    def _nothing(self) -> Rows:
        """One text whose order of words adds nothing."""
        return Rows.empty(1, self.width)

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
            shares = variant_shares(words, counts, self.sources, width)
            k3, k3_and_1 = np.float32(self.k3), np.float32(self.k3 + 1)
            given = (*counts.arrays, target, *shares.arrays, *sequences.arrays)
            found = weigh_lexical(*given, self.idf, k3, k3_and_1, self.terms, MAX_WORDS)
            return Rows(*found, self.width)
        known = counts.remap_columns(target, width)
        joined, phrases = sequences.columns(0, width), sequences.columns(width, self.width)
        added = weigh_variants(words, short_queries(counts), self.sources, width)
        rows = self._top(tfidf(Rows.add([known, joined, added]), self.idf))
        return Rows.hstack(rows, saturate(phrases, self.k3))

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
