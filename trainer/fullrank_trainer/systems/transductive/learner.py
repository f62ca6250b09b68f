"""The base of the half transductive learners: W for all texts, a free vector for each document of the corpus.

    f(x, y_i) = v_iᵀWφ(x) + φ(x)·φ(y_i)        the last term only with a lexical part; v_i and Wφ(x)
                                               have unit length if the recipe says cosine

The served model is linear: W is the table of queries and of documents, so a document added later gets the vector Wφ(y).
The documents of the corpus are stored with their v_i.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from fullrank.encoding import Float32, Int64, Rows
from fullrank.models.linear import LinearModel
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.systems.linear import kernels, lsi
from fullrank_trainer.systems.linear.parameters import (
    Parameters,
    compile_model,
    encode_corpus,
    encode_judged,
)
from fullrank_trainer.systems.linear.scan import scan_documents, scan_queries
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.learned import Arrays
from fullrank_trainer.training.loop import RestoresInPlace, TrainingRun
from fullrank_trainer.training.validation import Validation

_DEPTH = 100  # documents per query that the MAP of early stopping reads
STEP = 5_000  # steps between two progress updates


class HalfTransductiveLearner(RestoresInPlace, ABC):
    """Learns f(x, y_i) = v_iᵀWφ(x) under a loss.

    Attributes:
        x: φ of the documents over the rows of W.
        W: float32 (features, N), stored by feature: words of queries, then letter trigrams.
        vectors: float32 (documents, N), v_i.
        rate: float64 (1,), the learning rate.
    """

    per_epoch: int

    def __init__(self, features: Features, recipe: Recipe, rng: np.random.Generator) -> None:
        self.features, self.train, self.settings, self.rng = features, recipe.train, recipe.htr, rng
        self.x = document_features(features)
        self.W, self.vectors = self.start()
        self.rate = np.array(recipe.train.rates[:1])

    def start(self) -> tuple[Float32, Float32]:
        """Return W and v_i at the start, as the setting ``htr.items`` says.

        W ~ Normal(0, init²), and v_i = Wφ(y_i) or Normal(0, init²). With "lsi", W = Bᵀ and v_i = Bᵀφ(y_i) for the
        singular vectors B of the documents, scaled so that the mean of v_iᵀWφ(y_i) is the margin, 1.
        """
        size, init = self.features.settings.dimension, np.float32(self.train.init)
        if self.settings.items == "lsi":
            B = lsi.project(self.features, int(self.rng.integers(1 << 31)))
            W = np.zeros((self.features.xq.width, size), np.float32)
            place = rows_of_documents(self.features.model)
            W[place[place >= 0]] = B[place >= 0]
            vectors = self.embed_documents(W)
            scale = np.float32(np.mean(np.square(vectors).sum(axis=1)) ** -0.5)
            return W * scale, vectors * scale
        W = self.rng.standard_normal((self.features.xq.width, size), np.float32) * init
        if self.settings.items == "random":
            return W, self.rng.standard_normal((len(self.x), size), np.float32) * init
        return W, self.embed_documents(W)

    def embed_documents(self, W: Float32) -> Float32:
        """Return Wφ(y_i) of all documents, float32 (documents, N)."""
        found = np.empty((len(self.x), W.shape[1]), np.float32)
        kernels.embed(self.x.indptr, self.x.indices, self.x.values, W, found)
        return found

    @abstractmethod
    def prepare(self) -> None:
        """See Learner.prepare."""

    @abstractmethod
    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """See Learner.steps."""

    def parameters(self) -> Arrays:
        """Return W and the document vectors."""
        return {"W": self.W, "vectors": self.vectors}

    def state(self) -> Arrays:
        """Return the chosen rate."""
        return {"rate": self.rate}

    def linear(self) -> Parameters:
        """Return the linear parameters that serve: U = W, V the rows of W for words of documents."""
        place = rows_of_documents(self.features.model)
        V = np.where(place[:, None] >= 0, self.W[place], np.float32(0))
        D = np.ones((len(self.features.z), self.features.s.width), np.float32)
        return Parameters(self.W, V, D, np.zeros(self.features.documents, np.float32))

    def measure(self, valid: Validation) -> float:
        """Return the MAP on validation; no model is compiled."""
        linear = self.linear()
        documents = replace(scan_documents(self.features, linear), dense=self.stored_vectors())
        queries = scan_queries(self.features, linear, valid.rows)
        queries = replace(queries, dense=self._scaled(queries.dense))
        return float(valid.measure(documents, queries, depth=_DEPTH)["map"].mean)

    def stored_vectors(self) -> Float32:
        """Return the dense vectors of the corpus, as the bundle stores them."""
        return self._scaled(self.vectors)

    def _scaled(self, dense: Float32) -> Float32:
        """Scale vectors to unit length if the recipe says cosine."""
        return unit_rows(dense) if self.settings.cosine else dense

    def fitted(self, run: TrainingRun) -> FittedModel:
        """Train to the end; return the model of the best epoch."""
        facts = run.learn(self)
        linear = self.linear()
        model = compile_model(self.features, linear)
        model = replace(model, settings={**model.settings, "unit": self.settings.cosine})
        documents = encode_corpus(self.features, model, linear)
        facts["rate"] = float(self.rate[0])
        return FittedModel(
            model,
            replace(documents, dense=self.stored_vectors()),
            partial(encode_judged, self.features, model),
            facts,
        )


def unit_rows(dense: Float32) -> Float32:
    """Divide each row by its norm; zero rows stay zero."""
    norm = np.linalg.norm(dense, axis=1, keepdims=True)
    return np.ascontiguousarray(dense / np.where(norm == 0, 1, norm), np.float32)


def rows_of_documents(model: LinearModel) -> Int64:
    """Return the row of W of each document feature, words then trigrams; -1 if queries lack it."""
    words = model.query.words.rows(model.document.words.words).astype(np.int64)
    letters = len(model.query.words) + np.arange(len(model.document.trigrams))
    return np.concatenate([words, letters])


def document_features(features: Features) -> Rows:
    """Return φ of the documents over the rows of W."""
    place = rows_of_documents(features.model).astype(np.int32)
    return features.xd.composed().remap_columns(place, features.xq.width)
