"""A blend that goes on from a bundle: the same parts and weights, and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fullrank.bundle import Bundle, open_bundle
from fullrank.errors import TrainingError
from fullrank.models.mixed import Lift, MixedModel
from fullrank.progress import Reporter
from fullrank_trainer.collection import read_collection
from fullrank_trainer.collection.store import Query
from fullrank_trainer.evaluation.evaluate import evaluate, judge, measure_rankings
from fullrank_trainer.systems.blend_weights import Scored
from fullrank_trainer.systems.linear import warm as going_on
from fullrank_trainer.train import train
from fullrank_trainer.training.warm import WarmStart
from tests.planted import write_planted, write_planted_links

SMALL = "dimension=5 epochs=2 batch=32 candidates=30 sampled_from=judged"
PARTS = f"bm25;word-translation expanded=50 stem=auto;fielded {SMALL} members=2;clicked {SMALL} members=1"
WEIGHTS = np.array([0.2, 0.0, 0.5, 0.3])


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("planted"))


def trained(planted: Path, out: Path, start: Path | None = None, *overrides: str) -> Bundle:
    options = [] if start is not None else [f"blend.recipes={PARTS}", "auto.seconds=0"]
    result = train(
        planted, out, "mine", overrides=[*options, *overrides], start=start, threads=1,
        reporter=Reporter(quiet=True),
    )  # fmt: skip
    return open_bundle(result.path)


@pytest.fixture
def _weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation of the planted collection would choose one part."""

    def choose(_: Scored) -> np.ndarray:
        return WEIGHTS

    monkeypatch.setattr("fullrank_trainer.systems.blend.choose", choose)
    monkeypatch.setattr("fullrank_trainer.systems.blend.lift_unjudged", lambda *_: Lift(1.5, 0.25))
    monkeypatch.setattr("fullrank_trainer.training.validation._FEWEST_QUERIES", 1)


@pytest.mark.usefixtures("_weights")
def test_a_blend_goes_on_with_its_parts_and_weights(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At rates of zero the parts are the same, and the sum of their biases is that of the bundle."""
    first = trained(planted, tmp_path)
    assert isinstance(first.model, MixedModel)
    monkeypatch.setattr(going_on, "RATE", 0.0)
    second = trained(planted, tmp_path, first.path)
    card = second.card["training"]
    assert card["weights"] == {"bm25": 0.2, "fielded": 0.5, "clicked": 0.3}
    assert (card["scaled"], card["raised"], card["warm"]) == (1.5, 0.25, first.version)
    assert isinstance(second.model, MixedModel)
    assert list(second.model.weights) == list(first.model.weights)
    assert second.model.n_dense == first.model.n_dense == 15
    assert list(second.documents.ids) == list(first.documents.ids)
    np.testing.assert_allclose(second.encoded.bias, first.encoded.bias, atol=1e-5)
    np.testing.assert_allclose(second.encoded.whole().dense, first.encoded.whole().dense, atol=1e-4)
    texts = ["ask0a decoy1", "shared3 name2n1"]
    for one, other in zip(first.encode(texts).dense, second.encode(texts).dense, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.usefixtures("_weights")
def test_biases_are_shared_out_and_documents_without_a_judgement_are_not_raised_twice(
    planted: Path, tmp_path: Path
) -> None:
    (planted / "qrels" / "train.tsv").write_text(
        "\n".join(
            line
            for line in (planted / "qrels" / "train.tsv").read_text("utf-8").splitlines()
            if "\td1-" not in line
        ),
        "utf-8",
    )
    first = trained(planted, tmp_path)
    starts = WarmStart.of(first).parts([False, True, True])
    total = 0.5 * starts[1].bias + 0.3 * starts[2].bias
    unjudged = np.array([id.startswith("d1-") for id in first.documents.ids])
    np.testing.assert_allclose(total + 0.25 * unjudged, first.encoded.bias, atol=1e-5)
    assert not starts[0].bias.any()


@pytest.mark.usefixtures("_weights")
def test_queries_that_a_blend_has_learned_do_not_measure_it(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_trainer.systems.blend.CALIBRATING", 1)
    first = trained(planted, tmp_path, None, "blend.learn_valid=true")
    assert first.card["table"]
    second = trained(planted, tmp_path, first.path)
    assert second.card["recipe"]["blend"]["learn_valid"]
    assert second.card["table"] == []


@pytest.mark.usefixtures("_weights")
def test_another_sum_is_refused(planted: Path, tmp_path: Path) -> None:
    first = trained(planted, tmp_path)
    with pytest.raises(TrainingError, match="was trained with other settings of blend"):
        trained(planted, tmp_path, first.path, "blend.recipes=bm25;word-translation expanded=9")


def test_weights_of_typed_text_stay_and_evaluation_asks_with_those_of_its_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_trainer.systems.blend.choose", lambda _: np.array([0.1, 0.9]))
    monkeypatch.setattr(
        "fullrank_trainer.systems.blend_weights.choose", lambda _: np.array([0.7, 0.2, 0.1])
    )
    monkeypatch.setattr(going_on, "RATE", 0.0)
    links = write_planted_links(tmp_path / "links")
    recipe = (
        f"blend.linked=bm25;fielded {SMALL}", "auto.seconds=0", "blend.linked_rates=",
        "blend.mentions=false", "blend.clicks=false",
    )  # fmt: skip
    first = trained(links, tmp_path, None, *recipe)
    second = trained(links, tmp_path, first.path)
    for bundle in (first, second):
        model = bundle.model
        assert isinstance(model, MixedModel)
        np.testing.assert_allclose(model.weights, [0.7, 0.2])
        np.testing.assert_allclose(model.for_documents.weights, [0.01, 0.09])
        assert bundle.card["training"]["typed"]["scale"] == 0.1
    assert isinstance(model, MixedModel)
    collection = read_collection(links)
    asked = evaluate(second, collection, "valid", ["train"])
    rows = [second.documents.row(id) for id in asked.query_ids]
    texts = {
        id: model.query_text(second.documents.fields(i))
        for id, i in zip(asked.query_ids, rows, strict=True)
    }
    queries = [Query(id, texts.get(id, "")) for id in collection.document_ids]
    typed = evaluate(second, replace(collection, queries=queries), "valid", ["train"])
    judgements, _ = judge(collection, "valid", ["train"])
    for found, encoder in ((asked, model.for_documents), (typed, model)):
        ranked = measure_rankings(
            second.retriever,
            encoder.encode_queries([*texts.values()]),
            judgements,
            documents=len(second.documents),
        )
        np.testing.assert_allclose(found.per_query["map"], ranked["map"])
    assert asked.measures["map"].mean != typed.measures["map"].mean
