"""Word translation before a linear model: f(q, d) = g(Tᵀq, d).

T_fe is how much a query's word f counts as the documents' word e: the probability P(e|f) that f translates to e, and 1
for e = f if documents contain the same word. The expected counts of the query in the documents' language then go
through g like any counts: tf-idf, BM25, or a model trained on queries of that language.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from fullrank.models.contract import Parts, Wrapper
from fullrank.models.linear import LinearModel
from fullrank.models.reading import Reading
from fullrank.retrieval.scoring import TermShare
from fullrank.storage.checks import ascends
from fullrank.storage.encoding import Encoded, Float32, Rows
from fullrank.storage.strings import Lexicon, Names
from fullrank.text.features import Counts, Vocabulary, count_corpus

KIND = "translation"
_INNER = "translated."
_TABLE = ("table.indptr", "table.indices", "table.values")


@dataclass(frozen=True, eq=False)
class TranslationModel(Wrapper):
    """A translation table T ≥ 0, one row per word of queries, one column per target, and g; other words are ignored."""

    words: Vocabulary
    targets: Sequence[str]
    table: Rows
    model: LinearModel

    @cached_property
    def config(self) -> dict[str, Any]:
        return {"kind": KIND, "translated": self.model.config}

    @cached_property
    def _table(self) -> sp.csr_array[np.float32]:
        return self.table.csr()

    def translate(self, words: Sequence[str], counts: Rows) -> Counts:
        """Return the expected counts of texts in the documents' words; `counts` has one column per entry of `words`."""
        known = counts.remap_columns(self.words.rows(words), len(self.words))
        rows = Rows.from_csr(sp.csr_array(known.csr() @ self._table))
        occurring = np.unique(rows.indices)
        place = np.searchsorted(occurring, rows.indices).astype(np.int32)
        found = Names([self.targets[i] for i in occurring.tolist()])
        return Counts(found, [Rows(rows.indptr, place, rows.values, len(found))])

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        reading = Reading.of(texts)
        counts = reading.counts
        translated = self.translate(counts.words, counts.columns[0])
        sequences = self.model.sparse.sequences(reading)
        return self.model.encode_query_counts(translated.words, translated.columns[0], sequences)

    def query_terms(self, text: str) -> list[TermShare]:
        """Split a query by word, each with its share of its translations; then the phrases."""
        counts = count_corpus([[text]])
        translated = self.translate(counts.words, counts.columns[0])
        terms = self.model.count_terms(translated, self.model.sparse.sequences([text]))
        of_target, phrases = terms[: len(translated.words)], terms[len(translated.words) :]
        expected = translated.columns[0]
        total = np.zeros(len(of_target))
        total[expected.indices] = expected.values
        place = {word: i for i, word in enumerate(translated.words)}
        column = counts.columns[0]
        found = []
        for index, tf in zip(column.indices.tolist(), column.values.tolist(), strict=True):
            word = counts.words[index]
            row = self.words.row(word)
            if row >= 0:
                targets, chances = self.table.row(row)
                here = np.array([place[self.targets[e]] for e in targets.tolist()], np.int64)
                share = tf * chances / total[here]
                found.append(
                    _shared(word, [of_target[i] for i in here.tolist()], share, self.n_dense)
                )
        return [*found, *phrases]

    def parts(self) -> Parts:
        inner = self.model.parts().under(_INNER)
        arrays: dict[str, Any] = dict(zip(_TABLE, self.table.arrays, strict=True))
        strings: dict[str, Sequence[str]] = {"words": self.words.known, "targets": self.targets}
        return Parts(self.config, inner.arrays | arrays, inner.strings | strings)

    @classmethod
    def from_parts(cls, parts: Parts) -> TranslationModel:
        inner = parts.within(_INNER, parts.config["translated"])
        words = Vocabulary(Lexicon.of(parts.strings["words"]))
        targets = parts.strings["targets"]
        indptr, indices, values = (parts.arrays[name] for name in _TABLE)
        table = Rows(indptr, indices, values, len(targets))
        _check(table, len(words))
        return cls(words, targets, table, LinearModel.from_parts(inner))


def _shared(word: str, terms: Sequence[TermShare], share: Float32, n_dense: int) -> TermShare:
    """Add up one word's shares of several words of the documents."""
    dense = np.zeros(n_dense, np.float32)
    weights: dict[int, float] = {}
    for term, part in zip(terms, share.tolist(), strict=True):
        dense += np.float32(part) * term.dense
        for feature, weight in term.pairs:
            weights[feature] = weights.get(feature, 0.0) + part * weight
    return TermShare.from_weights(word, dense, weights)


def _check(table: Rows, words: int) -> None:
    if len(table.indices) != len(table.values):
        raise ValueError("table.indices and table.values differ in length")
    if len(table) != words or not ascends(table.indptr, len(table.indices)):
        raise ValueError(f"table.indptr does not cut the table into {words} rows")
    if len(table.indices) and not 0 <= table.indices.min() <= table.indices.max() < table.width:
        raise ValueError("table.indices: not every entry is a row of targets")
    if (table.values < 0).any():
        raise ValueError("table.values: below zero")
