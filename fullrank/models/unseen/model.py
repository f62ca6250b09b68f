"""A model with features for words that it does not know."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fullrank.models.contract import Model, Parts, Wrapper
from fullrank.models.reading import DocumentReading, Reading
from fullrank.models.unseen.keys import KEYS, Keys, document_buckets
from fullrank.models.unseen.rules import Rule, rule_of, with_feature, within
from fullrank.retrieval.scoring import TermShare, WordScore
from fullrank.storage.documents import field_text
from fullrank.storage.encoding import Encoded, Float64, Int32, Int64, Mask, Rows
from fullrank.text.features import Counts, Vocabulary, count_corpus
from fullrank.text.words import count_words

KIND = "open"
# R: docs/concepts/certificates.md says how often two words share a bucket.
ROWS = 1 << 20


@dataclass(frozen=True, eq=False)
class OpenModel(Wrapper):
    """A model and R more features for unknown words."""

    model: Model
    rule: Rule
    rows: int = ROWS

    def leaves(self, first: int = 0) -> Iterator[tuple[int, Model]]:
        return self.model.leaves(first)

    @property
    def trained(self) -> Model:
        return self.model

    @property
    def n_sparse(self) -> int:
        return self.model.n_sparse + self.rows

    @cached_property
    def config(self) -> dict[str, Any]:
        return {"kind": KIND, "rows": self.rows, "model": dict(self.model.config)}

    @cached_property
    def for_documents(self) -> OpenModel:
        own, rule = self.model.for_documents, rule_of(self.model, for_documents=True)
        return self if own is self.model or rule is None else replace(self, model=own, rule=rule)

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        reading = Reading.of(texts)
        encoded = self.model.encode_queries(reading)
        if self._keys is not None:
            return _with_unseen(encoded, self._keys.queries(reading))
        if not any(map(self._unseen, texts)):
            return replace(encoded, sparse=replace(encoded.sparse, width=self.n_sparse))
        [counts] = self._over(count_corpus([texts]))
        return _with_unseen(encoded, self._buckets(self.rule.query(counts)))

    def unseen_features(self, word: str) -> list[int]:
        features = self.encode_queries([word]).sparse.indices
        return [feature for feature in features.tolist() if feature >= self.model.n_sparse]

    def features_by_word(self, text: str) -> dict[str, set[int]]:
        if self._keys is None:
            return {word: {self.model.n_sparse + self.row(word)} for word in self._unseen(text)}
        found = self._keys.terms(text).items()
        return {word: {self.model.n_sparse + bucket for bucket in own} for word, own in found}

    def features_of(self, words: Sequence[str]) -> Int32:
        """Return the feature of each unknown word itself, without those of its other forms, int32."""
        return self._vocabulary.buckets_of(words) + np.int32(self.model.n_sparse)

    @property
    def features_per_word(self) -> int:
        """How many features an unknown word of a document has."""
        return 1 if self._keys is None else KEYS

    @cached_property
    def text_fields(self) -> list[str]:
        """The fields whose words find a document, ascending."""
        return sorted({name for column in self.rule.columns for name in column})

    def words_in(self, fields: Mapping[str, Any]) -> tuple[list[str], list[int]]:
        """Return the different words of a document, and the places of those that the model does not know."""
        found = [*count_words(field_text(fields, self.text_fields))]
        return found, np.flatnonzero(self.rule.words.known.rows(found) < 0).tolist()

    def unseen_words(self, documents: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the words of documents that the model does not know, ascending."""
        counts = DocumentReading.of(documents).counts(self.rule.columns)
        rows = self.rule.words.known.rows(counts.words)
        return sorted(counts.words[i] for i in np.flatnonzero(rows < 0).tolist())

    def encode_documents(self, documents: Sequence[Mapping[str, Any]]) -> Encoded:
        reading = DocumentReading.of(documents)
        if self._keys is not None:
            found = self._keys.documents(reading)
        else:
            counts = reading.counts(self.rule.columns)
            found = self._buckets(self.rule.document(self._over(counts)))
        return _with_unseen(self.model.encode_documents(reading), found)

    def _over(self, counts: Counts) -> list[Rows]:
        """Return the columns over the rule's words and the R buckets after them."""
        words = self._vocabulary
        target, width = words.rows(counts.words), len(self.rule.words) + self.rows
        return [column.remap_columns(target, width) for column in counts.columns]

    @cached_property
    def _keys(self) -> Keys | None:
        """The keys of unknown words; None for a model that does not fold, or knows every word."""
        if self.rule.forms is None or self.rule.words.buckets:
            return None
        return Keys(self.rule, self.rule.forms, self._vocabulary, self.rows)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        """The rule's words and R buckets; words that have trained buckets are all known."""
        words = self.rule.words
        return words if words.buckets else replace(words, buckets=self.rows)

    def _buckets(self, rows: Rows) -> Rows:
        return rows.columns(len(self.rule.words), rows.width)

    def _unseen(self, text: str) -> dict[str, int]:
        """Count the words of a text that the model does not know."""
        counts = count_words(text)
        rows = self.rule.words.rows([*counts]).tolist()
        return {word: tf for (word, tf), row in zip(counts.items(), rows, strict=True) if row < 0}

    def row(self, word: str) -> int:
        """Return the bucket of an unknown word, below R."""
        return self._vocabulary.bucket(word)

    def query_terms(self, text: str) -> list[TermShare]:
        """Split a query as the model does, and add its bucket to each unknown word."""
        terms = {term.term: term for term in self.model.query_terms(text)}
        nothing = np.zeros(self.n_dense, np.float32)
        if self._keys is not None:
            for word, features in self._keys.terms(text).items():
                term = terms.get(word, TermShare(word, nothing, -1, 0.0))
                for bucket, weight in sorted(features.items()):
                    term = with_feature(term, self.model.n_sparse + bucket, weight)
                terms[word] = term
            return list(terms.values())
        unseen = self._unseen(text)
        if unseen:
            [counts] = self._over(count_corpus([[text]]))
            found = self._buckets(self.rule.query(counts))
            weights = dict(zip(found.indices.tolist(), found.values.tolist(), strict=True))
            # Words of one bucket are one feature: each gets a share of its weight in proportion to its count.
            totals: dict[int, int] = {}
            for word, tf in unseen.items():
                totals[self.row(word)] = totals.get(self.row(word), 0) + tf
            for word, tf in unseen.items():
                row = self.row(word)
                term = terms.get(word, TermShare(word, nothing, -1, 0.0))
                weight = weights.get(row, 0.0) * tf / totals[row]
                terms[word] = with_feature(term, self.model.n_sparse + row, weight)
        return list(terms.values())

    def matching_words(self, text: str, words: Sequence[str]) -> Mask:
        """Return which words a query asks for; an unknown one also in the forms that its keys are of."""
        found = self.model.matching_words(text, words)
        if self._keys is not None:
            found |= self._keys.matching_words(text, words)
        return found

    def word_shares(
        self,
        query: Encoded,
        documents: Sequence[Mapping[str, Any]],
        encoded: Encoded,
        words: Sequence[str],
    ) -> Float64:
        width = self.model.n_sparse
        own, others = without_unseen(query, width), without_unseen(encoded, width)
        shares = self.model.word_shares(own, documents, others, words)
        late = encoded.sparse.columns(width, encoded.sparse.width)
        if not len(late.indices):
            return shares
        s = query.sparse.columns(width, query.sparse.width)
        unknown = np.flatnonzero(self.rule.words.rows(words) < 0).tolist()
        weights = dict(zip(s.indices.tolist(), s.values.tolist(), strict=True))
        for i in unknown:
            buckets = [b for b in self._buckets_of(words[i]) if b in weights]
            for document in range(len(late)) if buckets else ():
                row = dict(zip(*map(np.ndarray.tolist, late.row(document)), strict=True))
                shares[document, i] += sum(weights[b] * row.get(b, 0.0) for b in buckets)
        return shares

    def _buckets_of(self, word: str) -> list[int]:
        if self._keys is None:
            return [self.row(word)]
        return sorted({*document_buckets(word, self._vocabulary)})

    def scorer(self, documents: Encoded) -> OpenScorer | None:
        if self.model.scorer(without_unseen(documents.slice(0, 0), self.model.n_sparse)) is None:
            return None
        return OpenScorer(self.model, documents)

    def parts(self) -> Parts:
        parts = self.model.parts()
        return Parts(self.config, parts.arrays, parts.strings)

    @classmethod
    def from_parts(cls, parts: Parts, load: Callable[[Parts], Model]) -> OpenModel:
        model = load(Parts(parts.config["model"], parts.arrays, parts.strings))
        rows, rule = parts.config["rows"], rule_of(model)
        if rule is None or type(rows) is not int or rows < 1:
            raise ValueError(f"rows is {rows!r}, or the model cannot take live documents")
        return cls(model, rule, rows)


def live_model(model: Model) -> OpenModel | None:
    """Add features for unknown words to a model; None for a model that cannot take live documents."""
    if isinstance(model, OpenModel):
        return model
    rule = rule_of(model)
    return None if rule is None else OpenModel(model, rule)


def _with_unseen(encoded: Encoded, unseen: Rows) -> Encoded:
    """Append the features of unknown words: [s | s′] of each text."""
    return replace(encoded, sparse=Rows.hstack(encoded.sparse, unseen))


def without_unseen(encoded: Encoded, width: int) -> Encoded:
    """Keep the first `width` sparse features: those of the words that the model knows."""
    sparse = encoded.sparse
    if sparse.width == width:
        return encoded
    if len(sparse) != 1:
        return Encoded(encoded.dense, sparse.columns(0, width), encoded.bias)
    # Of one query the features ascend, so those that the model does not know are the last ones.
    size = bisect_left(sparse.indices, width)
    kept = Rows(np.array([0, size]), sparse.indices[:size], sparse.values[:size], width)
    return Encoded(encoded.dense, kept, encoded.bias)


class OpenScorer:
    """The model's own scorer over u, v, s and t, plus s′·t′ in the lexical part, in float64."""

    def __init__(self, model: Model, documents: Encoded) -> None:
        self._width = model.n_sparse
        own = model.scorer(without_unseen(documents, self._width))
        assert own is not None
        self._own = own
        self._documents = documents

    def _unseen(self, texts: Encoded) -> Rows:
        """s′ of queries, t′ of documents."""
        return texts.sparse.columns(self._width, texts.sparse.width)

    @cached_property
    def _postings(self) -> tuple[Int64, Int64, Float64]:
        """Return the entries of t′: bucket, ascending, document and value."""
        rows = self._unseen(self._documents)
        order = np.argsort(rows.indices, kind="stable")
        owner = np.repeat(np.arange(len(rows)), np.diff(rows.indptr))
        return rows.indices[order].astype(np.int64), owner[order], rows.values[order].astype(float)

    def score(self, query: Encoded, rows: Int64) -> tuple[Float64, Float64]:
        dense, lexical = self._own.score(without_unseen(query, self._width), rows)
        unseen, owner, values = self._postings
        wanted = self._unseen(query)
        added = None
        for row, weight in zip(wanted.indices.tolist(), wanted.values.tolist(), strict=True):
            first, stop = np.searchsorted(unseen, [row, row + 1])
            if first < stop:
                added = np.zeros(len(self._documents)) if added is None else added
                added[owner[first:stop]] += weight * values[first:stop]
        return dense, lexical if added is None else lexical + added[rows]

    def explain(self, terms: Sequence[TermShare], query: Encoded, row: int) -> list[WordScore]:
        own = [within(term, self._width) for term in terms]
        found = self._own.explain(own, without_unseen(query, self._width), row)
        _, indices, weights, _ = self._documents.row(row)
        weight_of = dict(zip(indices.tolist(), weights.tolist(), strict=True))
        more = {
            term.term: sum(
                weight * weight_of.get(feature, 0.0)
                for feature, weight in term.pairs
                if feature >= self._width
            )
            for term in terms
        }
        return [word._replace(lexical=word.lexical + more.pop(word.word, 0.0)) for word in found]
