"""What the half transductive learners share: W for whatever is read, a free vector for every document of the corpus.

    f(x, y_i) = v_iᵀWφ(x) + φ(x)·φ(y_i)        the last term only with an exact-match part; v_i and Wφ(x)
                                               of unit length where the recipe says cosine

It serves as the linear kind does: W is the table of queries, and of documents too, so that a document added later
falls back to Wφ(y). The corpus's own documents are stored with their v_i.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from fullrank.encoding import Float32, Int64
from fullrank.features import Rows, moved
from fullrank.linear import LinearModel
from trainer.features.data import Features
from trainer.recipes.recipe import Recipe
from trainer.systems.linear import kernels, lsi
from trainer.systems.linear.parameters import (
    Parameters,
    compile_model,
    encode_corpus,
    encode_judged,
)
from trainer.training.fitted import Fitted
from trainer.training.loop import Arrays, InPlace, Run
from trainer.training.validation import Validation, scan_documents, scan_queries

_DEPTH = 100  # places that the MAP of early stopping looks at
STEP = 5_000  # steps between two reports of progress


class ItemsLearner(InPlace, ABC):
    """f(x, y_i) = v_iᵀWφ(x) under some loss.

    x      φ of the documents over the rows of W
    W      float32 (features, N), stored by feature: a query's words, then letter trigrams
    items  float32 (documents, N): v_i
    """

    per_epoch: int

    def __init__(self, features: Features, recipe: Recipe, rng: np.random.Generator) -> None:
        self.features, self.train, self.settings, self.rng = features, recipe.train, recipe.htr, rng
        self.x = over_queries(features)
        self.W, self.items = self.start()
        self.rate = np.array(recipe.train.rates[:1])

    def start(self) -> tuple[Float32, Float32]:
        """W ~ Normal(0, init²) and v_i = Wφ(y_i), or Normal(0, init²) too; or LSI's projection as both.

        With B the singular vectors of the documents, W = Bᵀ and v_i = Bᵀφ(y_i), times what makes the
        mean of v_iᵀWφ(y_i) the margin, 1.
        """
        size, init = self.features.settings.dimension, np.float32(self.train.init)
        if self.settings.items == "lsi":
            B = lsi.project(self.features, int(self.rng.integers(1 << 31)))
            W = np.zeros((self.features.xq.width, size), np.float32)
            place = rows_of_documents(self.features.model)
            W[place[place >= 0]] = B[place >= 0]
            items = self.embedded(W)
            scale = np.float32(np.mean(np.square(items).sum(axis=1)) ** -0.5)
            return W * scale, items * scale
        W = self.rng.standard_normal((self.features.xq.width, size), np.float32) * init
        if self.settings.items == "random":
            return W, self.rng.standard_normal((len(self.x), size), np.float32) * init
        return W, self.embedded(W)

    def embedded(self, W: Float32) -> Float32:
        """Wφ(y_i) of all documents."""
        found = np.empty((len(self.x), W.shape[1]), np.float32)
        kernels.embed(self.x.indptr, self.x.indices, self.x.values, W, found)
        return found

    @abstractmethod
    def prepare(self) -> None:
        """As Learner.prepare."""

    @abstractmethod
    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """As Learner.steps."""

    def parameters(self) -> Arrays:
        """W, items."""
        return {"W": self.W, "items": self.items}

    def state(self) -> Arrays:
        """The chosen rate."""
        return {"rate": self.rate}

    def linear(self) -> Parameters:
        """The parameters of the linear family that serve: U = W, and V the rows of W that documents' words have."""
        place = rows_of_documents(self.features.model)
        V = np.where(place[:, None] >= 0, self.W[place], np.float32(0))
        D = np.ones((len(self.features.z), self.features.s.width), np.float32)
        return Parameters(self.W, V, D, np.zeros(self.features.documents, np.float32))

    def measure(self, valid: Validation) -> float:
        """MAP on validation, without compiling a model."""
        linear = self.linear()
        documents = replace(scan_documents(self.features, linear), dense=self.stored())
        queries = scan_queries(self.features, linear, valid.rows)
        queries = replace(queries, dense=self._finished(queries.dense))
        return float(valid.measure(documents, queries, depth=_DEPTH)["map"].mean)

    def stored(self) -> Float32:
        """The dense vectors of the corpus, as the bundle holds them."""
        return self._finished(self.items)

    def _finished(self, dense: Float32) -> Float32:
        return unit_rows(dense) if self.settings.cosine else dense

    def fitted(self, run: Run) -> Fitted:
        """Train to the end, and the model of the best epoch."""
        facts = run.learn(self)
        linear = self.linear()
        model = compile_model(self.features, linear)
        model = replace(model, settings={**model.settings, "unit": self.settings.cosine})
        documents = encode_corpus(self.features, model, linear)
        facts["rate"] = float(self.rate[0])
        return Fitted(
            model,
            replace(documents, dense=self.stored()),
            partial(encode_judged, self.features, model),
            facts,
        )


def unit_rows(dense: Float32) -> Float32:
    """Each row divided by its norm; zero stays zero."""
    norm = np.linalg.norm(dense, axis=1, keepdims=True)
    return np.ascontiguousarray(dense / np.where(norm == 0, 1, norm), np.float32)


def rows_of_documents(model: LinearModel) -> Int64:
    """The row of W of each feature of documents, words then trigrams; -1 where queries have none."""
    words = model.query.words.rows(model.document.words.words).astype(np.int64)
    letters = len(model.query.words) + np.arange(len(model.document.trigrams))
    return np.concatenate([words, letters])


def over_queries(features: Features) -> Rows:
    """φ of the documents over the features of queries, the rows of W."""
    place = rows_of_documents(features.model).astype(np.int32)
    return moved(features.xd, place, features.xq.width)
