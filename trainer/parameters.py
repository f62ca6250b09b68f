"""What training learns, and how it becomes a model that serves."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fullrank.encoding import Encoded, Float32
from fullrank.features import Counts, Vocabulary
from fullrank.linear import LinearModel
from trainer.data import Features
from trainer.settings import TrainSettings


@dataclass(eq=False)
class Parameters:
    """f(q, d) = (U x_q)·(V x_d) + Σ_f s·D_f·z_f + b_d

    U, V   float32 (features, N): the trained rows that words are made of; one array when tied
    D      float32 (fields, F): words and buckets, then phrases; the phrases' own field last
    bias   float32 (documents,)
    """

    U: Float32
    V: Float32
    D: Float32
    bias: Float32

    def copy(self) -> Parameters:
        """An independent copy; a tied pair stays one array."""
        U = self.U.copy()
        V = U if self.V is self.U else self.V.copy()
        return Parameters(U, V, self.D.copy(), self.bias.copy())


def start(features: Features, train: TrainSettings, rng: np.random.Generator) -> Parameters:
    """U, V ~ Normal(0, init²), equal rows for words that both sides know; D = 1; b = 0."""
    settings = features.settings
    fields, width = len(features.z), features.s.width
    D = np.ones((fields, width), np.float32)
    bias = np.zeros(features.documents, np.float32)
    if settings.latent != "learned" or train.loss == "none":
        nothing = np.zeros((0, 0), np.float32)
        return Parameters(nothing, nothing, D, bias)
    shape = (features.xd.width, settings.dimension)
    V = rng.standard_normal(shape, np.float32) * np.float32(train.init)
    if settings.tied:
        return Parameters(V, V, D, bias)
    shape = (features.xq.width, settings.dimension)
    U = rng.standard_normal(shape, np.float32) * np.float32(train.init)
    if train.loss == "softmax":
        # Shared words start alike: UᵀV is then close to a multiple of I, and learning adds to it.
        of_query, of_document = features.rows_q.labels, features.rows_d.labels
        rows = Vocabulary(of_document).rows(of_query)
        shared = np.flatnonzero(rows >= 0)
        U[shared] = V[rows[shared]]
        U[len(of_query) :] = V[len(of_document) :]
    return Parameters(U, V, D, bias)


def compile_model(features: Features, parameters: Parameters) -> LinearModel:
    """The model of some parameters: trained rows folded into words, diagonals into documents."""
    model = features.model
    fields = len(features.counted)
    words = len(model.sparse.words)
    sparse = replace(model.sparse, D=np.ascontiguousarray(parameters.D[:fields, :words]))
    if len(model.sparse.phrases):
        P = parameters.D[fields, words:] * features.phrase_idf
        sparse = replace(sparse, P=P.astype(np.float32))
    query, document = model.query, model.document
    if features.settings.latent == "learned":
        query = features.rows_q.folded(query, parameters.U)
        document = features.rows_d.folded(document, parameters.V)
    bias = float(np.median(parameters.bias)) if features.settings.bias else 0.0
    return LinearModel({**model.settings, "bias": bias}, query, document, sparse)


def encode_corpus(features: Features, model: LinearModel, parameters: Parameters) -> Encoded:
    """The corpus as the model encodes it, with the learned biases."""
    counts = Counts(features.words, features.counted)
    encoded = model.encode_document_counts(counts, features.own)
    return replace(encoded, bias=parameters.bias) if features.settings.bias else encoded


def encode_judged(features: Features, model: LinearModel, rows: np.ndarray) -> Encoded:
    """Queries of the collection, by row, as the model encodes them."""
    return model.encode_query_counts(
        features.words, features.query_counts.take(rows), features.query_phrases.take(rows)
    )
