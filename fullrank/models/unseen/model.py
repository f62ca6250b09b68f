"""A model whose documents and queries may hold words that it does not know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np

from fullrank.encoding import Encoded, Float64, Int64
from fullrank.features import Rows, count_corpus, moved
from fullrank.model import Model, Parts, TermShare, WordScore, field_text
from fullrank.models.unseen.rules import Rule, rule_of
from fullrank.text.words import count_words
from fullrank.unseen.columns import beside, beyond, features_of, known, with_feature, within

KIND = "open"
# R: docs/math.md says how often two words share a row.
ROWS = 1 << 20


@dataclass(frozen=True, eq=False)
class OpenModel:
    """``model`` with R more sparse columns for the words that it does not know."""

    model: Model
    rule: Rule
    rows: int = ROWS

    @property
    def n_dense(self) -> int:
        """N."""
        return self.model.n_dense

    @property
    def n_sparse(self) -> int:
        """F + R."""
        return self.model.n_sparse + self.rows

    @cached_property
    def config(self) -> dict[str, Any]:
        """JSON settings: those of the model under ``model``."""
        return {"kind": KIND, "rows": self.rows, "model": dict(self.model.config)}

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        """u and [s | s′] of each text."""
        encoded = self.model.encode_queries(texts)
        if not any(map(self._unseen, texts)):
            return replace(encoded, width=self.n_sparse)
        [counts] = self._count([texts])
        return beside(encoded, self._beyond(self.rule.query(counts)))

    def encode_documents(self, documents: Sequence[Mapping[str, Any]]) -> Encoded:
        """v, [t | t′] and the default bias of each document."""
        columns = [[field_text(d, sources) for d in documents] for sources in self.rule.columns]
        found = self._beyond(self.rule.document(self._count(columns)))
        return beside(self.model.encode_documents(documents), found)

    def _count(self, columns: Sequence[Sequence[str]]) -> list[Rows]:
        """Counts over the rule's words and the rows behind them."""
        counts, known = count_corpus(columns), len(self.rule.words)
        target = self.rule.words.rows(counts.words)
        for i in np.flatnonzero(target < 0).tolist():
            target[i] = known + self.row(counts.words[i])
        return [moved(column, target, known + self.rows) for column in counts.columns]

    def _beyond(self, rows: Rows) -> Rows:
        return beyond(rows, len(self.rule.words))

    def _unseen(self, text: str) -> dict[str, int]:
        """How often each word stands in a text that the model does not know."""
        counts, words = count_words(text), self.rule.words
        return {word: times for word, times in counts.items() if words.row(word) < 0}

    def row(self, word: str) -> int:
        """The row of an unseen word, below R."""
        return crc32(word.encode("utf-8", "surrogatepass")) % self.rows

    def query_text(self, fields: Mapping[str, Any]) -> str:
        """A document read as a query."""
        return self.model.query_text(fields)

    def query_terms(self, text: str) -> list[TermShare]:
        """Those of the model; each unseen word has its row beside what the model makes of it."""
        terms = {term.term: term for term in self.model.query_terms(text)}
        unseen = self._unseen(text)
        if unseen:
            [counts] = self._count([[text]])
            found = self._beyond(self.rule.query(counts))
            weights = dict(zip(found.indices.tolist(), found.values.tolist(), strict=True))
            # Words of one row are one feature: each has the part of its weight that it occurs.
            together: dict[int, int] = {}
            for word, times in unseen.items():
                together[self.row(word)] = together.get(self.row(word), 0) + times
            nothing = np.zeros(self.n_dense, np.float32)
            for word, times in unseen.items():
                row = self.row(word)
                term = terms.get(word, TermShare(word, nothing, -1, 0.0))
                weight = weights.get(row, 0.0) * times / together[row]
                terms[word] = with_feature(term, self.model.n_sparse + row, weight)
        return list(terms.values())

    def scorer(self, documents: Encoded) -> OpenScorer | None:
        """None where the model is an inner product: then so is this."""
        if self.model.scorer(known(documents.slice(0, 0), self.model.n_sparse)) is None:
            return None
        return OpenScorer(self.model, documents)

    def parts(self) -> Parts:
        """What a bundle stores: the parts of the model."""
        parts = self.model.parts()
        return Parts(self.config, parts.arrays, parts.strings)

    @classmethod
    def from_parts(cls, parts: Parts, load: Callable[[Parts], Model]) -> OpenModel:
        """The inverse of ``parts``. Raises ValueError where the model takes no live documents.

        load  makes the model
        """
        model = load(Parts(parts.config["model"], parts.arrays, parts.strings))
        rows, rule = parts.config["rows"], rule_of(model)
        if rule is None or type(rows) is not int or rows < 1:
            raise ValueError(f"no rule for unseen words, or {rows!r} rows")
        return cls(model, rule, rows)


def live_model(model: Model) -> OpenModel | None:
    """The model with rows for unseen words; None where it takes no live documents."""
    if isinstance(model, OpenModel):
        return model
    rule = rule_of(model)
    return None if rule is None else OpenModel(model, rule)


class OpenScorer:
    """What the model's own scorer says of u, v, s and t, and s′·t′ to the exact part, in float64."""

    def __init__(self, model: Model, documents: Encoded) -> None:
        self._width = model.n_sparse
        own = model.scorer(known(documents, self._width))
        assert own is not None
        self._own = own
        self._documents = documents

    @cached_property
    def _postings(self) -> tuple[Int64, Int64, Float64]:
        """Of every t′ that is not zero: its row of R, ascending, its document and its value."""
        rows = beyond(self._documents, self._width)
        order = np.argsort(rows.indices, kind="stable")
        owner = np.repeat(np.arange(len(rows)), np.diff(rows.indptr))
        return rows.indices[order].astype(np.int64), owner[order], rows.values[order].astype(float)

    def score(self, query: Encoded, rows: Int64) -> tuple[Float64, Float64]:
        """(learned, exact) of one encoded query for the given documents, float64 (rows,) each."""
        learned, exact = self._own.score(known(query, self._width), rows)
        unseen, owner, values = self._postings
        asked = beyond(query, self._width)
        added = None
        for row, weight in zip(asked.indices.tolist(), asked.values.tolist(), strict=True):
            first, stop = np.searchsorted(unseen, [row, row + 1])
            if first < stop:
                added = np.zeros(len(self._documents)) if added is None else added
                added[owner[first:stop]] += weight * values[first:stop]
        return learned, exact if added is None else exact + added[rows]

    def explain(self, terms: Sequence[TermShare], query: Encoded, row: int) -> list[WordScore]:
        """What each word brought to one document's score; they add up to learned and to exact."""
        own = [within(term, self._width) for term in terms]
        found = self._own.explain(own, known(query, self._width), row)
        _, indices, weights, _ = self._documents.row(row)
        held = dict(zip(indices.tolist(), weights.tolist(), strict=True))
        more = {
            term.term: sum(
                weight * held.get(feature, 0.0)
                for feature, weight in features_of(term)
                if feature >= self._width
            )
            for term in terms
        }
        return [word._replace(exact=word.exact + more.pop(word.word, 0.0)) for word in found]
