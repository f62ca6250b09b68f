"""Compressed models compared with the best approximation of the whole matrix of scores (Eckart and Young)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fullrank.progress import Reporter
from tests.planted import write_planted
from trainer.collection import read_collection
from trainer.features.matrices import Features
from trainer.recipes.recipe import load_recipe
from trainer.systems.linear.compression import compress
from trainer.systems.linear.parameters import Parameters, start
from trainer.systems.linear.scan import scan_documents, scan_queries
from trainer.training.context import TrainingContext

RECIPE = load_recipe("fielded").override(["dimension=40", "latent_terms=7"])


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.systems.linear.compression._STEP", 4)


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Features:
    folder = write_planted(tmp_path_factory.mktemp("compression"))
    context = TrainingContext(read_collection(folder), Reporter(quiet=True), 1, 1)
    return context.features(RECIPE.model)


def parameters_of(features: Features, rank: int) -> Parameters:
    """Random parameters of 40 dimensions, of which ``rank`` are independent and shrink."""
    rng = np.random.default_rng(1)
    found = start(features, RECIPE.train, rng)
    base = rng.normal(size=(rank, 40)) * (0.8 ** np.arange(rank))[:, None]
    U = rng.normal(size=(len(found.U), rank)) @ base
    V = rng.normal(size=(len(found.V), rank)) @ base
    return replace(found, U=U.astype(np.float32), V=V.astype(np.float32))


def dense_scores(features: Features, parameters: Parameters) -> np.ndarray:
    """Scores of all judged queries and documents, without each query's mean over the documents."""
    u = scan_queries(features, parameters, features.pairs.queries).dense.astype(np.float64)
    scores = u @ scan_documents(features, parameters).dense.astype(np.float64).T
    return np.asarray(scores - scores.mean(axis=1, keepdims=True))


def test_the_scores_are_the_best_ones_of_that_rank(features: Features) -> None:
    parameters = parameters_of(features, 30)
    compressed = compress(features, parameters, most_lost=0.02)
    kept = compressed.U.shape[1]
    assert 0 < kept < 20
    assert kept % 4 == 0
    whole = dense_scores(features, parameters)
    P, S, Qt = np.linalg.svd(whole, full_matrices=False)
    best = P[:, :kept] * S[:kept] @ Qt[:kept]
    lost = np.square(whole - dense_scores(features, compressed)).sum()
    assert lost <= 0.02 * np.square(whole).sum()
    assert lost == pytest.approx(np.square(whole - best).sum(), rel=0.01)


def test_nothing_is_lost_where_fits_agree(features: Features) -> None:
    parameters = parameters_of(features, 8)
    compressed = compress(features, parameters, most_lost=1e-6)
    assert compressed.U.shape[1] == 8
    whole = dense_scores(features, parameters)
    np.testing.assert_allclose(
        dense_scores(features, compressed), whole, atol=1e-3 * np.abs(whole).max()
    )


def test_a_model_that_would_lose_too_much_stays_as_it_is(features: Features) -> None:
    parameters = parameters_of(features, 40)
    assert compress(features, parameters, most_lost=-1.0) is parameters
