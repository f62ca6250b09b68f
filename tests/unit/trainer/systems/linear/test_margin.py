"""The margin loss: the papers' update computed densely, finite differences, and the choice of the rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import TrainingError
from fullrank.progress import Reporter
from fullrank.storage.encoding import Int64
from fullrank_trainer.collection import read_collection
from fullrank_trainer.collection.pairs import Pairs
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.recipes.recipe import load_recipe
from fullrank_trainer.recipes.settings import ModelSettings
from fullrank_trainer.systems.linear import margin
from fullrank_trainer.systems.linear.margin import sample
from fullrank_trainer.systems.linear.parameters import Parameters
from fullrank_trainer.train import Trainer
from fullrank_trainer.training.loop import TrainingRun
from tests.planted import write_planted, write_planted_links
from tests.weighted import judged_pairs, write_values

pytestmark = pytest.mark.usefixtures("one_thread")

FULL = ModelSettings(latent="learned", dimension=5, diagonal="learned", bias=True, fields="each")


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
    columns = margin.sample(
        features.pairs, features.documents, features.mates, count, np.random.default_rng(2)
    )
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
    assert margin.run(features, p, columns, 0.0)[0] > 0
    for (name, array), (_, kept) in zip(p.arrays(), before.arrays(), strict=True):
        np.testing.assert_array_equal(array, kept, err_msg=name)


def test_rate_is_chosen_by_training_error(features: Features) -> None:
    """The least mean hinge over the trial's later half; a diverging rate is not chosen; the start does not change."""
    rates = (1e-6, 0.2, 1e30)
    p = random_parameters(features, 0.05)
    before = p.copy()
    errors = {}
    triples = margin.sample(
        features.pairs, features.documents, features.mates, 3000, np.random.default_rng(1)
    )
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
    queries, positives, negatives = margin.sample(
        pairs, features.documents, features.mates, 3000, np.random.default_rng(0)
    )
    assert len(queries) == 3000 > len(pairs)
    drawn = set()
    for q, d, n in zip(queries.tolist(), positives.tolist(), negatives.tolist(), strict=True):
        assert d in pairs[q]
        assert n not in pairs[q]
        assert n != features.mates[q]
        drawn.add((q, d))
    assert len(drawn) == len(pairs)  # every pair comes once before any is drawn again
    assert len(set(negatives.tolist())) == features.documents


def test_queries_without_a_negative_are_skipped(features: Features) -> None:
    """Drawing a negative for such a query would never end."""
    everything = np.arange(features.documents)
    pairs = Pairs.from_lists({0: everything, 1: everything[:2]})
    queries, _, _ = margin.sample(
        pairs, features.documents, features.mates, 10, np.random.default_rng(0)
    )
    assert set(queries.tolist()) == {1}
    with pytest.raises(TrainingError, match="no negative"):
        margin.sample(
            Pairs.from_lists({0: everything}),
            features.documents,
            features.mates,
            10,
            np.random.default_rng(0),
        )


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
    triples = margin.sample(
        features.pairs, features.documents, features.mates, 1001, np.random.default_rng(0)
    )
    p = random_parameters(features, 0.05)
    many = margin.run(features, p, triples, 0.0)
    numba.set_num_threads(1)
    np.testing.assert_array_equal(many, margin.run(features, p, triples, 0.0))
    assert (many > 0).any()


Pair = tuple[int, int]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


@dataclass(frozen=True)
class Pool:
    """Documents without mates."""

    documents: int
    mates: Int64


def weighed(weights: Sequence[float]) -> tuple[Pairs, Pool, dict[Pair, float]]:
    """Queries with one to three answers; the weight of each pair."""
    relevant: dict[int, Int64] = {}
    found: dict[int, list[float]] = {}
    for i, weight in enumerate(weights):
        query = i // 3 if i % 2 else i
        relevant[query] = np.append(relevant.get(query, np.zeros(0, np.int64)), i)
        found.setdefault(query, []).append(weight)
    values = {query: np.array(row, np.float32) for query, row in found.items()}
    pairs = Pairs.from_lists(relevant, weights=np.concatenate([*values.values()]))
    pool = Pool(len(weights) + 5, np.full(len(weights), -1, np.int64))
    by_pair = {
        (query, int(document)): float(weight)
        for query, rows in relevant.items()
        for document, weight in zip(rows, values[query], strict=True)
    }
    return pairs, pool, by_pair


def drawn(pairs: Pairs, pool: Pool, count: int, seed: int = 1) -> Counter[Pair]:
    queries, documents, negatives = sample(
        pairs, pool.documents, pool.mates, count, np.random.default_rng(seed)
    )
    for query, negative in zip(queries.tolist(), negatives.tolist(), strict=True):
        assert negative not in pairs[query]
    return Counter(zip(queries.tolist(), documents.tolist(), strict=True))


@given(
    weights=st.lists(st.floats(0.0625, 50, width=32), min_size=2, max_size=12, unique=True),
    count=st.integers(1, 60),
    seed=st.integers(0, 99),
)
def test_pairs_come_in_proportion_to_their_weights(
    weights: list[float], count: int, seed: int
) -> None:
    """Each comes count · w / Σ w times, rounded up or down."""
    pairs, pool, by_pair = weighed(weights)
    found = drawn(pairs, pool, count, seed)
    assert sum(found.values()) == count
    for pair, weight in by_pair.items():
        share = count * weight / sum(by_pair.values())
        assert np.floor(share - 1e-6) <= found[pair] <= np.ceil(share + 1e-6)


def test_fractions_of_a_share_come_as_often_as_they_should() -> None:
    """Over many epochs a pair of weight w comes w / Σ w of the time."""
    pairs, pool, by_pair = weighed([0.3, 1.1, 2.6, 0.05])
    total: Counter[Pair] = Counter()
    for seed in range(3000):
        total += drawn(pairs, pool, 3, seed)
    for pair, weight in by_pair.items():
        assert total[pair] / 9000 == pytest.approx(weight / 4.05, abs=0.012)


def test_weight_two_is_the_pair_twice() -> None:
    pairs, pool, by_pair = weighed([1 + i % 3 for i in range(20)])
    once = int(sum(by_pair.values()))
    assert drawn(pairs, pool, once) == by_pair
    assert drawn(pairs, pool, 2 * once) == {pair: 2 * w for pair, w in by_pair.items()}


@pytest.mark.parametrize("recipe", ["ssi-diagonal", "hash-kernels"])
def test_weights_reach_training_and_equal_ones_keep_its_bits(recipe: str, tmp_path: Path) -> None:
    numba.set_num_threads(1)
    found: list[np.ndarray] = []
    for weigh in (None, lambda _: 2.5, lambda i: 1.0 + 9 * (i % 2)):
        folder = write_planted(tmp_path / str(len(found)))
        if weigh is not None:
            names = judged_pairs(folder, "train")
            values = {pair: weigh(i) for i, pair in enumerate(names)}
            write_values(folder, "weights", "train", values)
        trainer = Trainer(read_collection(folder), Reporter(quiet=True), tmp_path, "x", 1, 1, False)
        found.append(_fit(trainer, recipe, tmp_path))
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0] - found[2]).max() > 1e-3


def _fit(trainer: Trainer, name: str, folder: Path) -> np.ndarray:
    """Return the dense and lexical weights of the encoded queries."""
    recipe = load_recipe(name).override(["epochs=2", "triples=300", "trial=200"])
    run = TrainingRun(recipe, None, 1, "", Reporter(quiet=True), folder / "checkpoint.npz", False)
    fitted = trainer.context.fit(recipe, run)
    queries = fitted.encode(np.arange(20))
    documents = fitted.documents.sparse.csr().toarray()
    return np.concatenate(
        [queries.dense.ravel(), queries.sparse.csr().toarray().ravel(), documents.ravel()]
    )
