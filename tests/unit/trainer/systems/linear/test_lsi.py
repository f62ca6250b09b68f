"""LSI against a dense singular value decomposition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fullrank.errors import TrainingError
from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.recipes.settings import ModelSettings
from fullrank_trainer.systems import projections
from fullrank_trainer.systems.linear.parameters import encode_judged
from tests.planted import write_planted

SETTINGS = ModelSettings(fields="joined", latent="lsi", dimension=5, match="none")


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Features:
    folder = write_planted(tmp_path_factory.mktemp("lsi"))
    return build_features(count_collection(read_collection(folder), processes=1), SETTINGS)


def test_the_projection_equals_a_dense_truncated_svd(features: Features) -> None:
    X = features.xd.composed().csr().toarray().astype(np.float64)
    _, values, vt = np.linalg.svd(X, full_matrices=False)
    B = projections.singular_vectors(features, seed=1)
    assert B.shape == (X.shape[1], 5)
    assert B.dtype == np.float32
    # Largest first, each up to its sign.
    np.testing.assert_allclose(np.linalg.norm(X @ B, axis=0), values[:5], rtol=1e-4)
    np.testing.assert_allclose(np.abs(np.sum(B * vt[:5].T, axis=0)), 1, atol=1e-3)


def test_same_seed_same_bits(features: Features) -> None:
    np.testing.assert_array_equal(
        projections.singular_vectors(features, 1), projections.singular_vectors(features, 1)
    )


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_lsi_can_be_mixed_with_tfidf(features: Features, alpha: float) -> None:
    """f = α cos(Bᵀq, Bᵀd) + (1 − α) q·d; a word that only queries have projects to zero."""
    mixed = replace(
        features,
        settings=replace(SETTINGS, match="tfidf", alpha=alpha),
        model=replace(
            features.model, sparse=replace(features.model.sparse, scheme="tfidf")
        ),
    )  # fmt: skip
    B = projections.singular_vectors(features, 1)
    model = projections.compile_projection(mixed, B)
    q = encode_judged(mixed, model, np.array([0, 5, 9]))
    xq, xd = (
        features.xq.take(np.array([0, 5, 9])).csr().toarray(),
        features.xd.composed().csr().toarray(),
    )
    place = model.document.words.rows(model.query.words.words)
    known = place >= 0
    assert not known.all()
    remapped = np.zeros((3, xd.shape[1]))
    remapped[:, place[known]] = xq[:, known]
    d = model.encode_documents([{"title": "tell0a", "text": "decoy1 decoy2"}])
    u, v = remapped @ B, d.dense
    cosine = u @ v.T / np.linalg.norm(u, axis=1)[:, None] / np.linalg.norm(v)
    np.testing.assert_allclose(q.dense @ v.T, alpha * cosine, rtol=1e-4, atol=1e-6)
    assert np.linalg.norm(v) == pytest.approx(1, rel=1e-5)
    share = np.linalg.norm(d.sparse.values)
    assert share == pytest.approx(1 - alpha, rel=1e-5, abs=1e-7)


def test_too_many_dimensions_are_refused(features: Features) -> None:
    wide = replace(features, settings=replace(SETTINGS, dimension=36))
    with pytest.raises(TrainingError, match=r"model\.dimension: 36 must be below 36"):
        projections.singular_vectors(wide, 1)
