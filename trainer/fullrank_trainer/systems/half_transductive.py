"""Supervised half transductive ranking: f(x, y_i) = v_iᵀWφ(x), a free vector for each document.

    γ Σ max(0, 1 − k(x, y_p) + k(x, y_n)) + Σ max(0, 1 − f(x, y_p) + f(x, y_n))        Bai et al. 2010, eq. 6

    k(x, y) = φ(y)ᵀWᵀWφ(x)        over triples (x, y_p, y_n): y_p is judged relevant to x, y_n is not

With a lexical part, I on unit tf-idf vectors, φ(x)·φ(y) is added to both f and k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numba import prange

from fullrank.errors import TrainingError
from fullrank.models.linear import LinearModel
from fullrank.storage.encoding import Float32, Float64, Int64, Rows
from fullrank_trainer.compiled import compiled
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.recipes.settings import setting
from fullrank_trainer.recipes.systems import System
from fullrank_trainer.systems.linear import kernels
from fullrank_trainer.systems.linear.kernels import add_row, dot_sparse
from fullrank_trainer.systems.linear.margin import (
    STEP,
    Drawn,
    TripleLearner,
    triple_arguments,
)
from fullrank_trainer.systems.linear.parameters import (
    Parameters,
    compile_model,
    fitted_linear,
    scan_documents,
    scan_queries,
)
from fullrank_trainer.systems.projections import singular_vectors
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import Arrays, FittedModel
from fullrank_trainer.training.loop import TrainingRun
from fullrank_trainer.training.validation import Validation

# The base of the half transductive learners: W for all texts, a free vector for each document of the corpus.
#
#     f(x, y_i) = v_iᵀWφ(x) + φ(x)·φ(y_i)        the last term only with a lexical part; v_i and Wφ(x)
#                                                have unit length if the recipe says cosine
#
# The served model is linear: W is the table of queries and of documents, so a document added later gets the vector
# Wφ(y). The documents of the corpus are stored with their v_i.


@dataclass(frozen=True)
class HtrSettings:
    """Half transductive ranking: f(x, y_i) = v_i·Wφ(x) with a free vector v_i for each document."""

    # weight of the regulariser: functional (htr), reconstruction, or document to document (htr-graph)
    gamma: float = setting(1.0)
    # start of v_i: "functional": Wφ(y_i) with a random W; "random": as W; "lsi": W and v_i of LSI
    items: str = setting("functional", choices=("functional", "random", "lsi"))
    # rank by the cosine of v_i and Wφ(x) instead of their product
    cosine: bool = setting(False)


class HalfTransductiveLearner(TripleLearner):
    """Learns f(x, y_i) = v_iᵀWφ(x) under a loss; W is float32 (features, N): words of queries, then letter trigrams."""

    def __init__(self, features: Features, recipe: Recipe, rng: np.random.Generator) -> None:
        self.features, self.train, self.settings, self.rng = features, recipe.train, recipe.own, rng
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
            B = singular_vectors(self.features, int(self.rng.integers(1 << 31)))
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

    def parameters(self) -> Arrays:
        return {"W": self.W, "vectors": self.vectors}

    def linear(self) -> Parameters:
        """Return the linear parameters that serve: U = W, V the rows of W for words of documents."""
        place = rows_of_documents(self.features.model)
        V = np.where(place[:, None] >= 0, self.W[place], np.float32(0))
        D = np.ones((len(self.features.z), self.features.s.width), np.float32)
        return Parameters(self.W, V, D, np.zeros(self.features.documents, np.float32))

    def measure(self, valid: Validation) -> float:
        linear = self.linear()
        documents = replace(scan_documents(self.features, linear), dense=self.stored_vectors())
        queries = scan_queries(self.features, linear, valid.rows)
        queries = replace(queries, dense=self._scaled(queries.dense))
        return valid.map_of([documents], queries)

    def stored_vectors(self) -> Float32:
        """Return the dense vectors of the corpus, as the bundle stores them."""
        return self._scaled(self.vectors)

    def _scaled(self, dense: Float32) -> Float32:
        return unit_rows(dense) if self.settings.cosine else dense

    def fitted(self, run: TrainingRun) -> FittedModel:
        """Train to the end; return the model of the best epoch."""
        facts = run.learn(self)
        linear = self.linear()
        model = compile_model(self.features, linear)
        model = replace(model, settings={**model.settings, "unit": self.settings.cosine})
        facts["rate"] = float(self.rate[0])
        found = fitted_linear(self.features, model, linear, facts)
        return replace(found, documents=replace(found.documents, dense=self.stored_vectors()))


def system(name: str, learner: Callable[..., HalfTransductiveLearner]) -> System:
    """Return the system of a learner, which is made of a context, features, a recipe and a random generator."""

    def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
        features, rng = context.features(recipe.model), np.random.default_rng(context.seed)
        return learner(context, features, recipe, rng).fitted(run)

    return System(name, fit, section="htr", settings=HtrSettings)


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


@compiled()
def _triple(  # type: ignore[no-untyped-def]
    q, p, n, xq, xd, s, zp, zi, zv, D, W, vectors, gamma, rate
):
    """Take the step of a triple (x, y_p, y_n); return its loss.

    With u = Wφ(x), δ = φ(y_p) − φ(y_n):

    k's hinge positive   W += λγ (Wδ φ(x)ᵀ + u δᵀ)          two terms, because k contains W twice
    f's hinge positive   W += λ (v_p − v_n) φ(x)ᵀ       v_p += λ u       v_n −= λ u

    All products use the values before the step.
    """
    size = W.shape[1]
    si, sv = s[1][s[0][q] : s[0][q + 1]], s[2][s[0][q] : s[0][q + 1]]
    lexical = 0.0
    for f in range(len(zp)):
        ip, ix, vx = zp[f], zi[f], zv[f]
        lexical += dot_sparse(si, sv, ix[ip[p] : ip[p + 1]], vx[ip[p] : ip[p + 1]], D[f])
        lexical -= dot_sparse(si, sv, ix[ip[n] : ip[n + 1]], vx[ip[n] : ip[n + 1]], D[f])
    u = np.zeros(size, np.float32)
    for e in range(xq[0][q], xq[0][q + 1]):
        add_row(u, W[xq[1][e]], xq[2][e])
    difference = vectors[p] - vectors[n]
    margin = 1.0 - lexical
    for m in range(size):
        margin -= difference[m] * u[m]
    functional = np.zeros(size, np.float32)  # Wδ
    margin_k = 0.0
    if gamma > 0:
        for e in range(xd[0][p], xd[0][p + 1]):
            add_row(functional, W[xd[1][e]], xd[2][e])
        for e in range(xd[0][n], xd[0][n + 1]):
            add_row(functional, W[xd[1][e]], -xd[2][e])
        margin_k = 1.0 - lexical
        for m in range(size):
            margin_k -= functional[m] * u[m]
    loss = gamma * max(0.0, margin_k) + max(0.0, margin)
    if loss <= 0:
        return loss
    step = np.float32(rate)
    back = np.zeros(size, np.float32)  # the direction of every row of x
    if margin_k > 0:
        add_row(back, functional, np.float32(gamma))
        for e in range(xd[0][p], xd[0][p + 1]):
            add_row(W[xd[1][e]], u, step * np.float32(gamma) * xd[2][e])
        for e in range(xd[0][n], xd[0][n + 1]):
            add_row(W[xd[1][e]], u, -step * np.float32(gamma) * xd[2][e])
    if margin > 0:
        add_row(back, difference, np.float32(1))
        add_row(vectors[p], u, step)
        add_row(vectors[n], u, -step)
    for e in range(xq[0][q], xq[0][q + 1]):
        add_row(W[xq[1][e]], back, step * xq[2][e])
    return loss


@compiled(parallel=True)
def supervised_sgd(  # type: ignore[no-untyped-def]
    queries, positives, negatives, shards, xq, xd, s, zp, zi, zv, D, W, vectors, gamma, rate,
    losses,
):  # fmt: skip
    """Run stochastic gradient descent over triples, int64 (T,); losses float32 (T,). Arguments: see ``margin_sgd``."""
    for i in prange(shards):
        for t in range(i, len(queries), shards):
            losses[t] = _triple(
                queries[t], positives[t], negatives[t], xq, xd, s, zp, zi, zv,
                D, W, vectors, gamma, rate,
            )  # fmt: skip


class SupervisedLearner(HalfTransductiveLearner):
    """Learns both hinges over the judged pairs of the training split."""

    def __init__(self, features: Features, recipe: Recipe, rng: np.random.Generator) -> None:
        features.pairs.require()
        super().__init__(features, recipe, rng)
        self.per_epoch = recipe.train.triples or len(features.pairs)
        self._D = np.ones((len(features.z), features.s.width), np.float32)

    def step(self, drawn: Drawn, rate: float) -> Float32:
        losses, shards, matrices = triple_arguments(self.features, self.x, drawn)
        triples = (column.astype(np.int64) for column in drawn)
        supervised_sgd(
            *triples, shards, *matrices, self._D, self.W, self.vectors, self.settings.gamma, rate,
            losses,
        )  # fmt: skip
        return losses


# Half transductive ranking of a graph: a vector v_i for each node, and a matrix W that embeds new nodes.
#
#     γ Σ_ij L(v_i, v_j) + Σ_ij L(Wφ(y_i), v_j)        Bai et al. 2010, eq. 3 and 4
#
#     L(z, z') = ‖z − z'‖₁               i and j adjacent
#                max(0, 1 − ‖z − z'‖₁)   not adjacent
#
# The first sum embeds the graph without features. The second teaches W to map the features of a node near the vectors
# of its neighbours. Steps alternate between an adjacent pair and a pair that is not adjacent.


_NEIGHBOURS = 10  # nearest documents by tf-idf that count as linked where there are no links


@compiled()
def _pair(  # type: ignore[no-untyped-def]
    i, j, adjacent, x, W, vectors, gamma, rate
):
    """Take the step of a pair (i, j); return its loss.

    With g(z) = −∂L/∂z = ∓ sgn(z), zero if the loss is flat, y = v_i − v_j and z = Wφ(y_i) − v_j:

    v_i += λγ g(y)        v_j −= λγ g(y) + λ g(z)        W += λ g(z) φ(y_i)ᵀ

    All products use the values before the step.
    """
    size = W.shape[1]
    z = np.zeros(size, np.float32)
    for p in range(x[0][i], x[0][i + 1]):
        add_row(z, W[x[1][p]], x[2][p])
    far_vectors = far = np.float32(0)
    for n in range(size):
        z[n] -= vectors[j, n]
        far += abs(z[n])
        far_vectors += abs(vectors[i, n] - vectors[j, n])
    loss = far_vectors * gamma + far if adjacent else 0.0
    if not adjacent:
        loss = gamma * max(0.0, 1.0 - far_vectors) + max(0.0, 1.0 - far)
    towards = np.float32(-rate if adjacent else rate)
    if gamma > 0 and (adjacent or far_vectors < 1):
        for n in range(size):
            step = towards * np.float32(gamma) * np.sign(vectors[i, n] - vectors[j, n])
            vectors[i, n] += step
            vectors[j, n] -= step
    if adjacent or far < 1:
        for n in range(size):
            z[n] = np.sign(z[n])
            vectors[j, n] -= towards * z[n]
        for p in range(x[0][i], x[0][i + 1]):
            add_row(W[x[1][p]], z, towards * x[2][p])
    return loss


@compiled()
def graph_sgd(  # type: ignore[no-untyped-def]
    first, second, adjacent, x, W, vectors, gamma, rates, losses
):
    """Take the steps of pairs (first, second), int64 (T,), adjacent bool (T,), in order, each at its own rate."""
    for t in range(len(first)):
        losses[t] = _pair(
            first[t], second[t], adjacent[t], x, W, vectors, gamma, rates[t]
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph; ``neighbours`` (nodes, nodes) has a sorted row for each node, without the node itself."""

    neighbours: sp.csr_array[np.float32]

    @staticmethod
    def of(adjacency: sp.csr_array[np.float32]) -> Graph:
        """Make a graph of a square matrix: i and j are adjacent if either entry is not zero. Raises TrainingError."""
        both = sp.csr_array(abs(adjacency) + abs(adjacency).T)
        both.setdiag(0)
        both.eliminate_zeros()
        both.sort_indices()
        if not both.nnz:
            raise TrainingError("no two documents are linked; a graph needs at least one edge")
        return Graph(both)

    def sample(self, count: int, rng: np.random.Generator) -> Drawn:
        """Draw ``count`` pairs, alternately a random edge and a random pair that is not adjacent, and whether each is.

        In an almost complete graph the last of 8 draws may be adjacent, and is marked as such.
        """
        m, edges = self.neighbours.shape[0], self.neighbours.nnz
        first = rng.integers(0, m, count)
        second = rng.integers(0, m - 1, count)
        second += second >= first
        adjacent = np.zeros(count, np.bool_)
        chosen = rng.integers(0, edges, len(first[::2]))
        first[::2] = np.searchsorted(self.neighbours.indptr, chosen, side="right") - 1
        second[::2] = self.neighbours.indices[chosen]
        adjacent[::2] = True
        for _ in range(8):
            again = np.flatnonzero(self._are_adjacent(first, second) & ~adjacent)
            if not len(again):
                break
            second[again] = rng.integers(0, m - 1, len(again))
            second[again] += second[again] >= first[again]
        return first, second, adjacent | self._are_adjacent(first, second)

    @cached_property
    def _keys(self) -> Int64:
        """Each edge as one number, ascending."""
        m = self.neighbours.shape[0]
        return (
            np.repeat(np.arange(m), np.diff(self.neighbours.indptr)) * m + self.neighbours.indices
        )

    def _are_adjacent(self, first: Int64, second: Int64) -> npt.NDArray[np.bool_]:
        return np.isin(first * self.neighbours.shape[0] + second, self._keys)


class GraphLearner(HalfTransductiveLearner):
    """Learns both sums over the documents of a collection."""

    def __init__(
        self, features: Features, recipe: Recipe, rng: np.random.Generator, graph: Graph
    ) -> None:
        super().__init__(features, recipe, rng)
        self.graph = graph
        self.per_epoch = recipe.train.triples or 2 * graph.neighbours.nnz

    def draw(self, count: int) -> Drawn:
        return self.graph.sample(count, self.rng)

    def step(self, drawn: Drawn, rate: float | Float64) -> Float32:
        losses = np.zeros(len(drawn[0]), np.float32)
        rates, gamma = np.full(len(losses), rate), self.settings.gamma
        graph_sgd(*drawn, self.x.arrays, self.W, self.vectors, gamma, rates, losses)
        return losses

    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """Take the steps of one epoch; the rate falls to zero over the whole training."""
        drawn = self.draw(self.per_epoch)
        progress = done + share * np.arange(self.per_epoch) / self.per_epoch
        rates = self.rate[0] * np.maximum(0.0, 1 - progress)
        for start in range(0, self.per_epoch, STEP):
            part = slice(start, start + STEP)
            losses = self.step(tuple(column[part] for column in drawn), rates[part])
            yield len(losses), float(losses.mean())


def nearest_by_cosine(x: sp.csr_array[np.float32], k: int) -> sp.csr_array[np.float32]:
    """Return (m, m) with ones at the k largest φ(y_i)·φ(y_j) > 0 of each row, i ≠ j, ties by row."""
    m, columns, sizes = x.shape[0], [], []
    transposed = sp.csc_array(x.T)
    for start in range(0, m, 256):
        cosines = (x[start : start + 256] @ transposed).toarray()
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = 0
        best = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
        kept = np.take_along_axis(cosines, best, axis=1) > 0
        columns.append(best[kept])
        sizes.append(kept.sum(axis=1))
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    indices = np.concatenate(columns)
    return sp.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(m, m))


def graph_learner(
    context: TrainingContext, features: Features, recipe: Recipe, rng: np.random.Generator
) -> GraphLearner:
    """Make the learner of the links, or of the nearest documents. Raises TrainingError if there is no edge."""
    if context.collection.documents_are_queries and len(features.pairs):
        edges = features.pairs.matrix(features.documents, features.documents)
    else:
        edges = nearest_by_cosine(features.xd.composed().csr(), _NEIGHBOURS)
    return GraphLearner(features, recipe, rng, Graph.of(edges))


SYSTEM = system("htr", lambda _, *fit: SupervisedLearner(*fit))
GRAPH = system("htr-graph", graph_learner)
