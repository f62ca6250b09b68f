"""Several models as one: f(q, d) = Σ_m w_m f_m(q, d).

    u = [w_1 u_1; w_2 u_2; …]        v = [v_1; v_2; …]        s and t likewise        b = Σ_m w_m b_m

so the sum of inner products is one inner product, and is served like any other. A language model is none, but its score
too is linear in the weights of the query's words: beside one, a ``MixedScorer`` adds up what each model says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from fullrank.encoding import Encoded, Float64, Int64
from fullrank.explain import word_scores
from fullrank.features import rows_of
from fullrank.model import Model, Parts, TermShare, WordScore
from fullrank.retrieval import Retriever

KIND = "mixed"


@dataclass(frozen=True, eq=False)
class MixedModel:
    """Models and their weights. Each model's score must be linear in its encoded query."""

    models: Sequence[Model]
    weights: Sequence[float]

    @property
    def n_dense(self) -> int:
        """N: those of all models together."""
        return sum(model.n_dense for model in self.models)

    @property
    def n_sparse(self) -> int:
        """F: those of all models together."""
        return sum(model.n_sparse for model in self.models)

    @cached_property
    def config(self) -> dict[str, Any]:
        """JSON settings: those of each model under ``models``."""
        models = [dict(model.config) for model in self.models]
        return {"kind": KIND, "weights": list(self.weights), "models": models}

    def encode_queries(self, texts: Sequence[str]) -> Encoded:
        """u and s of each text, weighted."""
        return self.queries([model.encode_queries(texts) for model in self.models])

    def queries(self, encoded: Sequence[Encoded]) -> Encoded:
        """The queries of each model as those of this one."""
        return beside(encoded, self.weights)

    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        """v, t and the default bias of each document."""
        return self.documents([model.encode_documents(documents) for model in self.models])

    def documents(self, encoded: Sequence[Encoded]) -> Encoded:
        """The documents of each model as those of this one."""
        pairs = zip(encoded, self.weights, strict=True)
        bias = np.sum([np.float32(weight) * part.bias for part, weight in pairs], axis=0)
        return replace(beside(encoded, [1.0] * len(encoded)), bias=np.asarray(bias, np.float32))

    def query_text(self, fields: Mapping[str, Any]) -> str:
        """A document read as a query, as the first model reads it."""
        return self.models[0].query_text(fields)

    def query_terms(self, text: str) -> list[TermShare]:
        """Each term once, with its parts of all models."""
        found: dict[str, tuple[np.ndarray, dict[int, float]]] = {}
        dense = sparse = 0
        for model, weight in zip(self.models, self.weights, strict=True):
            for term in model.query_terms(text):
                share, features = found.setdefault(
                    term.term, (np.zeros(self.n_dense, np.float32), {})
                )
                share[dense : dense + model.n_dense] += np.float32(weight) * term.dense
                here = zip(
                    np.atleast_1d(term.feature).tolist(), np.atleast_1d(term.weight).tolist(),
                    strict=True,
                )  # fmt: skip
                for feature, value in here:
                    if feature >= 0:
                        place = sparse + feature
                        features[place] = features.get(place, 0.0) + weight * value
            dense, sparse = dense + model.n_dense, sparse + model.n_sparse
        return [_term(name, *parts) for name, parts in found.items()]

    def scorer(self, documents: Encoded) -> MixedScorer | None:
        """None where every model is an inner product: then so is the mix."""
        none = documents.slice(0, 0)
        pairs = zip(self.models, self.places(), strict=True)
        if all(model.scorer(place.of(none)) is None for model, place in pairs):
            return None
        return MixedScorer(self, documents)

    def places(self) -> list[Place]:
        """Where each model's numbers lie among those of the mix."""
        found, dense, sparse = [], 0, 0
        for model in self.models:
            found.append(Place(dense, model.n_dense, sparse, model.n_sparse))
            dense, sparse = dense + model.n_dense, sparse + model.n_sparse
        return found

    def parts(self) -> Parts:
        """What a bundle stores: the arrays and strings of each model under its number."""
        arrays: dict[str, Any] = {}
        strings: dict[str, Sequence[str]] = {}
        for number, model in enumerate(self.models):
            parts = model.parts()
            arrays |= {f"{number}.{name}": array for name, array in parts.arrays.items()}
            strings |= {f"{number}.{name}": texts for name, texts in parts.strings.items()}
        return Parts(self.config, arrays, strings)

    @classmethod
    def from_parts(cls, parts: Parts, load: Callable[[Parts], Model]) -> MixedModel:
        """The inverse of ``parts``. Raises ValueError where a model is missing.

        load  makes each of the models
        """
        models = []
        for number, config in enumerate(parts.config["models"]):
            start = f"{number}."
            arrays = {
                k.removeprefix(start): v for k, v in parts.arrays.items() if k.startswith(start)
            }
            strings = {
                k.removeprefix(start): v for k, v in parts.strings.items() if k.startswith(start)
            }
            models.append(load(Parts(config, arrays, strings)))
        weights = [float(weight) for weight in parts.config["weights"]]
        if len(weights) != len(models) or not models:
            raise ValueError(f"{len(models)} models, {len(weights)} weights")
        return cls(models, weights)


class Place(NamedTuple):
    """The columns of one model: ``n_dense`` from ``dense`` on, ``n_sparse`` from ``sparse`` on."""

    dense: int
    n_dense: int
    sparse: int
    n_sparse: int

    def of(self, texts: Encoded) -> Encoded:
        """The model's part of encoded texts; no bias, which the mix has as a whole."""
        rows = rows_of(texts.csr()[:, self.sparse : self.sparse + self.n_sparse])
        dense = np.ascontiguousarray(texts.dense[:, self.dense : self.dense + self.n_dense])
        bias = np.zeros(len(texts), np.float32)
        return Encoded(dense, rows.indptr, rows.indices, rows.values, rows.width, bias)

    def share(self, term: TermShare) -> TermShare:
        """The model's part of a term."""
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
    """Σ_m w_m f_m for one set of documents, each f_m as its own retrieval would score it, in float64.

    The weights are in the query already. Each model's part of the documents is copied out once, when it is first
    needed: a bundle opens in the same time however many documents it has.
    """

    def __init__(self, model: MixedModel, documents: Encoded) -> None:
        self.model, self.documents = model, documents

    @cached_property
    def parts(self) -> list[tuple[Place, Retriever]]:
        """Where each model's numbers lie, and its own retrieval over its part of the documents."""
        found = []
        for model, place in zip(self.model.models, self.model.places(), strict=True):
            own = place.of(self.documents)
            found.append((place, Retriever(own, model.scorer(own))))
        return found

    def score(self, query: Encoded, rows: Int64) -> tuple[Float64, Float64]:
        """(learned, exact) of one encoded query for the given documents, float64 (rows,) each."""
        learned, exact = np.zeros(len(rows)), np.zeros(len(rows))
        for place, retriever in self.parts:
            own_learned, own_exact, _ = retriever.exact(place.of(query), 0, rows)
            learned += own_learned
            exact += own_exact
        return learned, exact

    def explain(self, terms: Sequence[TermShare], query: Encoded, row: int) -> list[WordScore]:
        """Each term's words of all models, added up."""
        found = [
            word_scores([place.share(term) for term in terms], retriever, place.of(query), row)
            for place, retriever in self.parts
        ]
        return [
            WordScore(words[0].word, sum(w.learned for w in words), sum(w.exact for w in words))
            for words in zip(*found, strict=True)
        ]


def beside(parts: Sequence[Encoded], weights: Sequence[float]) -> Encoded:
    """The texts of several models in one space, each model's numbers times its weight; bias as the first's."""
    dense = [np.float32(w) * part.dense for part, w in zip(parts, weights, strict=True)]
    sparse = [part.csr() * np.float32(w) for part, w in zip(parts, weights, strict=True)]
    rows = rows_of(sp.csr_array(sp.hstack(sparse, format="csr")))
    return Encoded(
        np.ascontiguousarray(np.concatenate(dense, axis=1)),
        rows.indptr, rows.indices, rows.values, rows.width, parts[0].bias,
    )  # fmt: skip


def _term(name: str, share: np.ndarray, features: Mapping[int, float]) -> TermShare:
    places = np.array(sorted(features), np.int32)
    return TermShare(
        name, share, places, np.array([features[p] for p in places.tolist()], np.float32)
    )
