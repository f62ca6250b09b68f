"""A blend: the score is the weighted sum, the weights come from validation, the last fit has all judgements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fullrank.errors import RecipeError, TrainingError
from fullrank.models.mixed import MixedModel
from fullrank.progress import Reporter
from fullrank.retrieval import Retriever
from tests.planted import write_planted, write_planted_links, write_qrels
from trainer.collection import read_collection
from trainer.recipes.recipe import Recipe, load_recipe
from trainer.systems.registry import validate
from trainer.train import Trainer

QUIET = Reporter(quiet=True)
FIELDED = "fielded sampled_from=judged dimension=4 epochs=2 batch=32 candidates=30"
CLICKED = "clicked dimension=4 members=2 epochs=2 batch=32 candidates=30"
TRANSLATION = "word-translation expanded=50 lambda1=0.3 lambda2=0.5"


def trainer_of(folder: Path, out: Path) -> Trainer:
    return Trainer(read_collection(folder), QUIET, out, "blend", 1, 1, resume=False)


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    return trainer_of(write_planted(tmp_path / "planted"), tmp_path)


def blend(*parts: str, more: tuple[str, ...] = ()) -> Recipe:
    return load_recipe("auto").override([f"blend.recipes={';'.join(parts)}", *more])


def test_the_score_is_the_weighted_sum_of_the_parts(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.systems.blend.system.choose", lambda _: np.array([0.2, 0.3, 0.5]))
    found = trainer.search(blend("bm25", TRANSLATION, CLICKED)).fitted
    model = found.model
    assert isinstance(model, MixedModel)
    assert list(model.weights) == [0.2, 0.3, 0.5]
    assert found.facts["weights"] == {"bm25": 0.2, "word-translation": 0.3, "clicked": 0.5}
    rows = np.arange(0, 60, 7)
    texts = [trainer.collection.queries[row].text for row in rows.tolist()]  # type: ignore[index]
    wanted = np.zeros((len(rows), len(found.documents)))
    places = model.places()
    for part, weight, place in zip(model.models, model.weights, places, strict=True):
        own = place.of(found.documents)
        alone = part.encode_queries(texts)
        wanted += weight * (alone.dense @ own.dense.T + (alone.sparse.csr() @ own.sparse.csr().T))
    wanted += found.documents.bias
    scores = Retriever(found.documents, model.scorer(found.documents)).scores(found.encode(rows))
    assert model.scorer(found.documents) is None
    np.testing.assert_allclose(scores, wanted, rtol=1e-4, atol=1e-4)


def test_the_table_has_warm_and_cold_lines_of_the_blend_and_the_baselines(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.training.holdout._FEWEST_QUERIES", 1)
    best = trainer.search(blend("bm25", CLICKED))
    table = trainer.compare(best)
    assert [(row.system, row.split) for row in table] == [
        (system, split) for split in ("valid", "cold") for system in ("auto", "bm25", "tfidf")
    ]
    value = {(row.system, row.split): row.measures["map"].mean for row in table}
    assert value["auto", "valid"] >= value["bm25", "valid"]
    assert best.fitted.facts["validation"] == [row.as_dict() for row in table]


def test_the_last_fit_has_every_judgement_and_all_members(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.systems.blend.system.choose", lambda _: np.array([0.5, 0.5]))
    found = trainer.search(blend("bm25", CLICKED)).fitted
    assert len(found.facts["parts"][-1]["members"]) == 2
    assert "members" not in found.facts["trials"][-1]
    # Biases of documents that the first fit had set aside are learned in the last one.
    judged = trainer.corpus.pairs.documents
    assert len(np.unique(found.documents.bias[judged])) > len(judged) // 2


def test_a_part_that_is_no_better_than_the_first_is_left_out(trainer: Trainer) -> None:
    noise = "fielded dimension=2 epochs=1 rate=0 diagonal_rate=0 bias_rate=0 init=100"
    found = trainer.search(blend("word-translation expanded=50", noise)).fitted
    assert list(found.facts["weights"]) == ["word-translation"]
    assert not isinstance(found.model, MixedModel)


def test_documents_that_are_the_queries_have_a_list_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.systems.blend.system.choose", lambda _: np.array([0.5, 0.5]))
    trainer = trainer_of(write_planted_links(tmp_path / "links"), tmp_path)
    linked = f"blend.linked=tfidf;{FIELDED}"
    found = trainer.search(blend("bm25", TRANSLATION, more=(linked,))).fitted
    assert list(found.facts["weights"]) == ["tfidf", "fielded"]


def test_a_blend_needs_judgements(tmp_path: Path) -> None:
    folder = write_planted(tmp_path / "c", splits=["test"])
    write_qrels(folder / "qrels" / "train.tsv", [])
    with pytest.raises(TrainingError, match="--recipe bm25"):
        trainer_of(folder, tmp_path).search(load_recipe("auto"))


def test_a_cold_document_is_encoded_like_one_that_is_added_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document that nobody clicked ranks the same in the bundle and sent to the service afterwards."""
    monkeypatch.setattr(
        "trainer.systems.blend.system.choose", lambda _: np.array([0.1, 0.3, 0.2, 0.4])
    )
    folder = write_planted(tmp_path / "c")
    for split in ("train", "valid"):
        lines = (folder / "qrels" / f"{split}.tsv").read_text().splitlines()[1:]
        pairs = [(query, document) for query, document, _ in (line.split("\t") for line in lines)]
        write_qrels(folder / "qrels" / f"{split}.tsv", [p for p in pairs if p[1][:2] != "d0"])
    trainer = trainer_of(folder, tmp_path)
    found = trainer.search(blend("bm25", TRANSLATION, FIELDED, CLICKED)).fitted
    documents = trainer.collection.documents
    cold = np.array([i for i, document in enumerate(documents) if document.id.startswith("d0")])
    assert len(cold) == 6
    sources = trainer.corpus.sources
    later = found.model.encode_documents([documents[i].texts(sources) for i in cold.tolist()])
    stored = found.documents.take(cold)
    np.testing.assert_allclose(later.dense, stored.dense, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        later.sparse.csr().toarray(), stored.sparse.csr().toarray(), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(later.bias, stored.bias, rtol=1e-5)
    assert stored.bias.any()


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (("bm25",), "name two recipes or more"),
        (("bm25", "auto"), "auto is a mix or a search itself"),
        (("bm25", "query-expansion trials="), "not linear in the query"),
        (("bm25", "absent"), "no recipe 'absent'"),
        (("bm25", "bltm expanded=5"), r"language\.expanded: topics"),
    ],
)
def test_recipes_that_cannot_be_blended_are_refused(parts: tuple[str, ...], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        validate(blend(*parts))
