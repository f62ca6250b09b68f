"""Half transductive ranking of a graph: a vector v_i for each node, and a matrix W that embeds new nodes.

    γ Σ_ij L(v_i, v_j) + Σ_ij L(Wφ(y_i), v_j)        Bai et al. 2010, eq. 3 and 4

    L(z, z') = ‖z − z'‖₁               i and j adjacent
               max(0, 1 − ‖z − z'‖₁)   not adjacent

The first sum embeds the graph without features. The second teaches W to map the features of a node near the vectors
of its neighbours. Steps alternate between an adjacent pair and a pair that is not adjacent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fullrank.encoding import Float32, Int64, Rows
from fullrank.errors import TrainingError
from fullrank_trainer.compiled import compiled
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.systems.linear.kernels import add_row
from fullrank_trainer.systems.linear.margin import best_rate
from fullrank_trainer.systems.transductive.half_transductive import STEP, HalfTransductiveLearner
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.loop import TrainingRun

_NEIGHBOURS = 10  # nearest documents by tf-idf that count as linked where there are no links
Pairs = tuple[Int64, Int64, npt.NDArray[np.bool_]]
"""First nodes, second nodes, and whether they are adjacent; (T,) each."""


@compiled()
def _pair(  # type: ignore[no-untyped-def]
    i, j, adjacent, x, W, vectors, gamma, rate, update
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
    if not update:
        return loss
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
    first, second, adjacent, x, W, vectors, gamma, rates, losses, update
):
    """Take the steps of pairs (first, second), int64 (T,), adjacent bool (T,), in order, each at its own rate.

    x is (indptr, indices, values) of φ; W float32 (features, N), vectors float32 (nodes, N); losses float32 (T,).
    """
    for t in range(len(first)):
        losses[t] = _pair(
            first[t], second[t], adjacent[t], x, W, vectors, gamma, rates[t], update
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph; ``neighbours`` (nodes, nodes) has a sorted row for each node, without the node itself."""

    neighbours: sp.csr_array[np.float32]

    @staticmethod
    def of(adjacency: sp.csr_array[np.float32]) -> Graph:
        """Make a graph of a square matrix: i and j are adjacent if either entry is not zero.

        Raises:
            TrainingError: there is no edge.
        """
        both = sp.csr_array(abs(adjacency) + abs(adjacency).T)
        both.setdiag(0)
        both.eliminate_zeros()
        both.sort_indices()
        if not both.nnz:
            raise TrainingError("no two documents are linked; a graph needs at least one edge")
        return Graph(both)

    def sample(self, count: int, rng: np.random.Generator) -> Pairs:
        """Draw ``count`` pairs: in turn a random edge and a random pair that is not adjacent.

        A non-adjacent pair is drawn up to 8 times. In an almost complete graph the last draw may be adjacent, and is
        marked as such.
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

    def _are_adjacent(self, first: Int64, second: Int64) -> npt.NDArray[np.bool_]:
        """Return whether each pair is adjacent, bool (T,)."""
        m = self.neighbours.shape[0]
        owner = np.repeat(np.arange(m), np.diff(self.neighbours.indptr))
        keys = owner * np.int64(m) + self.neighbours.indices
        wanted = first * np.int64(m) + second
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.asarray(keys[place] == wanted)


def start(
    x: Rows, dimension: int, init: float, rng: np.random.Generator
) -> tuple[Float32, Float32]:
    """Draw W and v_i: the entries of v_i and of Wφ(y_i) have standard deviation ``init``."""
    length = np.sqrt(np.square(x.values, dtype=np.float64).sum() / max(1, len(x))) or 1.0
    W = rng.standard_normal((x.width, dimension), np.float32) * np.float32(init / length)
    vectors = rng.standard_normal((len(x), dimension), np.float32) * np.float32(init)
    return W, vectors


def run(
    drawn: Pairs,
    x: Rows,
    W: Float32,
    vectors: Float32,
    gamma: float,
    rates: npt.NDArray[np.float64],
    *,
    update: bool = True,
) -> Float32:
    """Take the steps of pairs in place; return each loss before its step, float32 (T,)."""
    losses = np.zeros(len(drawn[0]), np.float32)
    graph_sgd(
        *drawn, (x.indptr, x.indices, x.values), W, vectors, gamma, rates, losses, update
    )  # fmt: skip
    return losses


class GraphLearner(HalfTransductiveLearner):
    """Learns both sums over the documents of a collection."""

    def __init__(
        self, features: Features, recipe: Recipe, rng: np.random.Generator, graph: Graph
    ) -> None:
        super().__init__(features, recipe, rng)
        self.graph = graph
        self.per_epoch = recipe.train.triples or 2 * graph.neighbours.nnz

    def prepare(self) -> None:
        """Choose the rate with the least loss over a trial from the same start."""
        drawn = self.graph.sample(self.train.trial, self.rng)

        def losses_of(rate: float) -> Float32:
            rates = np.full(len(drawn[0]), rate)
            return run(
                drawn, self.x, self.W.copy(), self.vectors.copy(), self.settings.gamma, rates
            )  # fmt: skip

        self.rate[0] = best_rate(self.train.rates, losses_of)

    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """Take the steps of one epoch; the rate falls to zero over the whole training."""
        drawn = self.graph.sample(self.per_epoch, self.rng)
        progress = done + share * np.arange(self.per_epoch) / self.per_epoch
        rates = self.rate[0] * np.maximum(0.0, 1 - progress)
        for start in range(0, self.per_epoch, STEP):
            stop = start + STEP
            part = (drawn[0][start:stop], drawn[1][start:stop], drawn[2][start:stop])
            losses = run(
                part, self.x, self.W, self.vectors, self.settings.gamma, rates[start:stop]
            )  # fmt: skip
            yield len(losses), float(losses.mean())


def graph_of(features: Features, documents_are_queries: bool, neighbours: int) -> Graph:
    """Return the graph of training links if documents are queries, else of the nearest documents by tf-idf."""
    if documents_are_queries and len(features.pairs):
        relevant = features.pairs.relevant
        first, second = relevant.owners, relevant.entries
        edges = (np.ones(len(first), np.float32), (first, second))
        return Graph.of(sp.csr_array(edges, shape=(features.documents,) * 2))
    return Graph.of(nearest_by_cosine(features.xd.composed().csr(), neighbours))


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


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Fit a graph recipe. Raises TrainingError if there is no edge."""
    features = context.features(recipe.model)
    graph = graph_of(features, context.collection.documents_are_queries, _NEIGHBOURS)
    rng = np.random.default_rng(context.seed)
    return GraphLearner(features, recipe, rng, graph).fitted(run)
