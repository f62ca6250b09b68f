"""The lexical part: s of queries, t of documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fullrank.encoding import Float32, Int32, Rows
from fullrank.text.features import Vocabulary, bm25, count_corpus, saturate, tfidf
from fullrank.text.forms import Forms
from fullrank.text.phrases import Phrases
from fullrank.text.variants import Variants, short_queries, weigh_variants


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

    @property
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
        phrases = self.phrases.rows(texts, processes=processes)
        if self.forms is None:
            joined = Rows.empty(len(texts), len(self.words))
        else:
            counts = count_corpus([texts], counter=self.forms.count)
            [column] = counts.columns
            joined = weigh_variants(counts.words, column, [self.forms], len(self.words))
        return Rows.hstack(joined, phrases)

    def query(self, words: Sequence[str], counts: Rows, sequences: Rows) -> Rows:
        """Compute s of queries from counts over `words` and what `sequences` returned."""
        target = self.words.rows(words)
        found = counts.remap_columns(target, len(self.words))
        if self.scheme == "none":
            return Rows.empty(len(found), self.width)
        joined = sequences.columns(0, len(self.words))
        phrases = sequences.columns(len(self.words), self.width)
        asked, width = short_queries(counts), len(self.words)
        if self.scheme == "bm25":
            rows = self._top(saturate(found, self.k3))
            # A variant gets its share of the weight that the word itself has, or would have.
            weights = self._kept(saturate(asked, self.k3), target, rows, len(found.indices))
            added = weigh_variants(words, weights, self.sources, width)
            rows = Rows.add([rows, joined, added])
        else:
            added = weigh_variants(words, asked, self.sources, width)
            rows = self._top(tfidf(Rows.add([found, joined, added]), self.idf))
        return Rows.hstack(rows, saturate(phrases, self.k3))

    def _top(self, rows: Rows) -> Rows:
        """Keep the top words of queries."""
        if not self.terms:
            return rows
        weighted = rows.with_values(rows.values * self.idf[rows.indices])
        kept = weighted.top_entries(self.terms)
        return kept.with_values(kept.values / self.idf[kept.indices])

    def _kept(self, weights: Rows, target: Int32, rows: Rows, found: int) -> Rows:
        """Zero the words that `_top` dropped, so that a query does not get their variants either.

        Args:
            weights: Of all words of the queries.
            target: Row of each word.
            rows: What `_top` returned.
            found: Number of entries before that.
        """
        if len(rows.indices) == found:
            return weights
        width = np.int64(len(self.words))
        owner = np.repeat(np.arange(len(weights)), np.diff(weights.indptr))
        of_rows = np.repeat(np.arange(len(rows)), np.diff(rows.indptr)) * width + rows.indices
        place = target[weights.indices]
        is_kept = (place < 0) | np.isin(owner * width + place, of_rows)
        return weights.with_values(np.where(is_kept, weights.values, 0))

    def field(self, words: Sequence[str], counts: Rows, index: int) -> Rows:
        """Compute z_f: the weights of field `index` over the words, before its diagonal."""
        found = counts.remap_columns(self.words.rows(words), len(self.words))
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
