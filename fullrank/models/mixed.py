"""Several models as one: f(q, d) = Σ_m w_m f_m(q, d).

    u = [w_1 u_1; w_2 u_2; …]        v = [v_1; v_2; …]        s and t likewise        b = Σ_m w_m b_m

and more for documents that training did not judge (`Lift`).

A blend of linked documents has other weights for a document that is a query than for typed text. Both meet the same
document side, so they share b; the weights of documents are scaled so that b also suits typed text.

The sum of inner products is one inner product, so a mix is served like any other model. A language model is no inner
product, but its score too is linear in the weights of the query's words: in a mix with one, a `MixedScorer` adds up the
scores of the models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fullrank.kernels.rows import put_part
from fullrank.models.contract import Model, Parts
from fullrank.models.memory import LinkModel, MemoryModel
from fullrank.models.reading import DocumentReading, Reading
from fullrank.retrieval.scoring import InnerProduct, Scorer, TermShare, WordScore
from fullrank.storage.encoding import Encoded, Float32, Float64, Int64, Mask, Rows

KIND = "mixed"


class Lift(NamedTuple):
    """How scores of documents without a judgement change: without a dense part times `factor`, then plus `added`."""

    factor: float = 1.0
    added: float = 0.0


NO_LIFT = Lift()


@dataclass(frozen=True, eq=False)
class MixedModel(Model):
    """Models and their weights w_m. The score of each model must be linear in its encoded query.

    Attributes:
        lift: of documents that training did not judge.
        document_weights: w_m of documents as queries, and of the biases; None: those of typed text.
    """

    models: Sequence[Model]
    weights: Sequence[float]
    lift: Lift = NO_LIFT
    document_weights: Sequence[float] | None = None

    @cached_property
    def for_documents(self) -> MixedModel:
        if self.document_weights is None:
            return self
        return replace(self, weights=self.document_weights, document_weights=None)

    def leaves(self, first: int = 0) -> Iterator[tuple[int, Model]]:
        for model, place in zip(self.models, self.places(), strict=True):
            yield from model.leaves(first + place.sparse)

    @property
    def n_dense(self) -> int:
        return sum(model.n_dense for model in self.models)

    @property
    def n_sparse(self) -> int:
        return sum(model.n_sparse for model in self.models)

    @cached_property
    def config(self) -> dict[str, Any]:
        models = [dict(model.config) for model in self.models]
        config: dict[str, Any] = {"kind": KIND, "weights": list(self.weights), "models": models}
        # Written only if set, so that the settings of older bundles do not change.
        if self.document_weights is not None:
            config["document_weights"] = list(self.document_weights)
        if self.lift.factor != 1:
            config["scaled"] = self.lift.factor
        return config | ({"raised": self.lift.added} if self.lift.added else {})

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        reading, found = Reading.of(texts), []
        for model, weight in zip(self.models, self.weights, strict=True):
            if weight:
                found.append(model.encode_queries(reading))
            else:
                dense = np.zeros((len(texts), model.n_dense), np.float32)
                found.append(Encoded.from_rows(Rows.empty(len(texts), model.n_sparse), dense))
        return self.queries(found)

    def queries(self, encoded: Sequence[Encoded]) -> Encoded:
        """Join the encoded queries of the models, weighted."""
        return _weighted(encoded, self.weights)

    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        reading = DocumentReading.of(documents)
        found = self.documents([model.encode_documents(reading) for model in self.models])
        return self.lifted(found, np.ones(len(found), np.bool_))

    def lifted(self, documents: Encoded, unjudged: Mask) -> Encoded:
        """Return what `documents` returned, with the lift of those that training did not judge."""
        sparse = documents.sparse
        if self.lift.added > 0 and self._remembered.any():
            # Documents that people clicked after a query are raised with the others, so clicks keep deciding.
            sparse = sparse.with_values(sparse.values + self._remembered[sparse.indices])
        if self.lift.factor != 1:
            owner = np.repeat(unjudged, np.diff(sparse.indptr))
            factors = np.where(owner, self._factors[sparse.indices], np.float32(1))
            sparse = sparse.with_values(sparse.values * factors)
        bias = documents.bias + np.float32(self.lift.added) * unjudged.astype(np.float32)
        return replace(documents, sparse=sparse, bias=bias)

    @property
    def has_memory(self) -> bool:
        """Whether documents have clicks or links, which their texts do not tell."""
        return any(isinstance(model, MemoryModel) for model in self.models)

    def with_clicks(self, documents: Encoded, places: Int64, earlier: Encoded) -> Encoded:
        """Give documents, at ascending places, the clicks and the bias of the encoded ones that they replace."""
        is_own = np.zeros(max(self.n_sparse, earlier.sparse.width), np.bool_)
        for model, place in zip(self.models, self.places(), strict=True):
            if isinstance(model, MemoryModel):
                is_own[place.sparse : place.sparse + place.n_sparse] = True
        kept = is_own[earlier.sparse.indices]
        owners = np.repeat(places, np.diff(earlier.sparse.indptr))[kept]
        indptr = np.zeros(len(documents) + 1, np.int64)
        np.cumsum(np.bincount(owners, minlength=len(documents)), out=indptr[1:])
        entries = earlier.sparse.indices[kept], earlier.sparse.values[kept]
        clicks = Rows(indptr, *entries, documents.sparse.width)
        bias = documents.bias.copy()
        bias[places] = earlier.bias
        return replace(documents, sparse=Rows.add([documents.sparse, clicks]), bias=bias)

    @cached_property
    def _remembered(self) -> Float32:
        """What each sparse feature of a known query adds to a document that has it, float32 (F,)."""
        found = np.zeros(self.n_sparse, np.float32)
        for model, place, weight in zip(self.models, self.places(), self.weights, strict=True):
            if weight and isinstance(model, MemoryModel) and not isinstance(model, LinkModel):
                own = slice(place.sparse, place.sparse + place.n_sparse)
                found[own] = self.lift.added / weight
        return found

    @cached_property
    def _factors(self) -> Float32:
        """What each sparse feature of an unjudged document is multiplied by, float32 (F,)."""
        found = np.ones(self.n_sparse, np.float32)
        for place in self.places():
            if not place.n_dense:
                found[place.sparse : place.sparse + place.n_sparse] = self.lift.factor
        return found

    def documents(self, encoded: Sequence[Encoded]) -> Encoded:
        """Join the encoded documents of the models."""
        pairs = zip(encoded, self.for_documents.weights, strict=True)
        bias = np.sum([np.float32(weight) * part.bias for part, weight in pairs], axis=0)
        return replace(_weighted(encoded, [1.0] * len(encoded)), bias=np.asarray(bias, np.float32))

    def query_text(self, fields: Mapping[str, Any]) -> str:
        """Return the text of a document used as a query, as the first model reads it."""
        return self.models[0].query_text(fields)

    def query_terms(self, text: str) -> list[TermShare]:
        """Split a query by word, each word once with its shares of all models."""
        found: dict[str, tuple[np.ndarray, dict[int, float]]] = {}
        dense = sparse = 0
        for model, weight in zip(self.models, self.weights, strict=True):
            for term in model.query_terms(text):
                share, features = found.setdefault(
                    term.term, (np.zeros(self.n_dense, np.float32), {})
                )
                share[dense : dense + model.n_dense] += np.float32(weight) * term.dense
                for feature, value in term.pairs:
                    place = sparse + feature
                    features[place] = features.get(place, 0.0) + weight * value
            dense, sparse = dense + model.n_dense, sparse + model.n_sparse
        return [TermShare.from_weights(name, *parts) for name, parts in found.items()]

    def matching_words(self, text: str, words: Sequence[str]) -> Mask:
        found = np.zeros(len(words), np.bool_)
        for model in self.models:
            found |= model.matching_words(text, words)
        return found

    def word_shares(
        self,
        query: Encoded,
        documents: Sequence[Mapping[str, Any]],
        encoded: Encoded,
        words: Sequence[str],
    ) -> Float64:
        """Add up the shares in all models; the encoded query contains the weights."""
        reading = DocumentReading.of(documents)
        total = np.zeros((len(encoded), len(words)))
        for model, place in zip(self.models, self.places(), strict=True):
            total += model.word_shares(place.of(query), reading, place.of(encoded), words)
        return total

    def scorer(self, documents: Encoded) -> MixedScorer | None:
        """Return a MixedScorer; None if every model is an inner product, because then the mix is one too."""
        empty = documents.slice(0, 0)
        pairs = zip(self.models, self.places(), strict=True)
        if all(model.scorer(place.of(empty)) is None for model, place in pairs):
            return None
        return MixedScorer(self, documents)

    def places(self) -> list[ModelColumns]:
        """Return the columns of each model."""
        found, dense, sparse = [], 0, 0
        for model in self.models:
            found.append(ModelColumns(dense, model.n_dense, sparse, model.n_sparse))
            dense, sparse = dense + model.n_dense, sparse + model.n_sparse
        return found

    def parts(self) -> Parts:
        arrays: dict[str, Any] = {}
        strings: dict[str, Sequence[str]] = {}
        for number, model in enumerate(self.models):
            parts = model.parts().under(f"{number}.")
            arrays |= parts.arrays
            strings |= parts.strings
        return Parts(self.config, arrays, strings)

    @classmethod
    def from_parts(cls, parts: Parts, load: Callable[[Parts], Model]) -> MixedModel:
        configs = enumerate(parts.config["models"])
        models = [load(parts.within(f"{number}.", config)) for number, config in configs]
        weights = [float(weight) for weight in parts.config["weights"]]
        own = parts.config.get("document_weights")
        for given in (weights, weights if own is None else own):
            if len(given) != len(models) or not models:
                raise ValueError(f"{len(models)} models, {len(given)} weights")
        factor, added = (float(parts.config.get(*of)) for of in (("scaled", 1.0), ("raised", 0.0)))
        own = None if own is None else [float(weight) for weight in own]
        return cls(models, weights, Lift(factor, added), own)


class ModelColumns(NamedTuple):
    """The columns of one model: `n_dense` from `dense` on, `n_sparse` from `sparse` on."""

    dense: int
    n_dense: int
    sparse: int
    n_sparse: int

    def of(self, texts: Encoded) -> Encoded:
        """Return the model's part of encoded texts, without a bias: the mix has one bias."""
        sparse = texts.sparse.columns(self.sparse, self.sparse + self.n_sparse)
        return Encoded.from_rows(sparse, texts.dense[:, self.dense : self.dense + self.n_dense])

    def share(self, term: TermShare) -> TermShare:
        """Return the model's part of a term."""
        features, weights = np.atleast_1d(term.feature), np.atleast_1d(term.weight)
        inside = (features >= self.sparse) & (features < self.sparse + self.n_sparse)
        dense = term.dense[self.dense : self.dense + self.n_dense]
        own = (features[inside] - self.sparse).astype(np.int32)
        if len(own) == 0:
            return TermShare(term.term, dense, -1, 0.0)
        if len(own) == 1:
            return TermShare(term.term, dense, int(own[0]), float(weights[inside][0]))
        return TermShare(term.term, dense, own, weights[inside].astype(np.float32))


class MixedScorer:
    """Σ_m w_m f_m in float64. The first score copies each model's part of the documents."""

    def __init__(self, model: MixedModel, documents: Encoded) -> None:
        self.model, self.documents = model, documents

    @cached_property
    def parts(self) -> list[tuple[ModelColumns, Scorer]]:
        """Each model's columns, and its scorer over its part of the documents."""
        found = []
        for model, place in zip(self.model.models, self.model.places(), strict=True):
            own = place.of(self.documents)
            found.append((place, model.scorer(own) or InnerProduct(own)))
        return found

    def score(self, query: Encoded, rows: Int64) -> tuple[Float64, Float64]:
        dense, lexical = np.zeros(len(rows)), np.zeros(len(rows))
        for place, scorer in self.parts:
            own_dense, own_lexical = scorer.score(place.of(query), rows)
            dense += own_dense
            lexical += own_lexical
        return dense, lexical

    def explain(self, terms: Sequence[TermShare], query: Encoded, row: int) -> list[WordScore]:
        found = [
            scorer.explain([place.share(term) for term in terms], place.of(query), row)
            for place, scorer in self.parts
        ]
        return [
            WordScore(words[0].word, sum(w.dense for w in words), sum(w.lexical for w in words))
            for words in zip(*found, strict=True)
        ]


def _weighted(parts: Sequence[Encoded], weights: Sequence[float]) -> Encoded:
    """Join encoded texts of several models, each times its weight; the bias is that of the first."""
    if len(parts) == 1 and weights[0] == 1:
        return parts[0]
    indptr = parts[0].sparse.indptr.copy()
    for part in parts[1:]:
        indptr += part.sparse.indptr
    dense = np.empty((len(indptr) - 1, sum([part.dense.shape[1] for part in parts])), np.float32)
    indices, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    places = indptr[:-1].copy()
    first = n_sparse = 0
    for part, weight in zip(parts, weights, strict=True):
        sparse, factor = part.sparse, np.float32(weight)
        if len(sparse.indices):
            put_part(*sparse.arrays, factor, n_sparse, places, indices, values)
        n_sparse += sparse.width
        last = first + part.dense.shape[1]
        if first < last:
            np.multiply(part.dense, factor, out=dense[:, first:last])
        first = last
    return Encoded(dense, Rows(indptr, indices, values, n_sparse), parts[0].bias)
