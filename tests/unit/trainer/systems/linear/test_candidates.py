"""The candidates of a softmax step equal those that masks over all documents give, without arrays of that size."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from fullrank.encoding import Int64, Rows
from fullrank_trainer.collection import read_collection
from fullrank_trainer.features.corpus import count_collection
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.features.pairs import Lists, Pairs
from fullrank_trainer.recipes.settings import ModelSettings, TrainSettings
from fullrank_trainer.systems.linear import softmax
from fullrank_trainer.systems.linear.softmax import choose_candidates, places_of
from tests.planted import write_planted

SETTINGS = ModelSettings(
    latent="learned", dimension=4, diagonal="learned", bias=True, match="bm25", phrases=True
)
TRAIN = TrainSettings(loss="softmax", candidates=20, batch=4, word_dropout=0.2)


def dense_candidates(
    pairs: Pairs,
    queries: Int64,
    positives: Int64,
    pool: int | Int64,
    count: int,
    rng: np.random.Generator,
) -> Int64:
    """Mark candidates in a mask of all documents, and draw from the list of the whole pool."""
    rows = np.arange(pool) if isinstance(pool, int) else pool
    mask = np.zeros(max(rows.max(), pairs.documents.max()) + 1, np.bool_)
    mask[positives] = True
    judged = set(pairs.documents.tolist())
    for query in queries.tolist():
        found = pairs.passed_over.get(query, np.zeros(0, np.int64))
        mask[[row for row in found.tolist() if row in judged]] = True
    missing = min(count, len(rows)) - int(mask.sum())
    if missing > 0:
        mask[rng.choice(rows, missing, replace=False)] = True
    return np.flatnonzero(mask)


def dense_places(candidates: Int64, documents: Int64) -> Int64:
    """Look places up in an array of all documents."""
    place = np.full(max(candidates.max(initial=0), documents.max(initial=0)) + 1, -1)
    place[candidates] = np.arange(len(candidates))
    return np.array([place[row] if row >= 0 else -1 for row in documents.tolist()], np.int64)


def random_pairs(documents: int, rng: np.random.Generator) -> Pairs:
    """Judge a few documents of each of 40 queries, among the lower half; people passed over some of all."""
    relevant = {q: np.unique(rng.integers(0, documents // 2 + 1, 4)) for q in range(40)}
    passed_over = {q: np.unique(rng.integers(0, documents, 30)) for q in range(0, 40, 3)}
    return Pairs.of(relevant, passed_over=passed_over)


# Below 10,000 documents numpy draws one way, above it another way if it draws more than a fiftieth.
@pytest.mark.parametrize("documents", [12, 300, 12_000, 200_000])
@pytest.mark.parametrize("judged", [True, False], ids=["judged", "all"])
@pytest.mark.parametrize("passed_over", [True, False], ids=["passed-over", "plain"])
def test_candidates_equal_those_of_a_mask(documents: int, judged: bool, passed_over: bool) -> None:
    rng = np.random.default_rng(documents)
    pairs = random_pairs(documents, rng)
    if not passed_over:
        pairs = replace(pairs, passed_over=Lists.of({}))
    pool = pairs.documents if judged else documents
    for count in (2, 40, 100, 1000):
        queries = np.sort(rng.permutation(40)[:9])
        positives = np.concatenate([pairs.relevant[q] for q in queries.tolist()])
        found_rng, wanted_rng = (np.random.default_rng(count) for _ in range(2))
        found = choose_candidates(pairs, queries, positives, pool, count, found_rng)
        wanted = dense_candidates(pairs, queries, positives, pool, count, wanted_rng)
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == np.int64
        assert found_rng.bit_generator.state == wanted_rng.bit_generator.state


@pytest.mark.parametrize("stride", [1, 7, 1 << 20, 987])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 500])
def test_places_equal_those_of_an_array(count: int, stride: int) -> None:
    """Any number of candidates, close together and far apart, looked up by hits, misses and -1."""
    rng = np.random.default_rng(count)
    numbers = np.sort(rng.choice(2 * count + 1, count, replace=False))
    asked = rng.integers(-1, 2 * count + 2, 1000)
    found = places_of(numbers * stride, np.where(asked < 0, -1, asked * stride))
    np.testing.assert_array_equal(found, dense_places(numbers, asked))
    assert found.dtype == np.int64
    assert places_of(numbers, np.zeros(0, np.int64)).shape == (0,)


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Features:
    """Planted features, where queries have mates, people passed over some documents, and a few have no judgement."""
    folder = write_planted(tmp_path_factory.mktemp("candidates"))
    built = build_features(count_collection(read_collection(folder), processes=1), SETTINGS)
    rng, documents = np.random.default_rng(4), built.documents
    pairs = built.pairs.keep(lambda _, rows: rows < documents - 3)
    passed_over = {
        q: np.sort(rng.choice(documents, 3, replace=False)) for q in pairs.queries.tolist()
    }
    mates = rng.integers(-1, documents, len(built.mates))
    return replace(built, pairs=replace(pairs, passed_over=Lists.of(passed_over)), mates=mates)


def trained(features: Features, train: TrainSettings) -> list[bytes]:
    """Return the bits of two epochs."""
    learner = softmax.SoftmaxLearner(features, train, np.random.default_rng(3))
    for epoch in range(2):
        list(learner.steps(epoch / 2, 0.5))
    return bits(learner)


def bits(learner: softmax.SoftmaxLearner) -> list[bytes]:
    """Return those of all parameters and sums."""
    return [array.tobytes() for array in (learner.parameters() | learner.state()).values()]


@pytest.mark.parametrize("source", ["all", "judged"])
@pytest.mark.parametrize("most", [64, 2])
def test_a_training_equals_that_with_masks(
    features: Features, source: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, also if a query has more judged documents than a step may read."""
    monkeypatch.setattr(softmax, "_MAX_POSITIVES", most)
    train = replace(TRAIN, sampled_from=source)
    found = trained(features, train)
    with monkeypatch.context() as patch:
        patch.setattr(softmax, "choose_candidates", dense_candidates)
        patch.setattr(softmax, "places_of", dense_places)
        assert trained(features, train) == found
    assert trained(features, replace(train, candidates=21)) != found


@pytest.mark.parametrize("cold_dropout", [0.0, 0.5])
def test_an_epoch_equals_one_that_levels_biases_after_each_step(
    features: Features, cold_dropout: float
) -> None:
    """Bit for bit: unjudged documents need the median bias of the others only where something reads it."""
    train = replace(TRAIN, sampled_from="judged", cold_dropout=cold_dropout)
    learner = softmax.SoftmaxLearner(features, train, np.random.default_rng(3))
    unjudged = np.setdiff1d(np.arange(features.documents), features.pairs.documents)
    assert len(unjudged)
    bias = learner.values.bias
    for epoch in range(2):
        for _ in learner.steps(epoch / 2, 0.5):
            bias[unjudged] = np.median(bias[features.pairs.documents])
    assert bias[unjudged].all()
    assert bits(learner) == trained(features, train)


DOCUMENTS = 2_000_000


def with_empty_documents(features: Features, count: int) -> Features:
    """Append documents without text."""

    def extended(rows: Rows) -> Rows:
        more = np.full(count - len(rows), rows.indptr[-1])
        return Rows(np.append(rows.indptr, more), rows.indices, rows.values, rows.width)

    return replace(
        features,
        xd=replace(features.xd, words=extended(features.xd.words)),
        z=[extended(z) for z in features.z],
        document_phrases=extended(features.document_phrases),
    )


@pytest.mark.parametrize("source", ["all", "judged"])
def test_a_step_allocates_no_array_of_all_documents(features: Features, source: str) -> None:
    """Not even a bit for each of two million documents."""
    large = with_empty_documents(features, DOCUMENTS)
    train = replace(TRAIN, sampled_from=source)
    learner = softmax.SoftmaxLearner(large, train, np.random.default_rng(3))
    steps = learner.steps(0.0, 1.0)
    next(steps)  # compiles the kernels
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        next(steps)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < DOCUMENTS / 8
