"""The parameters of the linear family, and the model that they make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fullrank.models.linear import LinearModel
from fullrank.models.linear.sides import Tower
from fullrank.storage.encoding import Encoded, Float32, Int64, Rows
from fullrank.text.features import Counts, Vocabulary
from fullrank_trainer.features.composition import Phi
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.recipes.settings import TrainSettings
from fullrank_trainer.systems.linear.batches import Scratch
from fullrank_trainer.systems.linear.towers import forward, start_table, start_tower
from fullrank_trainer.training.fitted import Arrays, FittedModel
from fullrank_trainer.training.loop import RestoresInPlace
from fullrank_trainer.training.memory import ArrayFiles, drop_pages, release
from fullrank_trainer.training.validation import Validation

_COPIED_ROWS = 1 << 14  # at once; a copy of all rows at once would need a second table


@dataclass(eq=False)
class Parameters:
    """The parameters of f(q, d) = (U x_q)·(V x_d) + Σ_f s·D_f·z_f + b_d.

    Attributes:
        U, V: float32 (features, N), the trained rows that words are composed of; one array if tied.
        D: float32 (fields, F), words and buckets, then phrases; the field of phrases is the last.
        bias: float32 (documents,).
        query, document: the layers above U and V; one tower if tied.
    """

    U: Float32
    V: Float32
    D: Float32
    bias: Float32
    query: Tower = field(default_factory=Tower)
    document: Tower = field(default_factory=Tower)

    @property
    def tied(self) -> bool:
        return self.V is self.U

    def arrays(self) -> Iterator[tuple[str, Float32]]:
        """Iterate over (name, live array); an array of both sides comes once."""
        yield "U", self.U
        if not self.tied:
            yield "V", self.V
        yield "D", self.D
        yield "bias", self.bias
        for name, array in self.query.arrays():
            yield f"query.{name}", array
        if not self.tied:
            for name, array in self.document.arrays():
                yield f"document.{name}", array

    @staticmethod
    def of_arrays(arrays: Mapping[str, Float32], *, skip: bool) -> Parameters:
        """Return the parameters that have the given ``arrays``; a pair is tied if there is no V."""
        U, V = arrays["U"], arrays.get("V")
        query = _tower(arrays, "query.", skip)
        document = query if V is None else _tower(arrays, "document.", skip)
        return Parameters(U, U if V is None else V, arrays["D"], arrays["bias"], query, document)

    def put_tables(self, files: ArrayFiles) -> None:
        """Move U and V into files; a tied pair stays one array."""
        tied = self.tied
        self.U = files.put(self.U)
        self.V = self.U if tied else files.put(self.V)
        files.release()

    def copy(self) -> Parameters:
        """Return an independent copy; a tied pair stays one array."""
        U, query = self.U.copy(), self.query.copy()
        V, document = (U, query) if self.tied else (self.V.copy(), self.document.copy())
        return Parameters(U, V, self.D.copy(), self.bias.copy(), query, document)


def _tower(arrays: Mapping[str, Float32], side: str, skip: bool) -> Tower:
    names = [name for name in arrays if name.startswith(side)]
    weights, biases = (
        [arrays[f"{side}{kind}{i}"] for i in numbers if f"{side}{kind}{i}" in names]
        for kind, numbers in (("W", range(1, len(names) + 1)), ("b", range(len(names))))
    )
    return Tower(weights, biases, skip and bool(biases))


def start(features: Features, train: TrainSettings, rng: np.random.Generator) -> Parameters:
    """Draw the parameters at the start: U, V ~ Normal(0, init²), D = 1, b = 0.

    Under the softmax loss words of both sides start with equal rows, and both towers are equal. With init = 0, U and V
    are uniform with a bound that depends on their size, and the two sides are drawn independently.
    """
    settings = features.settings
    fields, width = len(features.z), features.s.width
    D = np.ones((fields, width), np.float32)
    bias = np.zeros(features.documents, np.float32)
    if settings.latent != "learned" or train.loss == "none":
        nothing = np.zeros((0, 0), np.float32)
        return Parameters(nothing, nothing, D, bias)
    sizes = (settings.dimension, *settings.layers) if settings.layers else ()
    V = start_table(features.xd.width, settings.dimension, train.init, rng)
    if settings.tied:
        tower = start_tower(sizes, settings.skip, rng)
        return Parameters(V, V, D, bias, tower, tower)
    U = start_table(features.xq.width, settings.dimension, train.init, rng)
    towers = [start_tower(sizes, settings.skip, rng) for _ in range(2)]
    if train.loss == "softmax" and train.init:
        # Shared words start with equal rows, so UᵀV starts close to a multiple of I.
        of_query, of_document = (
            features.query_composition.labels,
            features.document_composition.labels,
        )
        rows = Vocabulary(of_document).rows(of_query)
        shared = np.flatnonzero(rows >= 0)
        for first in range(0, len(shared), _COPIED_ROWS):
            part = shared[first : first + _COPIED_ROWS]
            U[part] = V[rows[part]]
        U[len(of_query) :] = V[len(of_document) :]
        towers[1] = towers[0].copy()
    return Parameters(U, V, D, bias, *towers)


def level_biases(features: Features, parameters: Parameters) -> None:
    """Give documents without a judgement the median bias of the judged ones, as documents added later get."""
    judged = features.pairs.documents
    level = np.median(parameters.bias[judged])
    unjudged = np.ones(features.documents, np.bool_)
    unjudged[judged] = False
    parameters.bias[unjudged] = level


def compile_model(
    features: Features, parameters: Parameters, files: ArrayFiles | None = None
) -> LinearModel:
    """Make the model: trained rows are folded into words, diagonals into document weights.

    U and V of a model without trigrams become its tables, uncopied; other tables are in ``files``.
    """
    model = features.model
    fields = len(features.field_counts)
    words = len(model.sparse.words)
    sparse = replace(model.sparse, D=np.ascontiguousarray(parameters.D[:fields, :words]))
    if len(model.sparse.phrases):
        P = parameters.D[fields, words:] * features.phrase_idf
        sparse = replace(sparse, P=P.astype(np.float32))
    query, document = model.query, model.document
    if features.settings.latent == "learned":
        zeros = (files or ArrayFiles()).zeros
        query = features.query_composition.fold(query, parameters.U, zeros)
        document = features.document_composition.fold(document, parameters.V, zeros)
        query = replace(query, tower=parameters.query)
        document = replace(document, tower=parameters.document)
    settings = {**model.settings}
    if features.settings.cosine:
        settings |= {"unit": True, "dense_scale": features.settings.cosine}
    if not len(features.pairs):
        settings["match"] = "auto"  # nothing was learned that finds documents without the words
    settings["bias"] = float(np.median(parameters.bias)) if features.settings.bias else 0.0
    return LinearModel(settings, query, document, sparse)


def encode_corpus(features: Features, model: LinearModel, parameters: Parameters) -> Encoded:
    """Encode the corpus by the model, with the learned biases."""
    counts = Counts(features.words, features.field_counts)
    encoded = model.encode_document_counts(counts, features.document_phrases)
    return replace(encoded, bias=parameters.bias) if features.settings.bias else encoded


def encode_judged(features: Features, model: LinearModel, rows: np.ndarray) -> Encoded:
    return model.encode_query_counts(
        features.words, features.query_counts.take(rows), features.query_sequences.take(rows)
    )


def fitted_linear(
    features: Features,
    model: LinearModel,
    parameters: Parameters,
    facts: dict[str, Any] | None = None,
) -> FittedModel:
    documents = encode_corpus(features, model, parameters)
    return FittedModel(model, documents, partial(encode_judged, features, model), facts or {})


BLOCK = 1 << 17
"""Documents that are encoded at once."""
_ROWS = 1 << 14  # embedded at once: a pass over all documents would keep several values of each


def scan_documents(
    features: Features, parameters: Parameters, start: int = 0, stop: int | None = None
) -> Encoded:
    """Encode documents start..stop, by default the corpus: v and t = Σ_f D_f z_f."""
    count = features.documents
    stop = count if stop is None else min(stop, count)
    z = [rows.slice(start, stop) for rows in features.z]
    t = Rows.add([_weighted(rows, D) for rows, D in zip(z, parameters.D, strict=True)])
    drop_pages(*(array for rows in z for array in rows.arrays))
    unit = 1.0 if features.settings.cosine else 0.0
    xd = features.xd.slice(start, stop) if len(parameters.V) else features.xd
    dense = _embed(xd, parameters.V, parameters.document, unit, stop - start)
    return Encoded.from_rows(t, dense, parameters.bias[start:stop])


def scan_blocks(features: Features, parameters: Parameters) -> Iterator[Encoded]:
    for start in range(0, features.documents, BLOCK):
        yield scan_documents(features, parameters, start, start + BLOCK)


def _weighted(z: Rows, D: Float32) -> Rows:
    values = D[z.indices]
    values *= z.values
    return z.with_values(values)


def scan_queries(features: Features, parameters: Parameters, rows: Int64) -> Encoded:
    """Encode queries, given by row: u and s."""
    s = features.s.take(rows)
    xq = features.xq.take(rows) if len(parameters.U) else features.xq
    dense = _embed(Phi(xq), parameters.U, parameters.query, features.settings.cosine, len(rows))
    return Encoded.from_rows(s, dense)


def _embed(phi: Phi, table: Float32, tower: Tower, gamma: float, count: int) -> Float32:
    if not len(table):
        return np.zeros((count, 0), np.float32)
    found, scratch = np.empty((count, tower.width(table.shape[1])), np.float32), Scratch()
    for start in range(0, count, _ROWS):
        part = phi.slice(start, min(start + _ROWS, count))
        found[start : start + _ROWS] = forward(part, table, tower, gamma, scratch).u
        drop_pages(*phi.words.arrays)
    return found


class LinearLearner(RestoresInPlace):
    """Learns f(q, d) = (U x_q)·(V x_d) + Σ_f s·D_f·z_f + b_d under a loss; ``steps`` changes ``values`` in place."""

    per_epoch: int

    def __init__(
        self,
        features: Features,
        train: TrainSettings,
        rng: np.random.Generator,
        values: Parameters | None = None,
    ) -> None:
        self.features, self.train, self.rng = features, train, rng
        self.values = start(features, train, rng) if values is None else values

    def parameters(self) -> Arrays:
        return dict(self.values.arrays())

    def measure(self, valid: Validation) -> float:
        """Return the MAP on validation; no model is compiled."""
        arrays = self.features.arrays
        release(*arrays)  # steps leave the pages that they read
        queries = scan_queries(self.features, self.values, valid.rows)
        documents = scan_blocks(self.features, self.values)
        found = valid.map_of(documents, queries)
        release(*arrays)
        return found
