"""S2Net's loss and components against numpy twins and finite differences; learners on planted data."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.linalg import eigh

from fullrank.errors import TrainingError
from fullrank.storage.encoding import Float64
from fullrank_trainer.collection import read_collection
from fullrank_trainer.collection.pairs import Pairs
from fullrank_trainer.features.corpus import Corpus, count_collection
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.recipes.recipe import Recipe, load_recipe
from fullrank_trainer.recipes.settings import ModelSettings
from fullrank_trainer.systems import projections as components
from fullrank_trainer.systems.projections import (
    S2NetLearner,
    Space,
    embed,
    loss_and_gradient,
    lsa,
    space_of,
)
from fullrank_trainer.training.validation import validation
from tests.planted import write_planted, write_planted_links

QUERIES = np.array([0, 1, 2, 2])
CANDIDATES = np.array([[4, 5, 6], [5, 6, 4], [7, 4, 8], [6, 8, 5]])
"""Text 3 belongs to no query, text 8 has no known word, text 2 is the query of two pairs."""


def texts(scale: float = 1.0) -> Float64:
    Y = np.random.default_rng(0).standard_normal((9, 5)) * scale
    Y[8] = 0
    return Y


def cosine(a: Float64, b: Float64) -> float:
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / size if size else 0.0


def plain_loss(Y: Float64, gamma: float) -> float:
    """The formula log(1 + exp(−γΔ)), mean over triples."""
    losses = []
    for q, (positive, *negatives) in zip(QUERIES, CANDIDATES.tolist(), strict=True):
        for negative in negatives:
            delta = cosine(Y[q], Y[positive]) - cosine(Y[q], Y[negative])
            losses.append(np.log1p(np.exp(-gamma * delta)))
    return float(np.mean(losses))


@pytest.mark.parametrize("gamma", [1.0, 10.0])
def test_gradient_by_finite_differences(gamma: float) -> None:
    Y = texts()
    loss, gradient = loss_and_gradient(Y.astype(np.float32), QUERIES, CANDIDATES, gamma)
    assert loss == pytest.approx(plain_loss(Y, gamma), rel=1e-5)
    step, wanted = 1e-6, np.zeros_like(Y)
    for place in np.ndindex(8, 5):
        up, down = Y.copy(), Y.copy()
        up[place] += step
        down[place] -= step
        wanted[place] = (plain_loss(up, gamma) - plain_loss(down, gamma)) / (2 * step)
    np.testing.assert_allclose(gradient[:8], wanted[:8], rtol=1e-3, atol=1e-6)
    assert (gradient[[3, 8]] == 0).all()
    # The cosine ignores length, so the gradient of a text is orthogonal to it.
    np.testing.assert_allclose(np.sum(gradient * Y, axis=1), 0, atol=1e-6)


def test_the_gradient_equals_the_papers_formula() -> None:
    """∂cos/∂A = bc(x gᵀ + y fᵀ) − a b³c x fᵀ − a b c³ y gᵀ, with f = Aᵀx, g = Aᵀy, a = f·g, b = 1/‖f‖, c = 1/‖g‖."""
    rng = np.random.default_rng(1)
    A, X = rng.standard_normal((6, 3)), rng.random((3, 6))
    gamma = 10.0

    def of(x: Float64, y: Float64) -> tuple[float, Float64]:
        f, g = A.T @ x, A.T @ y
        a, b, c = f @ g, 1 / np.linalg.norm(f), 1 / np.linalg.norm(g)
        slope = b * c * (np.outer(x, g) + np.outer(y, f))
        slope -= a * b**3 * c * np.outer(x, f) + a * b * c**3 * np.outer(y, g)
        return float(a * b * c), slope

    (near, up), (far, down) = of(X[0], X[1]), of(X[0], X[2])
    wanted = -gamma / (1 + np.exp(gamma * (near - far))) * (up - down)
    _, G = loss_and_gradient(
        (X @ A).astype(np.float32), np.array([0]), np.array([[1, 2]]), gamma
    )  # fmt: skip
    np.testing.assert_allclose(X.T @ G, wanted, rtol=1e-4, atol=1e-6)


def test_extreme_scores_stay_finite() -> None:
    for scale, gamma in ((1e-15, 10.0), (1e15, 10.0), (1.0, 1000.0)):
        loss, gradient = loss_and_gradient(
            texts(scale).astype(np.float32), QUERIES, CANDIDATES, gamma
        )
        assert np.isfinite(loss)
        assert np.isfinite(gradient).all()


@pytest.fixture(scope="module", params=["asked", "linked"])
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    write = write_planted if request.param == "asked" else write_planted_links
    return count_collection(read_collection(write(tmp_path_factory.mktemp("s2net"))), processes=1)


def learner_of(corpus: Corpus, *overrides: str) -> S2NetLearner:
    recipe: Recipe = load_recipe("s2net").override(["dimension=6", *overrides])
    features = build_features(corpus, recipe.model)
    return S2NetLearner(features, space_of(features), recipe, np.random.default_rng(1), 1)


def features_of(corpus: Corpus) -> Features:
    return build_features(corpus, load_recipe("s2net").override(["dimension=6"]).model)


def test_starts_from_lsa(corpus: Corpus) -> None:
    learner = learner_of(corpus)
    start = lsa(learner.space, 6, 1)
    np.testing.assert_allclose(learner.A / learner.A[0, 0], start / start[0, 0], rtol=1e-3)
    assert np.mean(np.sum(learner.A**2, axis=1)) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("tied", ["true", "false"])
def test_s2net_learns_planted_pairs(corpus: Corpus, tied: str) -> None:
    """The loss falls and validation MAP rises, with one or two vocabularies."""
    learner = learner_of(corpus, f"tied={tied}")
    valid = validation(corpus, 0)
    assert valid is not None
    before = learner.measure(valid)
    learner.prepare()
    losses = []
    for epoch in range(6):
        counted, loss = zip(*learner.steps(epoch / 6, 1 / 6), strict=True)
        assert sum(counted) == learner.per_epoch
        losses.append(float(np.average(loss, weights=counted)))
    after = learner.measure(valid)
    assert after > 0.9
    if (
        tied == "true"
    ):  # with two vocabularies it starts from pairs, and planted ones leave little to learn
        assert losses[-1] < losses[0]
        assert after > before


def test_negatives_are_never_judged_documents(corpus: Corpus) -> None:
    """Negatives are neither judged relevant nor the query itself."""
    learner = learner_of(corpus)
    space = learner.space
    queries = space.query_of[learner.pairs]
    drawn = learner._negatives(queries)
    assert drawn.shape == (len(queries), 4)
    for q, rows in zip(queries.tolist(), drawn, strict=True):
        own = {int(space.mates[q]), *space.document_of[space.query_of == q].tolist()}
        assert own.isdisjoint(rows.tolist())
    assert len(np.unique(drawn)) == learner.features.documents


def test_nothing_to_learn_from_is_refused(corpus: Corpus) -> None:
    features, recipe = features_of(corpus), load_recipe("s2net").override(["dimension=6"])
    rng = np.random.default_rng(1)
    everything = np.arange(features.documents)
    asked = features.pairs.queries
    full = replace(features, pairs=Pairs.from_lists(dict.fromkeys(asked.tolist(), everything)))
    with pytest.raises(TrainingError, match="no pair has a negative"):
        S2NetLearner(full, space_of(full), recipe, rng, 1)
    none = replace(features, pairs=Pairs.from_lists({}))
    with pytest.raises(TrainingError, match="no pair to learn from"):
        S2NetLearner(none, space_of(none), recipe, rng, 1)


def test_embed_is_the_matrix_product(corpus: Corpus) -> None:
    learner = learner_of(corpus)
    wanted = learner.texts.csr().toarray() @ learner.A
    np.testing.assert_allclose(embed(learner.texts, learner.A), wanted, rtol=1e-4, atol=1e-6)


SETTINGS = ModelSettings(fields="joined", latent="projection", tied=True, dimension=5, match="none")


@pytest.fixture(scope="module", params=["one vocabulary", "two vocabularies"])
def features(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Features:
    folder = write_planted(tmp_path_factory.mktemp("components"))
    corpus = count_collection(read_collection(folder), processes=1)
    return build_features(corpus, replace(SETTINGS, tied=request.param == "one vocabulary"))


@pytest.fixture(scope="module")
def space(features: Features) -> Space:
    return space_of(features)


def judged_pairs(space: Space) -> tuple[Float64, Float64]:
    """q and d of every pair, dense."""
    q, d = space.queries.toarray(), space.documents.toarray()
    return q[space.query_of], d[space.document_of]


def covariance(X: Float64) -> Float64:
    """The covariance around the mean row."""
    return np.asarray(np.cov(X, rowvar=False, bias=True))


def check(found: np.ndarray, values: Float64, vectors: Float64) -> None:
    """The eigenvectors of the largest eigenvalues (given ascending), largest first, each up to its sign."""
    assert found.dtype == np.float32
    k = found.shape[1]
    assert values[-k] - values[-k - 1] > 1e-4 * values[-1]
    wanted = vectors[:, ::-1][:, :k]
    cosine = np.sum(found * wanted, axis=0) / np.linalg.norm(wanted, axis=0)
    np.testing.assert_allclose(np.abs(cosine / np.linalg.norm(found, axis=0)), 1, atol=1e-4)


def test_queries_and_documents_share_one_space(features: Features, space: Space) -> None:
    """With two vocabularies queries and documents have no column in common."""
    assert space.queries.shape[0] == len(features.pairs.queries)
    words = len(features.model.query.words)
    U, V = space.tables(np.zeros((space.width, 2), np.float32))
    assert len(U) == words
    assert len(V) == len(features.model.document.words)
    if features.settings.tied:
        assert space.width == words
        assert list(features.model.query.words.words) == list(features.model.document.words.words)
    else:
        assert space.width == words + len(V)
        assert space.queries[:, words:].nnz == 0
        assert space.documents[:, :words].nnz == 0
    q, d = judged_pairs(space)
    relevant = features.pairs
    assert len(q) == len(relevant)
    first = features.pairs.queries[0]
    np.testing.assert_array_equal(
        space.document_of[space.query_of == 0], relevant[int(first)]
    )  # fmt: skip
    v, w = np.random.default_rng(0).random(space.width), np.random.default_rng(1).random(len(q))
    for sign in (1, -1):
        np.testing.assert_allclose(space.pairs(sign).matvec(v), (q + sign * d) @ v)
        np.testing.assert_allclose(space.pairs(sign).rmatvec(w), (q + sign * d).T @ w)
    np.testing.assert_allclose(space.variances(), (q**2 + d**2).mean(axis=0))


def test_lsa_equals_dense_eigenvectors(space: Space) -> None:
    X = np.concatenate([space.queries.toarray(), space.documents.toarray()])
    check(components.lsa(space, 5, seed=1), *np.linalg.eigh(covariance(X)))


def test_cl_lsa_equals_dense_eigenvectors(space: Space) -> None:
    q, d = judged_pairs(space)
    check(components.cl_lsa(space, 5, seed=1), *np.linalg.eigh(covariance(q + d)))


@pytest.mark.parametrize("noise", [0.01, 1.0, 100.0])
def test_opca_equals_dense_eigenvectors(space: Space, noise: float) -> None:
    q, d = judged_pairs(space)
    X = np.concatenate([space.queries.toarray(), space.documents.toarray()])
    gamma = noise * (q**2 + d**2).mean()
    sigma = (q - d).T @ (q - d) / len(q)
    wanted = eigh(covariance(X), sigma + gamma * np.eye(space.width))
    check(components.opca(space, 5, 1, noise), *wanted)


def test_opca_with_much_noise_equals_lsa(space: Space) -> None:
    """A γ far above Σ_noise leaves the plain covariance."""
    found, plain = components.opca(space, 3, 1, 1e6), components.lsa(space, 3, 1)
    found /= np.linalg.norm(found, axis=0)
    np.testing.assert_allclose(np.abs(np.sum(found * plain, axis=0)), 1, atol=1e-3)


def test_pairs_can_be_queries_with_their_mates(features: Features) -> None:
    """Pairs are training queries and the documents that they describe; other queries have no pair."""
    mates = np.full(len(features.mates), -1)
    mates[features.pairs.queries[:7]] = np.arange(7)[::-1]
    space = space_of(replace(features, mates=mates), "mates")
    np.testing.assert_array_equal(space.query_of, np.arange(7))
    np.testing.assert_array_equal(space.document_of, np.arange(7)[::-1])


def test_too_few_pairs_or_texts_are_refused(features: Features, space: Space) -> None:
    none = replace(features, pairs=Pairs.from_lists({}))
    for find in (components.cl_lsa, partial(components.opca, noise=1.0)):
        with pytest.raises(TrainingError, match="no pair"):
            find(space_of(none), 2, 1)
    with pytest.raises(TrainingError, match=r"model\.dimension: 500 must be below"):
        components.lsa(space, 500, 1)
