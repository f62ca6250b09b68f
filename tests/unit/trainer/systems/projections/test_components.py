"""Projections against dense eigenvectors of explicit covariance matrices."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.linalg import eigh

from fullrank.encoding import Float64
from fullrank.errors import TrainingError
from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.features.pairs import Pairs
from fullrank_trainer.recipes.settings import ModelSettings
from fullrank_trainer.systems import projections as components
from fullrank_trainer.systems.projections import Space, space_of
from tests.planted import write_planted

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
    relevant = features.pairs.relevant
    assert len(q) == sum(len(rows) for rows in relevant.values())
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


def test_same_seed_same_bits(space: Space) -> None:
    for find in (components.lsa, components.cl_lsa):
        np.testing.assert_array_equal(find(space, 4, 1), find(space, 4, 1))
    np.testing.assert_array_equal(
        components.opca(space, 4, 1, 1.0), components.opca(space, 4, 1, 1.0)
    )


def test_pairs_can_be_queries_with_their_mates(features: Features) -> None:
    """Pairs are training queries and the documents that they describe; other queries have no pair."""
    mates = np.full(len(features.mates), -1)
    mates[features.pairs.queries[:7]] = np.arange(7)[::-1]
    space = space_of(replace(features, mates=mates), "mates")
    np.testing.assert_array_equal(space.query_of, np.arange(7))
    np.testing.assert_array_equal(space.document_of, np.arange(7)[::-1])


def test_too_few_pairs_or_texts_are_refused(features: Features, space: Space) -> None:
    none = replace(features, pairs=Pairs.of({}))
    for find in (components.cl_lsa, partial(components.opca, noise=1.0)):
        with pytest.raises(TrainingError, match="no pair"):
            find(space_of(none), 2, 1)
    with pytest.raises(TrainingError, match=r"model\.dimension: 500 must be below"):
        components.lsa(space, 500, 1)
