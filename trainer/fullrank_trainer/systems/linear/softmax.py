"""The softmax loss: each judged document against every other candidate of its batch.

    L = − Σ_p |P|^−½ log( e^{f(q,p)} / ( e^{f(q,p)} + Σ_{n ∉ P} e^{f(q,n)} ) )      mean over queries q, P its documents

    ∂L/∂f(q,n) = |P|^−½ e^{f(q,n)} Σ_p 1/Z_p          ∂L/∂f(q,p) = |P|^−½ (e^{f(q,p)}/Z_p − 1)

Where judgements have weights, w_p takes the place of |P|^−½: ∂L/∂f(q,n) = e^{f(q,n)} Σ_p w_p/Z_p.

Candidates are the judged documents of the batch and those that people passed over, filled up with sampled ones. Known
positives of a query are masked among its negatives, and so is its mate, the document that it is or describes. Every
touched row of U and V, every layer above them, every touched diagonal entry and every bias takes an AdaGrad step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.storage.encoding import Float32, Float64, Int32, Int64, Rows
from fullrank_trainer.collection.pairs import Pairs, ragged
from fullrank_trainer.features.composition import Phi
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.recipes.settings import TrainSettings
from fullrank_trainer.systems.linear import kernels
from fullrank_trainer.systems.linear.batches import (
    ByColumn,
    Scratch,
    by_column,
    count_columns,
    fill_columns,
    number,
    renumber,
    take,
)
from fullrank_trainer.systems.linear.parameters import LinearLearner, Parameters, level_biases
from fullrank_trainer.systems.linear.towers import Encoder
from fullrank_trainer.training.fitted import Arrays
from fullrank_trainer.training.memory import drop_pages

# A word in more than this share of the candidates is read as a whole row, which is faster than a long list.
_COMMON = 1 / 16


Postings = tuple[Int64, Int32, Float32, Int32, Float32]


def postings_of(
    z: Rows, documents: Int64, asked: int, places: Int32, common: float = _COMMON
) -> Postings:
    """Return posting lists of the words of queries; common words get a row with a weight for every candidate instead.

    ``places`` has the number of each word, int32, and -1 for the other words.

    Returns:
        starts, int64 (asked + 1,), texts, ascending inside a word, and weights of the lists; the row of each common
        word in ``table``, -1 for other words; and table, float32 (common words, candidates).
    """
    counts = count_columns(z, documents, asked, places)
    often = np.flatnonzero(counts.sum(axis=0) > common * len(documents))
    row = np.full(asked, -1, np.int32)
    row[often] = np.arange(len(often))
    table = np.zeros((len(often), len(documents)), np.float32)
    return *fill_columns(z, documents, counts, places, row, table), row, table


# The candidates of a softmax step: the judged documents of its queries, those that people passed over, and a sample.
#
# A training repeats the step thousands of times, so nothing here allocates an array with an entry for every document
# of the collection. One exception: to draw more than a fiftieth of a pool, numpy shuffles all of its rows.


def choose_candidates(
    pairs: Pairs,
    queries: Int64,
    positives: Int64,
    pool: int | Int64,
    count: int,
    rng: np.random.Generator,
) -> Int64:
    """Choose the candidates of a step: int64 rows of documents, ascending.

    Args:
        positives: rows of the documents that the queries learn from, which all become candidates.
        pool: rows of the documents to sample from; a number stands for all rows below it.
        count: sample as many as are missing to this number, some of which may be candidates already.
    """
    chosen = np.unique(np.concatenate([positives, *_passed_over(pairs, queries)]))
    missing = min(count, pool if isinstance(pool, int) else len(pool)) - len(chosen)
    if missing <= 0:
        return chosen
    # Given a number, numpy draws the same rows as from a list of all rows.
    return np.unique(np.concatenate([chosen, rng.choice(pool, missing, replace=False)]))


def places_of(candidates: Int64, documents: Int64) -> Int64:
    """Return the place of each document, in any order, among the candidates; -1 if it is no candidate."""
    places = np.searchsorted(candidates, documents)
    # One more candidate, which no document is, stands after the last.
    return np.where(np.append(candidates, -2)[places] == documents, places, -1)


def _passed_over(pairs: Pairs, queries: Int64) -> list[Int64]:
    """Return the judged documents that people passed over: negatives that are hard to tell apart."""
    if not pairs.passed_over:
        return []
    rows = pairs.passed_over.take(pairs.passed_over.having(queries))[1]
    judged = pairs.documents
    places = np.searchsorted(judged, rows)
    places[places == len(judged)] = 0
    return [rows[judged[places] == rows]]


_MAX_POSITIVES = 64  # judged documents of one query in one step


class SoftmaxLearner(LinearLearner):
    """The linear family under the softmax loss."""

    def __init__(
        self,
        features: Features,
        train: TrainSettings,
        rng: np.random.Generator,
        values: Parameters | None = None,
    ) -> None:
        super().__init__(features, train, rng, values)
        self.per_epoch = len(features.pairs.queries)
        self._state = start_state(features, train, self.values)

    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        return epoch(self.features, self.train, self._state, self.rng, done, share)

    def state(self) -> Arrays:
        return dict(self._state.arrays())


@dataclass(eq=False)
class State:
    """Parameters and AdaGrad's sums of squares; a checkpoint has all of them.

    Attributes:
        query, document: U and V with their layers; one encoder if tied.
        start: float32 (fields,), the factor of each diagonal at the start.
        scale: float64 (fields,), log of the factor of each field's whole diagonal.
    """

    parameters: Parameters
    query: Encoder
    document: Encoder
    start: Float32
    squares_D: Float32
    squares_bias: Float32
    scale: Float64
    squares_scale: Float64

    def arrays(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Iterate over (name, live array), parameters excluded; an array of both sides comes once."""
        for name in ("start", "squares_D", "squares_bias", "scale", "squares_scale"):
            yield name, getattr(self, name)
        sides = {"query": self.query, "document": self.document}
        if self.query is self.document:
            del sides["document"]
        for side, encoder in sides.items():
            yield from ((f"{side}.{name}", array) for name, array in encoder.state())


def start_state(features: Features, train: TrainSettings, parameters: Parameters) -> State:
    """Make the state at the start: diagonals are scaled so that a judged pair scores ``start`` in each field."""
    level = np.array(_start_factors(features, train.start), np.float32)
    parameters.D *= level[:, None]
    query = document = Encoder(parameters.V, parameters.document)
    if not parameters.tied:
        query = Encoder(parameters.U, parameters.query)
    return State(
        parameters,
        query,
        document,
        level,
        np.zeros_like(parameters.D),
        np.zeros_like(parameters.bias),
        np.zeros(len(level)),
        np.zeros(len(level)),
    )


def _start_factors(features: Features, wanted: float) -> list[float]:
    """Return for each field the factor that makes the mean score of matching judged pairs ``wanted``."""
    queries = features.pairs.queries[:: max(1, len(features.pairs.queries) // 1000)]
    starts, found = features.pairs.take(queries)
    documents = found[starts[:-1]]
    s = features.s.take(queries).csr()
    factors = []
    for z, rows in features.fields_for_step(documents, queries):
        scores: Float32 = np.asarray(s.multiply(z.take(rows).csr()).sum(axis=1)).ravel()
        scores = scores[scores > 0]
        factors.append(float(wanted / scores.mean()) if len(scores) else 1.0)
    return factors


def dropout(rows: Rows, share: float, rng: np.random.Generator) -> Rows:
    """Drop each entry with probability ``share`` and scale the others by (1 − share)^−½."""
    if not share:
        return rows
    keep = rng.random(len(rows.values), np.float32) >= share
    return rows.with_values(rows.values * keep * np.float32((1 - share) ** -0.5))


def epoch(
    features: Features,
    train: TrainSettings,
    state: State,
    rng: np.random.Generator,
    done: float,
    share: float,
) -> Iterator[tuple[int, float]]:
    """Take one pass over the training queries; yield (queries, mean loss) after each step.

    The rates of U, V and their layers fall linearly to a tenth over the whole training. After the last step, the biases
    of unjudged documents are the median of the others if only judged ones are sampled.
    """
    order = rng.permutation(features.pairs.queries)
    levels = train.sampled_from == "judged" and features.settings.bias
    steps = max(1, -(-len(order) // train.batch))
    scratch = Scratch()
    for k in range(steps):
        factor = 1 - 0.9 * min(1.0, done + share * k / steps)
        queries = np.sort(order[k * train.batch : (k + 1) * train.batch])
        yield len(queries), _step(features, train, state, rng, queries, factor, scratch)
        # Steps do not read biases of unjudged documents, except cold dropout, which takes the median of all.
        if levels and (train.cold_dropout or k == steps - 1):
            level_biases(features, state.parameters)


def _step(
    features: Features,
    train: TrainSettings,
    state: State,
    rng: np.random.Generator,
    queries: Int64,
    factor: float,
    scratch: Scratch,
) -> float:
    p, gamma = state.parameters, features.settings.cosine
    pairs = features.pairs
    starts, known = pairs.take(queries)
    positive_starts, positives = starts, known
    if np.diff(starts).max() > _MAX_POSITIVES:
        positive_starts, positives = ragged(_sampled(starts, known, rng))
    pool = pairs.documents if train.sampled_from == "judged" else features.documents
    candidates = choose_candidates(pairs, queries, positives, pool, train.candidates, rng)
    cold = None
    if train.cold_dropout:
        cold = rng.random(len(candidates), np.float32) < train.cold_dropout
    known_places = places_of(candidates, known)
    positive_places = known_places if positives is known else places_of(candidates, positives)
    mates = features.mates[queries]
    masked_starts, masked = _with_mates(starts, known_places, candidates, mates)

    # The system maps 64 KiB around each row that is read, so the files of a large corpus would soon all be in memory. A
    # step drops their pages as soon as it has copied its rows.
    s = dropout(take(features.s, queries), train.word_dropout, rng)
    latent = bool(len(p.V))
    if latent:
        xq = dropout(take(features.xq, queries), train.word_dropout, rng)
        xd = Phi(take(features.xd.words, candidates), features.xd.parts)
        drop_pages(*features.arrays)
        query_tape = state.query.forward(Phi(xq), gamma, scratch.of("query"))
        document_tape = state.document.forward(xd, 1.0 if gamma else 0.0, scratch.of("document"))
        del xq, xd
        S = scratch.array("scores", len(queries), len(candidates))
        np.matmul(query_tape.u, document_tape.u.T, out=S)
    else:
        S = np.zeros((len(queries), len(candidates)), np.float32)
    asked, places = number(s.indices, s.width, scratch)
    postings = []
    for z, rows in features.fields_for_step(candidates, queries, cold):
        postings.append(postings_of(z, rows, len(asked), places))
        drop_pages(*features.arrays)
    s = renumber(s, asked, places)
    for by_word, D in zip(postings, p.D, strict=True):
        kernels.match(s.indptr, s.indices, s.values, *by_word, D[asked], S)
    bias = p.bias[candidates] if features.settings.bias else p.bias[:0]
    if features.settings.bias and cold is not None:
        bias[cold] = np.median(p.bias)

    if train.negatives:
        _sample_negatives(S, train.negatives, masked_starts, masked, rng)

    losses = np.empty(len(queries), np.float32)
    weights = _weights(pairs, queries, positive_starts, positives)
    kernels.softmax_gradient(
        S, bias, positive_starts, positive_places, masked_starts, masked, weights, losses
    )
    G = S  # the kernel has turned scores into ∂L/∂f

    if features.settings.diagonal == "learned":
        by_query_word = by_column(s, np.arange(len(s)), len(asked))
        for f, by_word in enumerate(postings):
            _step_diagonal(state, f, asked, by_query_word, by_word, G, train.diagonal_rate)
    del postings, by_word  # the largest arrays of a step
    if features.settings.bias:
        g = G.sum(axis=0)
        if cold is not None:
            g[cold] = 0
        state.squares_bias[candidates] += g * g
        scale = np.sqrt(state.squares_bias[candidates] + np.float32(1e-12))
        p.bias[candidates] -= np.float32(train.bias_rate) * g / scale
    if latent:
        g_query = scratch.array("queries", *query_tape.u.shape)
        g_document = scratch.array("documents", *document_tape.u.shape)
        np.matmul(G, document_tape.u, out=g_query)
        np.matmul(G.T, query_tape.u, out=g_document)
        of_query = state.query.backward(query_tape, g_query)
        of_document = state.document.backward(document_tape, g_document)
        rates = train.rate * factor, train.layer_rate * factor
        if p.tied:
            state.query.step([of_query, of_document], *rates)
        else:
            state.query.step([of_query], *rates)
            state.document.step([of_document], *rates)
    return float(losses.mean())


def _sampled(starts: Int64, known: Int64, rng: np.random.Generator) -> list[Int64]:
    """Draw the documents that a query learns from in this step, ascending, if it has too many."""
    rows = np.split(known, starts[1:-1])
    return [
        row
        if len(row) <= _MAX_POSITIVES
        else np.sort(rng.choice(row, _MAX_POSITIVES, replace=False))
        for row in rows
    ]


def _weights(pairs: Pairs, queries: Int64, starts: Int64, positives: Int64) -> Float32:
    if pairs.weights is None:
        return np.zeros(0, np.float32)
    rows = np.split(positives, starts[1:-1])
    found = zip(queries.tolist(), rows, strict=True)
    return np.concatenate([pairs.weight_of(query, row) for query, row in found])


def _with_mates(
    starts: Int64, masked: Int64, candidates: Int64, mates: Int64
) -> tuple[Int64, Int64]:
    """Append the place of its mate to the masked candidates of each query; -1 if it is no candidate."""
    if (mates < 0).all():
        return starts, masked
    places = places_of(candidates, mates)
    return starts + np.arange(len(starts)), np.insert(masked, starts[1:], places)


def _sample_negatives(
    S: Float32, count: int, masked_starts: Int64, masked: Int64, rng: np.random.Generator
) -> None:
    """Keep ``count`` random negatives of each query and its known positives; set other scores to −∞."""
    lot = rng.random(S.shape, np.float32)
    queries = np.repeat(np.arange(len(S)), np.diff(masked_starts))
    lot[queries[masked >= 0], masked[masked >= 0]] = np.inf
    if count < S.shape[1]:
        last = np.partition(lot, count - 1, axis=1)[:, count - 1 : count]
        S[(lot > last) & np.isfinite(lot)] = -np.inf


def _step_diagonal(
    state: State,
    f: int,
    touched: Int64,
    by_query_word: ByColumn,
    by_word: Postings,
    G: Float32,
    rate: float,
) -> None:
    """Take an AdaGrad step on D_f = e^{a_f} M_f: on the log factor a_f and on each touched entry of M_f."""
    D = state.parameters.D[f]
    g = np.empty(len(touched), np.float32)
    starts, rows, values = by_query_word
    kernels.match_gradient(starts, rows, values, *by_word, G, g)
    factor = np.exp(state.scale[f])
    # ∂L/∂a = Σ_w ∂L/∂D_w D_w;  ∂L/∂M_w = ∂L/∂D_w e^a
    shared = float(np.dot(g.astype(np.float64), D[touched]))
    state.squares_scale[f] += shared * shared
    if state.squares_scale[f] > 0:
        step = rate * shared / np.sqrt(state.squares_scale[f])
        state.scale[f] -= step
        D *= np.float32(np.exp(-step))
    g *= np.float32(factor)
    squares = state.squares_D[f]
    squares[touched] += g * g
    moved = squares[touched] > 0
    words = touched[moved]
    factor = np.exp(state.scale[f])
    D[words] -= np.float32(rate * state.start[f] * factor) * g[moved] / np.sqrt(squares[words])
