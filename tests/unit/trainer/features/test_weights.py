"""Weights of judgements reach the pairs that systems learn from, and the measures of validation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fullrank.measures import estimate
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import judge, relative_weights
from fullrank_trainer.features.corpus import Corpus, count_collection
from fullrank_trainer.features.matrices import build_features
from fullrank_trainer.recipes.settings import ModelSettings
from fullrank_trainer.training.validation import hold_out
from tests.planted import write_planted
from tests.weighted import judged_pairs, write_values

PLACE = dict[tuple[str, str], float]


@pytest.fixture
def weights(tmp_path: Path) -> PLACE:
    write_planted(tmp_path)
    return {pair: 0.25 * (i + 1) for i, pair in enumerate(judged_pairs(tmp_path, "train"))}


def counted(folder: Path) -> Corpus:
    return count_collection(read_collection(folder, strict=True), processes=1)


def by_name(corpus: Corpus, values: np.ndarray) -> PLACE:
    names = corpus.collection.document_ids
    return {
        (corpus.query_ids[query], names[row]): value
        for query, row, value in zip(
            corpus.pairs.relevant.owners.tolist(),
            corpus.pairs.relevant.entries.tolist(),
            values.tolist(),
            strict=True,
        )
    }


def test_pairs_have_the_weights_of_the_file(tmp_path: Path, weights: PLACE) -> None:
    absent = next(iter(weights))
    write_values(tmp_path, "weights", "train", {p: w for p, w in weights.items() if p != absent})
    corpus = counted(tmp_path)
    assert corpus.pairs.weights is not None
    assert by_name(corpus, corpus.pairs.weights) == {**weights, absent: 1.0}
    assert corpus.pairs.shared is None
    assert corpus.pairs.clicked is corpus.pairs.relevant
    query, rows = next((q, r) for q, r in corpus.pairs.relevant.items() if len(r) > 1)
    found = corpus.pairs.weight_of(query, rows[1:])
    np.testing.assert_array_equal(
        found, corpus.pairs.weights[corpus.pairs.relevant.slice_of(query)][1:]
    )


def test_pairs_without_files_have_no_weights(tmp_path: Path, weights: PLACE) -> None:
    pairs = counted(tmp_path).pairs
    assert pairs.weights is None
    assert pairs.shared is None


def test_pairs_that_are_held_out_keep_the_weights_of_the_others(
    tmp_path: Path, weights: PLACE, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_trainer.training.validation._MOST_CLICKS", 1_000_000)
    write_values(tmp_path, "weights", "train", weights)
    held = hold_out(counted(tmp_path), 0)
    pairs = held.corpus.pairs
    assert 0 < len(pairs) < len(weights)
    assert pairs.weights is not None
    ids = held.corpus.collection.document_ids
    taken: PLACE = {}
    for judgement in () if held.known is None else held.known.judgements:
        [row] = judgement.relevant.tolist()
        taken[judgement.query, ids[row]] = judgement.weight
    for pair, weight in by_name(held.corpus, pairs.weights).items():
        assert weight + taken.get(pair, 0.0) == weights[pair]
    assert held.cold is not None
    shares: dict[str, dict[str, float]] = {}
    for judgement in held.cold.judgements:
        [row] = judgement.relevant.tolist()
        shares.setdefault(judgement.query, {})[ids[row]] = judgement.weight
    for query, found in shares.items():
        total = sum(weights[query, name] for name in found)
        assert found == pytest.approx({name: weights[query, name] / total for name in found})


def test_what_one_person_clicked_is_no_clicked_text(tmp_path: Path, weights: PLACE) -> None:
    people: PLACE = {pair: 1 + i % 3 for i, pair in enumerate(weights)}
    write_values(tmp_path, "people", "train", people)
    corpus = counted(tmp_path)
    features = build_features(corpus, ModelSettings(clicked="on"))
    assert features.clicks is not None
    found = features.clicks.judged.toarray()
    names = corpus.collection.document_ids
    for (query, document), count in people.items():
        cell = found[names.index(document), corpus.query_ids.index(query)]
        assert cell == (count >= 2)
    everything = build_features(
        replace(corpus, pairs=replace(corpus.pairs, shared=None)), ModelSettings(clicked="on")
    )
    assert everything.clicks is not None
    assert everything.clicks.judged.sum() == len(people)


def test_what_one_person_typed_stays_out_of_a_bundle(tmp_path: Path, weights: PLACE) -> None:
    assert counted(tmp_path).public_queries == counted(tmp_path).query_ids
    alone = {*sorted({query for query, _ in weights})[::3]}
    people: PLACE = {pair: 1.0 if pair[0] in alone else 2.0 for pair in weights}
    write_values(tmp_path, "people", "train", people)
    found = set(counted(tmp_path).public_queries)
    assert found == {query for query, _ in weights} - alone
    assert found


def test_validation_is_weighted(tmp_path: Path, weights: PLACE) -> None:
    pairs = judged_pairs(tmp_path, "valid")
    write_values(tmp_path, "weights", "valid", {pair: 1.0 + i for i, pair in enumerate(pairs)})
    judgements, _ = judge(read_collection(tmp_path), "valid", ["train"])
    relative = relative_weights(judgements)
    assert relative is not None
    total = {
        j.query: sum(1.0 + i for i, p in enumerate(pairs) if p[0] == j.query) for j in judgements
    }
    assert [j.weight for j in judgements] == [*total.values()]
    np.testing.assert_allclose(relative, np.array([*total.values()]) / np.mean([*total.values()]))


def test_a_weighted_mean_and_its_error() -> None:
    rng = np.random.default_rng(1)
    values = rng.random(50)
    plain, ones = estimate(values), estimate(values, np.ones(50))
    assert (ones.mean, ones.standard_error) == pytest.approx((plain.mean, plain.standard_error))
    weights = rng.uniform(0.1, 2, 50)
    found = estimate(values, weights / weights.mean())
    assert found.mean == pytest.approx(np.average(values, weights=weights))
    # The error is the scatter of the mean over samples of queries and their weights.
    rows = rng.integers(50, size=(4000, 50))
    means = [np.average(values[r], weights=weights[r]) for r in rows]
    assert found.standard_error == pytest.approx(np.std(means), rel=0.05)
    assert np.isnan(estimate(values[:1], np.ones(1)).standard_error)
