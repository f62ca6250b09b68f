"""The second stage: its order, its explanation, its stored form."""

from __future__ import annotations

import numpy as np
import pytest

from fullrank.rerank.features import FirstStage
from fullrank.rerank.stage import SecondStage
from fullrank.rerank.trees import Trees
from tests.bundles import CORPUS
from tests.reranking import stage_of

DOCUMENTS = sorted(CORPUS, key=lambda document: document.id)


def first_stage(count: int) -> FirstStage:
    scores = np.linspace(3, 1, count)
    return FirstStage(scores, scores / 2, scores / 2, np.zeros(count))


def test_documents_are_ordered_by_the_second_score() -> None:
    stage, facts = stage_of(DOCUMENTS)
    found = stage.order("copy files", first_stage(len(facts)), facts)
    ordered = found.scores[found.order]
    assert np.all(np.diff(ordered) <= 0)
    assert sorted(found.order.tolist()) == list(range(len(facts)))
    assert found.order.tolist() != sorted(found.order.tolist())
    assert found.scores.tolist() == stage.trees.predict(found.features).tolist()


def test_a_document_that_nobody_chose_keeps_its_place() -> None:
    clicks = np.array([3, 0, 1, 0, 0, 2, 5], np.int32)
    stage, facts = stage_of(DOCUMENTS, clicks=clicks)
    found = stage.order("copy files", first_stage(len(facts)), facts)
    places = found.order.tolist()
    assert [places[i] for i in (1, 3, 4)] == [1, 3, 4]
    chosen = sorted((0, 2, 5, 6), key=lambda i: -found.scores[i])
    assert [places[i] for i in (0, 2, 5, 6)] == chosen != [0, 2, 5, 6]
    again = SecondStage.from_parts(stage.config(), stage.arrays())
    assert again.order("copy files", first_stage(len(facts)), facts).order.tolist() == places


def test_a_stage_of_an_older_bundle_moves_all_documents() -> None:
    stage, facts = stage_of(DOCUMENTS, clicks=np.zeros(len(DOCUMENTS), np.int32))
    config = stage.config()
    del config["moves_all"]
    found = SecondStage.from_parts(config, stage.arrays())
    order = found.order("copy files", first_stage(len(facts)), facts).order.tolist()
    assert (
        order
        == np.argsort(
            -found.trees.predict(found.features("copy files", first_stage(len(facts)), facts)),
            kind="stable",
        ).tolist()
        != list(range(len(facts)))
    )


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_a_ranking_that_was_merged_is_ordered_as_a_whole_one(pieces: int) -> None:
    """Bit for bit, wherever the pieces have their documents."""
    stage, facts = stage_of(DOCUMENTS, seed=3)
    first = first_stage(len(facts))
    whole = stage.order("copy files", first, facts)
    owner = np.random.default_rng(pieces).integers(0, pieces, len(facts))
    features = np.empty_like(whole.features)
    for piece in range(pieces):
        own = np.flatnonzero(owner == piece)
        part = FirstStage(*(column[own] for column in first))
        features[own] = stage.features("copy files", part, facts.take(own))
    found = stage.order_merged(features, first.scores)
    assert found.features.tobytes() == whole.features.tobytes()
    assert found.scores.tobytes() == whole.scores.tobytes()
    assert found.order.tolist() == whole.order.tolist()


def test_equal_second_scores_keep_the_first_order() -> None:
    stage, facts = stage_of(DOCUMENTS, trees=Trees.empty())
    found = stage.order("copy files", first_stage(len(facts)), facts)
    assert found.order.tolist() == list(range(len(facts)))


def test_contributions_add_up_to_the_second_score() -> None:
    stage, facts = stage_of(DOCUMENTS)
    found = stage.order("copy files", first_stage(len(facts)), facts)
    for row, score in zip(found.features, found.scores.tolist(), strict=True):
        why = stage.explain(row)
        total = why.base + sum(feature.contribution for feature in why.features)
        assert why.score == pytest.approx(score, abs=1e-12)
        assert total == pytest.approx(score, abs=1e-12)
        sizes = [abs(feature.contribution) for feature in why.features]
        assert sizes == sorted(sizes, reverse=True)
        values = dict(zip(stage.names, row.tolist(), strict=True))
        assert all(feature.value == values[feature.feature] for feature in why.features)


def test_a_stored_stage_gives_the_same_order() -> None:
    stage, facts = stage_of(DOCUMENTS, of_documents=True)
    again = SecondStage.from_parts(stage.config(), stage.arrays())
    first = first_stage(len(facts))
    for text in ("copy files", "日本", ""):
        a, b = (s.order(text, first, facts) for s in (stage, again))
        assert a.scores.tolist() == b.scores.tolist()
        assert a.features.tolist() == b.features.tolist()
    assert again.of_documents
    assert again.config() == stage.config()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"depth": 50}, "another release"),
        ({"features": ["score"]}, "another release"),
        ({"mean_lengths": [1.0]}, "1 mean lengths of 2 fields"),
    ],
)
def test_settings_that_do_not_fit_are_refused(change: dict[str, object], reason: str) -> None:
    stage, _ = stage_of(DOCUMENTS)
    with pytest.raises(ValueError, match=reason):
        SecondStage.from_parts({**stage.config(), **change}, stage.arrays())


def test_words_that_do_not_ascend_are_refused() -> None:
    stage, _ = stage_of(DOCUMENTS)
    arrays = stage.arrays()
    backwards = {**arrays, "words.numbers": arrays["words.numbers"][::-1]}
    with pytest.raises(ValueError, match="ascend"):
        SecondStage.from_parts(stage.config(), backwards)


def test_added_documents_have_no_clicks() -> None:
    stage, _ = stage_of(DOCUMENTS)
    facts = stage.facts([{"title": "red", "date": "2024-03-01"}])
    assert facts.clicks.tolist() == [0]
    assert facts.days.tolist() == [19783]
