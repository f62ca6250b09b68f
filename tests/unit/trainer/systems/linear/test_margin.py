"""The margin loss: the papers' update computed densely, finite differences, and the choice of the rate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import pytest

from fullrank.errors import TrainingError
from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.features.pairs import Pairs
from fullrank_trainer.recipes.recipe import load_recipe
from fullrank_trainer.recipes.settings import ModelSettings, TrainSettings
from fullrank_trainer.systems.linear import margin
from fullrank_trainer.systems.linear.parameters import Parameters
from tests.planted import write_planted, write_planted_links

pytestmark = pytest.mark.usefixtures("one_thread")

FULL = ModelSettings(latent="learned", dimension=5, diagonal="learned", bias=True, fields="each")
TRAIN = TrainSettings(loss="margin")


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Features:
    """Two fields, a bias, both parts learned."""
    folder = write_planted(tmp_path_factory.mktemp("margin"))
    return build_features(count_collection(read_collection(folder), processes=1), FULL)


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Features:
    """Documents are queries, U is V."""
    folder = write_planted_links(tmp_path_factory.mktemp("margin"))
    corpus = count_collection(read_collection(folder), processes=1)
    return build_features(corpus, replace(FULL, tied=True))


def random_parameters(features: Features, scale: float = 0.3) -> Parameters:
    """Random values, so no parameter has its start value."""
    rng = np.random.default_rng(1)
    N = features.settings.dimension
    V = rng.standard_normal((features.xd.width, N), np.float32) * np.float32(scale)
    U = rng.standard_normal((features.xq.width, N), np.float32) * np.float32(scale)
    D = rng.random((len(features.z), features.s.width), np.float32)
    bias = rng.standard_normal(features.documents, np.float32) * np.float32(0.1)
    return Parameters(V if features.settings.tied else U, V, D, bias)


class Dense:
    """One triple in float64: x_q, x⁺ − x⁻, s and the difference of each field."""

    def __init__(self, features: Features, triple: tuple[int, int, int]) -> None:
        q, d, n = triple
        self.d, self.n = d, n
        self.x = features.xq.csr()[[q]].toarray().astype(np.float64)[0]
        xd = features.xd.composed().csr()[[d, n]].toarray().astype(np.float64)
        self.difference = xd[0] - xd[1]
        self.s = features.s.csr()[[q]].toarray().astype(np.float64)[0]
        self.z = [np.subtract(*z.csr()[[d, n]].toarray().astype(np.float64)) for z in features.z]

    def hinge(self, U: np.ndarray, V: np.ndarray, D: np.ndarray, bias: np.ndarray) -> float:
        """max(0, 1 − f(q,d⁺) + f(q,d⁻))."""
        f = (self.x @ U) @ (self.difference @ V) + bias[self.d] - bias[self.n]
        f += sum(self.s @ (D[k] * z) for k, z in enumerate(self.z))
        return max(0.0, 1.0 - float(f))


def run_one(
    features: Features, parameters: Parameters, triple: tuple[int, int, int], rate: float
) -> float:
    """The kernel on one triple."""
    columns = tuple(np.array([row], np.int64) for row in triple)
    return float(margin.run(features, parameters, columns, rate)[0])


def triples_of(features: Features, count: int = 12) -> list[tuple[int, int, int]]:
    """Draw triples as training does."""
    columns = margin.sample(features.pairs, features, count, np.random.default_rng(2))
    return [(int(q), int(d), int(n)) for q, d, n in zip(*columns, strict=True)]


def test_a_step_equals_the_papers_update(features: Features) -> None:
    """U += λ V(x⁺ − x⁻)x_qᵀ and V += λ (U x_q)(x⁺ − x⁻)ᵀ, both from the values before the step."""
    rate, changed = 0.05, 0
    for triple in triples_of(features):
        dense, p = Dense(features, triple), random_parameters(features)
        before = p.copy()
        hinge = run_one(features, p, triple, rate)
        U, V = before.U.astype(np.float64), before.V.astype(np.float64)
        assert hinge == pytest.approx(dense.hinge(U, V, before.D, before.bias), abs=1e-5)
        step = rate * (hinge > 0)
        changed += hinge > 0
        u, v = dense.x @ U, dense.difference @ V
        np.testing.assert_allclose(p.U, U + step * np.outer(dense.x, v), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            p.V, V + step * np.outer(dense.difference, u), rtol=1e-5, atol=1e-6
        )
        for k, z in enumerate(dense.z):
            np.testing.assert_allclose(
                p.D[k], before.D[k] + step * dense.s * z, rtol=1e-5, atol=1e-6
            )
        bias = before.bias.copy()
        bias[dense.d] += step
        bias[dense.n] -= step
        np.testing.assert_allclose(p.bias, bias, rtol=1e-6)
    assert changed > 3


def test_a_tied_step_applies_both_updates_to_one_matrix(linked: Features) -> None:
    """U = V: U += λ (V(x⁺ − x⁻)x_qᵀ + (U x_q)(x⁺ − x⁻)ᵀ), from one U before the step."""
    changed = 0
    for triple in triples_of(linked):
        dense, p = Dense(linked, triple), random_parameters(linked)
        assert p.U is p.V
        U = p.U.astype(np.float64)
        hinge = run_one(linked, p, triple, 0.05)
        changed += hinge > 0
        step = 0.05 * (hinge > 0)
        wanted = U + step * (
            np.outer(dense.x, dense.difference @ U) + np.outer(dense.difference, dense.x @ U)
        )
        np.testing.assert_allclose(p.U, wanted, rtol=1e-5, atol=1e-6)
    assert changed > 3


@pytest.mark.parametrize("name", ["U", "V", "D", "bias"])
def test_a_step_follows_the_negative_gradient_of_the_hinge(features: Features, name: str) -> None:
    """Finite differences of the hinge, entry by entry where the step changed a value."""
    checked = 0
    for triple in triples_of(features):
        dense, p = Dense(features, triple), random_parameters(features)
        before = {k: getattr(p, k).astype(np.float64) for k in ("U", "V", "D", "bias")}
        if dense.hinge(**before) < 1e-3:
            continue
        run_one(features, p, triple, 1.0)
        step = getattr(p, name) - before[name]
        for place in np.argwhere(step)[::7]:
            up, down = dict(before), dict(before)
            up[name], down[name] = before[name].copy(), before[name].copy()
            up[name][tuple(place)] += 1e-6
            down[name][tuple(place)] -= 1e-6
            gradient = (dense.hinge(**up) - dense.hinge(**down)) / 2e-6
            assert step[tuple(place)] == pytest.approx(-gradient, rel=1e-3, abs=1e-5)
            checked += 1
    assert checked > 3


def test_no_step_if_the_margin_is_satisfied(features: Features) -> None:
    triple = triples_of(features)[0]
    p = random_parameters(features)
    p.bias[triple[1]], p.bias[triple[2]] = 100, -100
    before = p.copy()
    assert run_one(features, p, triple, 0.5) == 0
    columns = tuple(np.array([row], np.int64) for row in triple)
    p.bias[:] = before.bias[:] = 0
    assert margin.run(features, p, columns, 0.5, update=False)[0] > 0
    for (name, array), (_, kept) in zip(p.arrays(), before.arrays(), strict=True):
        np.testing.assert_array_equal(array, kept, err_msg=name)


def test_rate_is_chosen_by_training_error(features: Features) -> None:
    """The least mean hinge over the trial's later half; a diverging rate is not chosen; the start does not change."""
    rates = (1e-6, 0.2, 1e30)
    p = random_parameters(features, 0.05)
    before = p.copy()
    errors = {}
    triples = margin.sample(features.pairs, features, 3000, np.random.default_rng(1))
    with np.errstate(all="ignore"):
        chosen = margin.best_rate(rates, lambda rate: margin.run(features, p.copy(), triples, rate))
    for rate in rates[:2]:
        errors[rate] = margin.run(features, p.copy(), triples, rate)[1500:].mean()
    assert errors[0.2] < errors[1e-6]
    assert chosen == 0.2
    for (name, array), (_, kept) in zip(p.arrays(), before.arrays(), strict=True):
        np.testing.assert_array_equal(array, kept, err_msg=name)


@pytest.mark.parametrize("which", ["features", "linked"])
def test_negatives_are_neither_judged_nor_the_query(
    which: str, request: pytest.FixtureRequest
) -> None:
    features: Features = request.getfixturevalue(which)
    pairs = features.pairs
    queries, positives, negatives = margin.sample(pairs, features, 3000, np.random.default_rng(0))
    assert len(queries) == 3000 > len(pairs)
    drawn = set()
    for q, d, n in zip(queries.tolist(), positives.tolist(), negatives.tolist(), strict=True):
        assert d in pairs.relevant[q]
        assert n not in pairs.relevant[q]
        assert n != features.mates[q]
        drawn.add((q, d))
    assert len(drawn) == len(pairs)  # every pair comes once before any is drawn again
    assert len(set(negatives.tolist())) == features.documents


def test_queries_without_a_negative_are_skipped(features: Features) -> None:
    """Drawing a negative for such a query would never end."""
    everything = np.arange(features.documents)
    pairs = Pairs.of({0: everything, 1: everything[:2]})
    queries, _, _ = margin.sample(pairs, features, 10, np.random.default_rng(0))
    assert set(queries.tolist()) == {1}
    with pytest.raises(TrainingError, match="no negative"):
        margin.sample(Pairs.of({0: everything}), features, 10, np.random.default_rng(0))


def test_epoch_reports_every_triple_and_learns(features: Features) -> None:
    train = replace(load_recipe("ssi-diagonal").train, triples=12_000, rates=(0.05,))
    learner = margin.MarginLearner(features, train, np.random.default_rng(0))
    learner.prepare()  # there is only one rate
    reports = list(learner.steps(0.0, 1.0))
    assert [count for count, _ in reports] == [5000, 5000, 2000]
    assert reports[-1][1] < reports[0][1] / 2
    learner = margin.MarginLearner(features, replace(train, triples=0), learner.rng)
    assert sum(count for count, _ in learner.steps(0.0, 1.0)) == len(features.pairs)


def test_shards_cover_every_triple(features: Features) -> None:
    """On several threads each triple is used once."""
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    triples = margin.sample(features.pairs, features, 1001, np.random.default_rng(0))
    p = random_parameters(features, 0.05)
    many = margin.run(features, p, triples, 0.0, update=False)
    numba.set_num_threads(1)
    np.testing.assert_array_equal(many, margin.run(features, p, triples, 0.0, update=False))
    assert (many > 0).any()


def test_the_demo_folder_is_a_valid_collection(tmp_path: Path) -> None:
    """The planted data has one vocabulary for each side, as the other tests assume."""
    collection = read_collection(write_planted(tmp_path))
    query_words = {w for q in collection.queries or [] for w in q.text.split()}
    document_words = {w for d in collection.documents for w in d.texts(["text"])["text"].split()}
    assert {w.rstrip("0123456789") for w in query_words & document_words} == {"decoy", "shared"}
