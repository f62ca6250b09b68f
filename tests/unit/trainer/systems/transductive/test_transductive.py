"""Half transductive ranking: graphs, eigenmaps, dense steps, finite differences, new documents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.manifold import SpectralEmbedding

from fullrank.errors import TrainingError
from fullrank.storage.encoding import Rows
from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.recipes.recipe import Recipe, load_recipe
from fullrank_trainer.systems.half_transductive import (
    Graph,
    SupervisedLearner,
    graph_sgd,
    nearest_by_cosine,
)
from fullrank_trainer.systems.linear.parameters import scan_queries
from fullrank_trainer.systems.projections import cosine_projection
from fullrank_trainer.systems.reconstruction import (
    FactoredMatrix,
    gradient_step,
    must_fold,
    sample,
    squared_error,
)
from fullrank_trainer.systems.reconstruction import run as reconstruction_run
from tests.planted import write_planted, write_planted_links

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = ("model.dimension=5", "init=0.4", "fields=each", "trigrams=on")


def small(name: str, *overrides: str) -> Recipe:
    return load_recipe(name).override([*SMALL, *overrides])


def features_of(folder: Path, recipe: Recipe) -> Features:
    return build_features(count_collection(read_collection(folder), processes=1), recipe.model)


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Features:
    """Two fields, trigrams, the identity in addition to W; queries have words that documents lack."""
    folder = write_planted(tmp_path_factory.mktemp("htr"))
    return features_of(folder, small("htr-identity"))


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Features:
    """Documents are queries; no lexical part."""
    folder = write_planted_links(tmp_path_factory.mktemp("htr"))
    return features_of(folder, small("htr"))


def learner(features: Features, *overrides: str) -> SupervisedLearner:
    """Random values: v_i is not Wφ(y_i)."""
    recipe = replace(small("htr", "items=random", *overrides), model=features.settings)
    return SupervisedLearner(features, recipe, np.random.default_rng(1))


class Dense:
    """One triple in float64."""

    def __init__(self, model: SupervisedLearner, triple: tuple[int, int, int]) -> None:
        q, p, n = triple
        self.p, self.n, self.gamma = p, n, model.settings.gamma
        features = model.features
        self.x = features.xq.csr()[[q]].toarray().astype(np.float64)[0]
        rows = model.x.csr()[[p, n]].toarray().astype(np.float64)
        self.delta = rows[0] - rows[1]
        s = features.s.csr()[[q]].toarray().astype(np.float64)[0]
        z: Any = sum(z.csr()[[p, n]].toarray().astype(np.float64) for z in features.z)
        self.exact = float(s @ (z[0] - z[1]))

    def margins(self, W: np.ndarray, vectors: np.ndarray) -> tuple[float, float]:
        """1 − k(x, y_p) + k(x, y_n) and 1 − f(x, y_p) + f(x, y_n), before the hinge."""
        u = self.x @ W
        f = (vectors[self.p] - vectors[self.n]) @ u + self.exact
        return 1 - float((self.delta @ W) @ u + self.exact), 1 - float(f)

    def loss(self, W: np.ndarray, vectors: np.ndarray) -> float:
        k, f = self.margins(W, vectors)
        return self.gamma * max(0.0, k) + max(0.0, f)


def run_one(model: SupervisedLearner, triple: tuple[int, int, int], rate: float) -> float:
    columns = tuple(np.array([row], np.int64) for row in triple)
    return float(model.step(columns, rate)[0])


def triples_of(model: SupervisedLearner, count: int = 12) -> list[tuple[int, int, int]]:
    return [(int(q), int(p), int(n)) for q, p, n in zip(*model.draw(count), strict=True)]


@pytest.mark.parametrize("which", ["features", "linked"])
@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_a_step_equals_the_dense_update_of_both_terms(
    which: str, gamma: float, request: pytest.FixtureRequest
) -> None:
    """W += λγ(Wδ φ(x)ᵀ + Wφ(x) δᵀ) + λ(v_p − v_n)φ(x)ᵀ, v_p += λWφ(x), v_n −= λWφ(x), each if its hinge is positive."""
    found = request.getfixturevalue(which)
    rate, changed = 0.05, [0, 0]
    for triple in triples_of(learner(found), 30):
        model = learner(found, f"htr.gamma={gamma}")
        dense = Dense(model, triple)
        W, vectors = model.W.astype(np.float64), model.vectors.astype(np.float64)
        loss = run_one(model, triple, rate)
        assert loss == pytest.approx(dense.loss(W, vectors), abs=1e-5)
        k, f = (margin > 0 for margin in dense.margins(W, vectors))
        u, functional = dense.x @ W, dense.delta @ W
        difference = vectors[dense.p] - vectors[dense.n]
        wanted = W + rate * gamma * k * (
            np.outer(dense.x, functional) + np.outer(dense.delta, u)
        ) + rate * f * np.outer(dense.x, difference)  # fmt: skip
        np.testing.assert_allclose(model.W, wanted, rtol=1e-5, atol=1e-6)
        vectors[dense.p] += rate * f * u
        vectors[dense.n] -= rate * f * u
        np.testing.assert_allclose(model.vectors, vectors, rtol=1e-5, atol=1e-6)
        changed[0] += k
        changed[1] += f
    assert min(changed) > 10


@pytest.mark.parametrize("name", ["W", "vectors"])
def test_a_step_follows_the_negative_gradient_of_the_loss(features: Features, name: str) -> None:
    """Finite differences of the whole objective of a triple, entry by entry where the step changed a value."""
    checked = 0
    for triple in triples_of(learner(features)):
        model = learner(features, "htr.gamma=0.7")
        dense = Dense(model, triple)
        before = {"W": model.W.astype(np.float64), "vectors": model.vectors.astype(np.float64)}
        if min(map(abs, dense.margins(**before))) < 1e-3:
            continue
        run_one(model, triple, 1.0)
        step = getattr(model, name) - before[name]
        for place in np.argwhere(np.abs(step) > 1e-4)[::9]:
            up, down = dict(before), dict(before)
            up[name], down[name] = before[name].copy(), before[name].copy()
            up[name][tuple(place)] += 1e-6
            down[name][tuple(place)] -= 1e-6
            gradient = (dense.loss(**up) - dense.loss(**down)) / 2e-6
            assert step[tuple(place)] == pytest.approx(-gradient, rel=1e-3, abs=1e-5)
            checked += 1
    assert checked > 20


def test_no_step_if_both_margins_are_satisfied(linked: Features) -> None:
    model = learner(linked, "htr.gamma=0")
    triple = triples_of(model)[0]
    u = Dense(model, triple).x @ model.W
    model.vectors[triple[1]], model.vectors[triple[2]] = 100 * u, -100 * u
    W, vectors = model.W.copy(), model.vectors.copy()
    assert run_one(model, triple, 0.5) == 0
    model.vectors[triple[1]] = model.vectors[triple[2]] = vectors[0] = 0
    columns = tuple(np.array([row], np.int64) for row in triple)
    assert model.step(columns, 0.0)[0] == 1
    np.testing.assert_array_equal(model.W, W)
    np.testing.assert_array_equal(model.vectors[triple[1]], 0)


def test_vectors_start_at_their_functional_embedding(features: Features) -> None:
    recipe = replace(small("htr"), model=features.settings)
    model = SupervisedLearner(features, recipe, np.random.default_rng(1))
    np.testing.assert_allclose(model.vectors, model.x.csr() @ model.W, atol=1e-6)
    # Queries have every word of the documents, so φ(y) loses nothing.
    norms = np.sqrt(np.bincount(
        np.repeat(np.arange(len(model.x)), np.diff(model.x.indptr)),
        np.square(model.x.values), len(model.x),
    ))  # fmt: skip
    assert (norms >= 1 - 1e-5).all()
    np.testing.assert_array_equal(
        model.linear().V[: len(features.model.document.words)],
        model.W[features.model.query.words.rows(features.model.document.words.words)],
    )


def test_queries_are_encoded_by_W(features: Features) -> None:
    """Validation multiplies Wφ(x) with v_i."""
    model, rows = learner(features), np.array([0, 3, 7])
    u = scan_queries(features, model.linear(), rows)
    np.testing.assert_allclose(u.dense, (features.xq.csr() @ model.W)[rows], atol=1e-5)


def test_empty_texts_stay_finite(linked: Features) -> None:
    """No word on either side: the hinge is 1, and only the document vectors can change."""
    empty = replace(linked, xq=linked.xq.with_values(np.zeros_like(linked.xq.values)))
    model = learner(empty)
    W, vectors = model.W.copy(), model.vectors.copy()
    assert run_one(model, triples_of(model)[0], 0.5) == pytest.approx(1 + model.settings.gamma)
    np.testing.assert_array_equal(model.W, W)
    np.testing.assert_array_equal(model.vectors, vectors)


ITEMS, FEATURES, SIZE = 10, 8, 3


def rows_of(dense: np.ndarray) -> Rows:
    return Rows.from_csr(sp.csr_array(dense.astype(np.float32)))


def graph_features(seed: int = 0) -> Rows:
    """Sparse rows; the first is empty, the second one entry."""
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((ITEMS, FEATURES)) * (rng.random((ITEMS, FEATURES)) < 0.6)
    dense[0] = 0
    dense[1, 1:] = 0
    return rows_of(dense)


def start(
    x: Rows, dimension: int, init: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw W and v_i: the entries of v_i and of Wφ(y_i) have standard deviation ``init``."""
    length = np.sqrt(np.square(x.values, dtype=np.float64).sum() / max(1, len(x))) or 1.0
    W = rng.standard_normal((x.width, dimension), np.float32) * np.float32(init / length)
    return W, rng.standard_normal((len(x), dimension), np.float32) * np.float32(init)


class Model:
    """Parameters in float64, and the loss of one pair."""

    def __init__(self, seed: int = 1, scale: float = 0.2) -> None:
        rng = np.random.default_rng(seed)
        self.W = rng.standard_normal((FEATURES, SIZE)) * scale
        self.vectors = rng.standard_normal((ITEMS, SIZE)) * scale
        self.phi = graph_features().csr().toarray().astype(np.float64)

    def apart(self, i: int, j: int) -> tuple[np.ndarray, np.ndarray]:
        return self.vectors[i] - self.vectors[j], self.phi[i] @ self.W - self.vectors[j]

    def loss(self, i: int, j: int, adjacent: bool, gamma: float) -> float:
        y, z = (float(np.abs(x).sum()) for x in self.apart(i, j))
        if adjacent:
            return gamma * y + z
        return gamma * max(0.0, 1 - y) + max(0.0, 1 - z)

    def step(self, i: int, j: int, adjacent: bool, gamma: float, rate: float) -> None:
        def g(x: np.ndarray) -> np.ndarray:
            if adjacent:
                return -np.sign(x)
            return np.sign(x) * (np.abs(x).sum() < 1)

        y, z = self.apart(i, j)
        self.vectors[i] += rate * gamma * g(y)
        self.vectors[j] -= rate * gamma * g(y) + rate * g(z)
        self.W += rate * np.outer(self.phi[i], g(z))


def run(
    drawn: Any, x: Rows, W: np.ndarray, vectors: np.ndarray, gamma: float, rates: np.ndarray
) -> np.ndarray:
    """Take the steps of pairs in place; return the losses before them."""
    losses = np.zeros(len(drawn[0]), np.float32)
    graph_sgd(*drawn, x.arrays, W, vectors, gamma, rates, losses)
    return losses


def pair(i: int, j: int, adjacent: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.array([i]), np.array([j]), np.array([adjacent])


@pytest.mark.parametrize("gamma", [0.0, 0.5])
@pytest.mark.parametrize("adjacent", [True, False])
def test_a_step_equals_the_dense_update(adjacent: bool, gamma: float) -> None:
    """Adjacent and other pairs, and a node without features."""
    flat = 0
    for scale in (0.1, 0.5):
        for i, j in ((0, 3), (1, 2), (4, 0), (5, 9), (8, 7)):
            model = Model(scale=scale)
            W, vectors = model.W.astype(np.float32), model.vectors.astype(np.float32)
            loss = run(pair(i, j, adjacent), graph_features(), W, vectors, gamma, np.array([0.05]))
            assert loss[0] == pytest.approx(model.loss(i, j, adjacent, gamma), abs=1e-5)
            flat += model.loss(i, j, adjacent, 1.0) == 0
            model.step(i, j, adjacent, gamma, 0.05)
            np.testing.assert_allclose(W, model.W, atol=1e-6)
            np.testing.assert_allclose(vectors, model.vectors, atol=1e-6)
    assert (flat > 0) == (not adjacent)


@pytest.mark.parametrize("name", ["W", "vectors"])
def test_a_step_follows_the_negative_gradient(name: str) -> None:
    checked = 0
    for i, j, adjacent in ((2, 3, True), (4, 9, False), (5, 6, True), (7, 2, False)):
        model = Model()
        W, vectors = model.W.astype(np.float32), model.vectors.astype(np.float32)
        run(pair(i, j, adjacent), graph_features(), W, vectors, 0.5, np.array([1.0]))
        before = getattr(model, name)
        step = {"W": W, "vectors": vectors}[name] - before
        for place in np.argwhere(np.abs(step) > 1e-3):
            keep, losses = before[tuple(place)], []
            for change in (1e-6, -1e-6):
                before[tuple(place)] = keep + change
                losses.append(model.loss(i, j, adjacent, 0.5))
            before[tuple(place)] = keep
            gradient = (losses[0] - losses[1]) / 2e-6
            assert step[tuple(place)] == pytest.approx(-gradient, abs=1e-4)
            checked += 1
    assert checked > 10


def test_graph_is_undirected_and_without_loops() -> None:
    directed = sp.csr_array(np.array([[5, 1, 0], [0, 0, -2], [0, 0, 0]], np.float32))
    found = Graph.of(directed).neighbours.toarray()
    np.testing.assert_array_equal(found != 0, [[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    with pytest.raises(TrainingError, match="no two documents are linked"):
        Graph.of(sp.csr_array(np.eye(3, dtype=np.float32)))


def test_sampled_pairs_alternate_between_edges_and_non_edges() -> None:
    rng = np.random.default_rng(0)
    dense = np.triu(rng.random((12, 12)) < 0.3, 1)
    graph = Graph.of(sp.csr_array(dense.astype(np.float32)))
    first, second, adjacent = graph.sample(4000, rng)
    np.testing.assert_array_equal(adjacent, (dense | dense.T)[first, second])
    assert (first != second).all()
    assert adjacent[::2].all()
    assert adjacent[1::2].mean() < 0.01
    # All edges are equally likely.
    counts = np.zeros((12, 12))
    np.add.at(counts, (first[::2], second[::2]), 1)
    edges = counts[dense | dense.T]
    assert edges.min() > 0.4 * edges.mean()
    complete = Graph.of(sp.csr_array(np.ones((3, 3), np.float32)))
    assert complete.sample(20, rng)[2].all()


def blobs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    side = np.arange(count) % 2
    return rng.standard_normal((count, 5)) * 0.3 + side[:, None] * 2 - 1, side


def test_two_clusters_separate_and_new_points_join_theirs() -> None:
    dense, side = blobs(60, 0)
    graph = Graph.of(sp.csr_array((side[:, None] == side[None, :]).astype(np.float32)))
    x, rng = rows_of(dense), np.random.default_rng(1)
    W, vectors = start(x, 4, float(np.sqrt(np.pi / 2)) / 4, rng)
    count, losses = 2 * graph.neighbours.nnz, []
    for epoch in range(3):
        rates = 0.01 * (1 - (epoch + np.arange(count) / count) / 3)
        losses.append(run(graph.sample(count, rng), x, W, vectors, 1.0, rates).mean())
    assert losses[-1] < 0.5 * losses[0]
    new, its = blobs(20, 1)
    distances = np.abs((new @ W)[:, None] - vectors[None]).sum(axis=2)
    np.testing.assert_array_equal(side[distances.argmin(axis=1)], its)


def test_vectors_start_at_a_distance_of_the_margin() -> None:
    dense, _ = blobs(60, 0)
    W, vectors = start(rows_of(dense), 50, float(np.sqrt(np.pi / 2)) / 50, np.random.default_rng(1))
    for z in (vectors, dense @ W):
        assert np.abs(z).sum(axis=1).mean() == pytest.approx(1, rel=0.15)


def test_nearest_by_cosine_equals_brute_force() -> None:
    rng = np.random.default_rng(2)
    dense = rng.random((300, 40)) * (rng.random((300, 40)) < 0.1)
    dense[5] = 0
    norm = np.linalg.norm(dense, axis=1, keepdims=True)
    x = (dense / np.where(norm == 0, 1, norm)).astype(np.float32)
    found = nearest_by_cosine(sp.csr_array(x), 4).toarray()
    cosines = (sp.csr_array(x) @ sp.csr_array(x).T).toarray()
    np.fill_diagonal(cosines, 0)
    for i in range(300):
        best = [j for j in np.argsort(-cosines[i], kind="stable")[:4] if cosines[i, j] > 0]
        np.testing.assert_array_equal(np.flatnonzero(found[i]), sorted(best))
    assert not found[5].any()


def texts(count: int = 40, words: int = 25, seed: int = 1) -> sp.csr_array:
    """Unit rows of nonnegative weights; the third is empty."""
    rng = np.random.default_rng(seed)
    dense = rng.random((count, words)) * (rng.random((count, words)) < 0.3)
    dense[2] = 0
    norm = np.linalg.norm(dense, axis=1, keepdims=True)
    return sp.csr_array((dense / np.where(norm == 0, 1, norm)).astype(np.float32))


def same_up_to_sign(a: np.ndarray, b: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(a * np.sign(np.sum(a * b, axis=0)), b, atol=tolerance)


def coordinates(K: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """z and μ by the dense eigenproblem of S = D^−½ K D^−½, without the trivial vector."""
    d = K.sum(axis=1)
    values, vectors = np.linalg.eigh(K / np.sqrt(np.outer(d, d)))
    order = np.argsort(-values)[1 : size + 1]
    return vectors[:, order] / np.sqrt(d)[:, None], values[order]


def test_the_dense_eigenproblem_is_scikit_learns() -> None:
    """scikit-learn ignores the diagonal."""
    dense = np.delete(texts().toarray().astype(np.float64), 2, axis=0)
    K = dense @ dense.T + 0.01
    np.fill_diagonal(K, 0)
    theirs = SpectralEmbedding(4, affinity="precomputed", random_state=0, eigen_solver="arpack")
    same_up_to_sign(coordinates(K, 4)[0], theirs.fit_transform(K), 1e-6)


def test_the_projection_equals_the_extension_under_the_cosine() -> None:
    """P φ(x) is z(x) times √d(x), one number for each text, which does not change cosines."""
    x = texts()
    full = np.delete(x.toarray().astype(np.float64), 2, axis=0)
    K = full @ full.T
    z, mu = coordinates(K, 5)
    P = cosine_projection(x, 5)
    assert P.dtype == np.float32
    same_up_to_sign(full @ P / K.sum(axis=1)[:, None], z, 1e-5)
    new = np.random.default_rng(5).random((3, x.shape[1]))
    kernel = new @ full.T
    extended = kernel @ z / kernel.sum(axis=1)[:, None] / mu
    same_up_to_sign(new @ P / kernel.sum(axis=1)[:, None], extended, 1e-5)
    np.testing.assert_array_equal(P, cosine_projection(x, 5))


def test_signs_do_not_depend_on_the_seed() -> None:
    a, b = cosine_projection(texts(), 4, seed=1), cosine_projection(texts(), 4, seed=2)
    np.testing.assert_allclose(a, b, atol=1e-5)


def test_too_few_words_are_refused() -> None:
    with pytest.raises(TrainingError, match=r"model\.dimension: 25 must be below 24"):
        cosine_projection(texts(), 25)


WORDS, FACTORED_SIZE = 30, 5


def factored_start(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((WORDS, FACTORED_SIZE)).astype(np.float32)


def sparse(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    indices = np.sort(rng.choice(WORDS, count, replace=False)).astype(np.int32)
    return indices, rng.random(count).astype(np.float32)


def take_step(factored: FactoredMatrix, *given: Any) -> float:
    """Take a step of (indices, values, v, c) as training does; return the error before it."""
    indices, values, v, c = given
    Gv, b = np.zeros(len(v)), np.zeros(len(v))
    T, M, inverse, G = vars(factored).values()
    error: float = squared_error(indices, values, v, T, M, G, Gv, b)
    growth, _ = gradient_step(indices, values, v, c, T, M, inverse, G, Gv, b)
    if must_fold(growth):
        factored.fold()
    return error


def value_of(factored: FactoredMatrix) -> np.ndarray:
    return factored.T @ factored.M.astype(np.float32)


@pytest.mark.parametrize("c", [0.001, 0.05, 0.3])
def test_steps_equal_those_of_the_dense_matrix(c: float) -> None:
    """Take hundreds of steps V ← V − c (V v − φ) vᵀ, with φ of no word and of one word."""
    rng, V = np.random.default_rng(1), factored_start().astype(np.float64)
    factored = FactoredMatrix.of(factored_start())
    folds = 0
    for t in range(600):
        indices, values = sparse(rng, (0, 1, 7)[t % 3])
        v = (rng.standard_normal(FACTORED_SIZE) * 0.5).astype(np.float32)
        phi = np.zeros(WORDS)
        phi[indices] = values
        residual = V @ v - phi
        error = take_step(factored, indices, values, v, c)
        assert error == pytest.approx(residual @ residual, rel=1e-3, abs=1e-5)
        V -= c * np.outer(residual, v.astype(np.float64))
        folds += np.array_equal(factored.M, np.eye(FACTORED_SIZE))
    np.testing.assert_allclose(value_of(factored), V, atol=2e-5)
    np.testing.assert_allclose(factored.G, V.T @ V, atol=1e-4)
    np.testing.assert_allclose(factored.M @ factored.inverse, np.eye(FACTORED_SIZE), atol=1e-6)
    assert (folds > 0) == (c > 0.04)


def test_folding_changes_the_factors_but_not_the_matrix() -> None:
    rng, factored = np.random.default_rng(2), FactoredMatrix.of(factored_start())
    for _ in range(20):
        take_step(
            factored,
            *sparse(rng, 4),
            rng.standard_normal(FACTORED_SIZE).astype(np.float32) * 0.5,
            0.1,
        )
    before, T = value_of(factored), factored.T
    other = FactoredMatrix(*(array.copy() for array in vars(factored).values()))
    factored.fold()
    assert factored.T is T
    np.testing.assert_allclose(value_of(factored), before, atol=1e-6)
    np.testing.assert_array_equal(factored.M, np.eye(FACTORED_SIZE))
    assert not np.array_equal(other.M, factored.M)


def test_a_step_that_makes_the_factor_singular_stays_finite() -> None:
    """c‖v‖² = 1 removes the direction v from V, so M would have no inverse."""
    factored, V = FactoredMatrix.of(factored_start()), factored_start().astype(np.float64)
    indices, values = sparse(np.random.default_rng(3), 4)
    v = np.array([1, 0, 0, 0, 0], np.float32)
    for _ in range(3):
        take_step(factored, indices, values, v, 1.0)
    phi = np.zeros(WORDS)
    phi[indices] = values
    V[:, 0] = phi
    np.testing.assert_allclose(value_of(factored), V, atol=3e-3)


DOCUMENTS, RECONSTRUCTION_WORDS, RECONSTRUCTION_SIZE = 12, 20, 4


def reconstruction_texts(seed: int = 0) -> Rows:
    """Unit rows; the first is empty, the second is one word."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(DOCUMENTS):
        count = min(i, 5)
        values = rng.random(count) + 0.1
        rows.append(
            (
                rng.choice(RECONSTRUCTION_WORDS, count, replace=False),
                values / np.linalg.norm(values),
            )
        )
    return Rows.from_lists([(i.tolist(), v.tolist()) for i, v in rows], RECONSTRUCTION_WORDS)


class ReconstructionModel:
    """Parameters in float64, and the objective of one document and one other."""

    def __init__(self, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.V = rng.standard_normal((RECONSTRUCTION_WORDS, RECONSTRUCTION_SIZE)) * 0.3
        self.W = rng.standard_normal((RECONSTRUCTION_WORDS, RECONSTRUCTION_SIZE)) * 0.3
        self.vectors = rng.standard_normal((DOCUMENTS, RECONSTRUCTION_SIZE)) * 0.5
        self.phi = reconstruction_texts().csr().toarray().astype(np.float64)

    def loss(self, k: int, other: int, gamma: float) -> float:
        v = self.vectors[k]
        residual = self.V @ v - self.phi[k]
        return gamma * float(residual @ residual) + max(0.0, self.margin(k, other))

    def margin(self, k: int, other: int) -> float:
        return 1 - float((self.phi[k] - self.phi[other]) @ self.W @ self.vectors[k])

    def step(self, k: int, other: int, gamma: float, rate: float) -> None:
        v, residual = self.vectors[k].copy(), self.V @ self.vectors[k] - self.phi[k]
        difference, violated = self.phi[k] - self.phi[other], self.margin(k, other) > 0
        towards = -2 * rate * gamma * (self.V.T @ residual)
        if violated:
            towards = towards + rate * (difference @ self.W)
            self.W += rate * np.outer(difference, v)
        self.V -= 2 * rate * gamma * np.outer(residual, v)
        self.vectors[k] += towards


def kernels_of(model: ReconstructionModel) -> tuple[np.ndarray, np.ndarray, FactoredMatrix]:
    W, vectors, V = (a.astype(np.float32) for a in (model.W, model.vectors, model.V))
    return W, vectors, FactoredMatrix.of(V)


@pytest.mark.parametrize("gamma", [0.0, 0.6])
def test_steps_equal_the_dense_updates(gamma: float) -> None:
    """Take some hundred steps over all documents, with folds in between."""
    model = ReconstructionModel()
    W, vectors, V = kernels_of(model)
    drawn = sample(DOCUMENTS, 400, np.random.default_rng(2))
    wanted = []
    for k, other in zip(*drawn, strict=True):
        wanted.append(model.loss(k, other, gamma))
        model.step(k, other, gamma, 0.1)
    losses = reconstruction_run(reconstruction_texts(), W, vectors, V, drawn, gamma, 0.1)
    np.testing.assert_allclose(losses, wanted, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(W, model.W, atol=1e-4)
    np.testing.assert_allclose(vectors, model.vectors, atol=1e-4)
    np.testing.assert_allclose(value_of(V), model.V, atol=1e-4)


def test_a_step_of_a_singular_factor_moves_code_and_decoder_alike() -> None:
    """At c‖v‖² = 1 the step is moved by a thousandth: V and v_k must both take that one step down the gradient."""
    model, k, other, gamma = ReconstructionModel(), 6, 3, 0.6
    model.vectors[k] = [2, 0, 0, 0]
    model.W *= 0  # Its gradient is zero here, and W(φ_k − φ_l) too.
    W, vectors, V = kernels_of(model)
    c = 1 / 4
    reconstruction_run(
        reconstruction_texts(),
        W,
        vectors,
        V,
        (np.array([k]), np.array([other])),
        gamma,
        c / (2 * gamma),
    )
    residual = model.V @ model.vectors[k] - model.phi[k]
    moved = (model.V - value_of(V))[:, 0] / (2 * residual)  # ΔV = −c (V v − φ) vᵀ
    taken = (model.vectors[k] - vectors[k]) / (model.V.T @ residual)  # Δv = −c Vᵀ(V v − φ)
    unread = model.phi[k] == 0  # Rounding in V = T M is least there.
    np.testing.assert_allclose(moved[unread], 0.999 * c, rtol=1e-5)
    np.testing.assert_allclose(taken, 0.999 * c, rtol=1e-5)


@pytest.mark.parametrize("name", ["V", "W", "vectors"])
def test_reconstruction_a_step_follows_the_negative_gradient(name: str) -> None:
    checked = 0
    for k in range(DOCUMENTS):
        other, gamma = (k + 5) % DOCUMENTS, 0.6
        model = ReconstructionModel()
        if abs(model.margin(k, other)) < 1e-3:
            continue
        W, vectors, V = kernels_of(model)
        reconstruction_run(
            reconstruction_texts(), W, vectors, V, (np.array([k]), np.array([other])), gamma, 1e-3
        )
        after = {"V": value_of(V), "W": W, "vectors": vectors}[name]
        before = getattr(model, name)
        step = (after - before.astype(np.float32)) / 1e-3
        for place in np.argwhere(np.abs(step) > 0.05)[::3]:
            keep = before[tuple(place)]
            losses = []
            for change in (1e-6, -1e-6):
                before[tuple(place)] = keep + change
                losses.append(model.loss(k, other, gamma))
            before[tuple(place)] = keep
            gradient = (losses[0] - losses[1]) / 2e-6
            assert step[tuple(place)] == pytest.approx(-gradient, rel=5e-3, abs=1e-3)
            checked += 1
    assert checked > 10


def test_codes_reconstruct_as_well_as_singular_vectors() -> None:
    """If the first term dominates, the steps find a code as good as the best linear code of the same width."""
    model = ReconstructionModel()
    W, vectors, V = kernels_of(model)
    rng = np.random.default_rng(3)
    for _ in range(60):
        reconstruction_run(
            reconstruction_texts(),
            W,
            vectors,
            V,
            sample(DOCUMENTS, 40 * DOCUMENTS, rng),
            100.0,
            5e-4,
        )
    found = np.square(vectors @ value_of(V).T - model.phi).sum()
    best = np.square(np.linalg.svd(model.phi)[1][RECONSTRUCTION_SIZE:]).sum()
    assert best - 1e-4 < found < 1.05 * best


def test_steps_of_rate_zero_change_no_parameter() -> None:
    model = ReconstructionModel()
    W, vectors, V = kernels_of(model)
    before = W.copy(), vectors.copy(), value_of(V)
    drawn = sample(DOCUMENTS, 30, np.random.default_rng(2))
    losses = reconstruction_run(reconstruction_texts(), W, vectors, V, drawn, 0.6, 0.0)
    wanted = [model.loss(k, other, 0.6) for k, other in zip(*drawn, strict=True)]
    np.testing.assert_allclose(losses, wanted, rtol=1e-4, atol=1e-5)
    for a, b in zip(before, (W, vectors, value_of(V)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_every_document_is_drawn_as_often_as_any_other_and_never_against_itself() -> None:
    first, second = sample(7, 21, np.random.default_rng(0))
    np.testing.assert_array_equal(np.bincount(first), 3)
    assert (first != second).all()
    assert set(second) <= set(range(7))
    assert len(sample(7, 10, np.random.default_rng(0))[0]) == 10
