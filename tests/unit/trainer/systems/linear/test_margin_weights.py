"""Weights of judged pairs under the margin loss: how often each pair is drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.encoding import Int64
from fullrank.progress import Reporter
from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.pairs import Pairs
from fullrank_trainer.recipes.recipe import load_recipe
from fullrank_trainer.systems.linear.margin import sample
from fullrank_trainer.train import Trainer
from fullrank_trainer.training.loop import TrainingRun
from tests.planted import write_planted
from tests.weighted import judged_pairs, write_values

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
    pairs = Pairs.of(relevant, weights=values)
    pool = Pool(len(weights) + 5, np.full(len(weights), -1, np.int64))
    by_pair = {
        (query, int(document)): float(weight)
        for query, rows in relevant.items()
        for document, weight in zip(rows, values[query], strict=True)
    }
    return pairs, pool, by_pair


def drawn(pairs: Pairs, pool: Pool, count: int, seed: int = 1) -> Counter[Pair]:
    queries, documents, negatives = sample(pairs, pool, count, np.random.default_rng(seed))
    for query, negative in zip(queries.tolist(), negatives.tolist(), strict=True):
        assert negative not in pairs.relevant[query]
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
