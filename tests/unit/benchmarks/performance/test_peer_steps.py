"""The steps for a peer in training, against a loss computed pair by pair."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.performance.peer_steps import BATCH, write_steps
from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.recipes.settings import ModelSettings, TrainSettings
from fullrank_trainer.systems.linear.parameters import Parameters, start
from tests.planted import write_planted


@pytest.fixture
def features(tmp_path: Path) -> Features:
    corpus = count_collection(read_collection(write_planted(tmp_path)), processes=1)
    return build_features(corpus, ModelSettings(latent="learned", dimension=4, match="none"))


def start_of(features: Features, train: TrainSettings) -> tuple[Parameters, np.ndarray, np.ndarray]:
    """Return parameters, and their vectors of all queries and of all documents, float64."""
    p = start(features, train, np.random.default_rng(1))
    u = features.xq.csr().astype(np.float64) @ p.U
    v = features.xd.composed().csr().astype(np.float64) @ p.V
    return p, u, v


def test_softmax_steps_have_the_loss_of_the_links_that_they_name(
    features: Features, tmp_path: Path
) -> None:
    train = TrainSettings(loss="softmax", batch=5, candidates=28, init=0.5)
    p, u, v = start_of(features, train)
    write_steps(tmp_path / "steps.npz", features, train, p)
    steps = np.load(tmp_path / "steps.npz")
    queries = steps["queries"][: steps["step_queries"][1]]
    candidates = steps["candidates"][: steps["step_candidates"][1]]
    links = iter(steps["links"][: steps["step_links"][1]].tolist())
    losses = []
    for query, degree in zip(queries, steps["degrees"], strict=False):
        documents = candidates[[next(links) for _ in range(degree)]]
        assert documents.tolist() == features.pairs.relevant[int(query)].tolist()
        scores = np.exp(v[candidates] @ u[query])
        others = scores[~np.isin(candidates, documents)].sum()
        of_links = np.exp(v[documents] @ u[query])
        losses.append(-np.log(of_links / (of_links + others)).sum() / degree**0.5)
    assert next(links, None) is None
    assert steps["first_loss"] == pytest.approx(np.mean(losses), rel=1e-4)


def test_margin_steps_have_the_loss_of_their_triples(features: Features, tmp_path: Path) -> None:
    train = TrainSettings(loss="margin", init=0.5)
    p, u, v = start_of(features, train)
    write_steps(tmp_path / "steps.npz", features, train, p)
    steps = np.load(tmp_path / "steps.npz")
    triples = zip(steps["queries"], steps["positives"], steps["negatives"], strict=True)
    losses = []
    for query, positive, negative in list(triples)[:BATCH]:
        judged = features.pairs.relevant[int(query)]
        assert positive in judged
        assert negative not in judged
        losses.append(max(0.0, 1 - u[query] @ v[positive] + u[query] @ v[negative]))
    assert steps["first_loss"] == pytest.approx(sum(losses), rel=1e-4)
