"""Supervised half transductive ranking: dense steps, finite differences, and serving of new documents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.recipes.recipe import Recipe, load_recipe
from fullrank_trainer.systems.half_transductive import SupervisedLearner
from fullrank_trainer.systems.linear.parameters import scan_queries
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
    assert model.step(columns, 0.5, update=False)[0] == 1
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


def test_rate_is_chosen_by_training_loss_and_the_start_is_untouched(linked: Features) -> None:
    model = learner(linked, "rates=1e-7,0.05", "trial=2000", "init=0.05")
    W, vectors = model.W.copy(), model.vectors.copy()
    model.prepare()
    assert model.rate[0] == 0.05
    np.testing.assert_array_equal(model.W, W)
    np.testing.assert_array_equal(model.vectors, vectors)


def test_empty_texts_stay_finite(linked: Features) -> None:
    """No word on either side: the hinge is 1, and only the document vectors can change."""
    empty = replace(linked, xq=linked.xq.with_values(np.zeros_like(linked.xq.values)))
    model = learner(empty)
    W, vectors = model.W.copy(), model.vectors.copy()
    assert run_one(model, triples_of(model)[0], 0.5) == pytest.approx(1 + model.settings.gamma)
    np.testing.assert_array_equal(model.W, W)
    np.testing.assert_array_equal(model.vectors, vectors)
