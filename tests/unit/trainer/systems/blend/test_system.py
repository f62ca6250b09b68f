"""A blend: the score is the weighted sum, the weights come from validation, the last fit has all judgements."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.bundle import Bundle, open_bundle
from fullrank.errors import RecipeError, TrainingError
from fullrank.models.mixed import NO_LIFT, Lift, MixedModel
from fullrank.progress import Reporter
from fullrank.retrieval import Retriever
from fullrank_trainer.collection import read_collection
from fullrank_trainer.collection.store import Query
from fullrank_trainer.commands.evaluate import evaluate as measure
from fullrank_trainer.evaluation.evaluate import evaluate, judge, measure_rankings
from fullrank_trainer.features.matrices import Features
from fullrank_trainer.promotion.gates import common_gates
from fullrank_trainer.recipes.recipe import Recipe, load_recipe, validate
from fullrank_trainer.recipes.settings import ModelSettings
from fullrank_trainer.systems.linear import warm as going_on
from fullrank_trainer.systems.mixed import load_part
from fullrank_trainer.train import Trainer, train
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.loop import Diverged, Learner, TrainingRun
from fullrank_trainer.training.warm import WarmStart
from tests.planted import write_planted, write_planted_links, write_qrels
from tests.weighted import judged_pairs, write_values

QUIET = Reporter(quiet=True)
FIELDED = "fielded sampled_from=judged dimension=4 epochs=2 batch=32 candidates=30"
CLICKED = "clicked dimension=4 members=2 epochs=2 batch=32 candidates=30"
ONE_RATE = "blend.linked_rates="
TRANSLATION = "word-translation expanded=50 lambda1=0.3 lambda2=0.5"


def trainer_of(folder: Path, out: Path) -> Trainer:
    return Trainer(read_collection(folder), QUIET, out, "blend", 1, 1, resume=False)


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    return trainer_of(write_planted(tmp_path / "planted"), tmp_path)


def blend(*parts: str, more: tuple[str, ...] = ()) -> Recipe:
    given = f"blend.recipes={';'.join(parts)}", "blend.mentions=false", "blend.clicks=false"
    return load_recipe("auto").override([*given, *more])


def test_the_score_is_the_weighted_sum_of_the_parts(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "fullrank_trainer.systems.blend.choose", lambda _: np.array([0.2, 0.3, 0.5])
    )
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
    monkeypatch.setattr("fullrank_trainer.training.validation._FEWEST_QUERIES", 1)
    best = trainer.search(blend("bm25", CLICKED))
    table = trainer.compare(best)
    assert [(row.system, row.split) for row in table] == [
        (system, split) for split in ("new", "cold") for system in ("auto", "tfidf", "bm25")
    ]
    value = {(row.system, row.split): row.measures["map"].mean for row in table}
    assert value["auto", "new"] >= value["bm25", "new"]
    assert best.fitted.facts["validation"] == [row.as_dict() for row in table]


def test_the_last_fit_has_every_judgement_and_all_members(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_trainer.systems.blend.choose", lambda _: np.array([0.5, 0.5]))
    found = trainer.search(blend("bm25", CLICKED)).fitted
    assert len(found.facts["parts"][-1]["members"]) == 2
    assert "members" not in found.facts["trials"][-1]
    # Biases of documents that the first fit had set aside are learned in the last one.
    judged = trainer.corpus.pairs.documents
    assert len(np.unique(found.documents.bias[judged])) > len(judged) // 2


def test_the_plan_is_said_and_what_the_time_limit_left_out(tmp_path: Path) -> None:
    said = StringIO()
    source = read_collection(write_planted(tmp_path / "planted"))
    trainer = Trainer(source, Reporter(said), tmp_path, "blend", 1, 1, resume=False)
    part = "clicked dimension=4 members=2 epochs=400 patience=400 batch=32 candidates=30"
    noise = "fielded dimension=2 epochs=1 rate=0 diagonal_rate=0 bias_rate=0 init=100"
    found = trainer.search(blend(noise, part, more=("auto.seconds=1",))).fitted
    assert "clicked 2 fits of 400 epochs" in said.getvalue()
    (left_out,) = found.facts["left_out"]
    assert left_out.startswith("clicked ")
    assert "of 400 epochs of the trial" in left_out
    assert "warning: the time limit of 1 s left out clicked" in " ".join(said.getvalue().split())
    whole = trainer.search(blend(noise, CLICKED, more=("auto.seconds=0",))).fitted
    assert whole.facts["left_out"] == []


def test_a_part_that_is_no_better_than_the_first_is_left_out(trainer: Trainer) -> None:
    noise = "fielded dimension=2 epochs=1 rate=0 diagonal_rate=0 bias_rate=0 init=100"
    found = trainer.search(blend("word-translation expanded=50", noise)).fitted
    assert list(found.facts["weights"]) == ["word-translation"]
    assert not isinstance(found.model, MixedModel)


@pytest.fixture
def linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trainer:
    """A trainer whose queries are documents, and which gives both parts of a blend the same weight."""
    monkeypatch.setattr("fullrank_trainer.systems.blend.choose", lambda _: np.array([0.5, 0.5]))
    return trainer_of(write_planted_links(tmp_path / "links"), tmp_path)


def test_documents_that_are_the_queries_have_a_list_of_their_own(linked: Trainer) -> None:
    parts = f"blend.linked=tfidf;{FIELDED}"
    found = linked.search(blend("bm25", TRANSLATION, more=(parts,))).fitted
    assert list(found.facts["weights"]) == ["tfidf", "fielded"]


def test_typed_text_has_weights_of_its_own(
    linked: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it ranks by BM25 alone, and documents as queries rank by the learned part with its biases."""
    monkeypatch.setattr("fullrank_trainer.systems.blend.choose", lambda _: np.array([0.0, 1.0]))
    monkeypatch.setattr(
        "fullrank_trainer.systems.blend_weights.choose", lambda _: np.array([1.0, 0.0, 0.0])
    )
    parts = f"blend.linked=bm25;{FIELDED} rate=0.3"
    best = linked.search(blend("bm25", TRANSLATION, more=(parts, ONE_RATE)))
    found, model = best.fitted, best.fitted.model
    assert isinstance(model, MixedModel)
    assert found.facts["weights"] == {"bm25": 0.0, "fielded": 1.0}
    assert found.facts["typed"]["weights"] == {"bm25": 1.0, "fielded": 0.0}
    texts = ["t1w3 t1w5", str(linked.collection.documents[7].fields["text"])]
    scale, everything = found.facts["typed"]["scale"], found.documents
    for asked, part, factor in ((model, 0, 1.0), (model.for_documents, 1, scale)):
        scores = Retriever(everything).scores(asked.encode_queries(texts)) - everything.bias
        own, documents = (
            model.models[part].encode_queries(texts),
            model.places()[part].of(everything),
        )
        wanted = own.dense @ documents.dense.T + own.sparse.csr() @ documents.sparse.csr().T
        np.testing.assert_allclose(scores, factor * wanted, rtol=1e-3, atol=1e-5)
    assert 0 < np.std(everything.bias) < 0.01 * np.std(scores / scale)
    columns = {row.split: row.queries for row in linked.compare(best)}
    kinds = found.facts["typed"]["queries"]
    assert columns["typed"] == sum(kinds.values())
    assert {kind: columns[f"typed {kind}"] for kind in kinds} == kinds


def test_a_trial_that_time_cut_short_is_continued_with_all_judgements(linked: Trainer) -> None:
    parts = f"blend.linked=tfidf;{FIELDED} epochs=4 patience=9 rate=0.3"
    found = linked.search(
        blend("bm25", CLICKED, more=(parts, ONE_RATE, "auto.seconds=0.001"))
    ).fitted
    trial, final = found.facts["trials"][-1]["history"], found.facts["parts"][-1]["history"]
    assert len(trial) == 1
    assert 1 <= len(final) <= 3
    assert final[0]["loss"] < 0.9 * trial[0]["loss"]


def test_a_finished_trial_is_continued_only_if_time_is_short(linked: Trainer) -> None:
    """With time, the last fit starts anew and takes the best number of epochs."""
    parts = f"blend.linked=tfidf;{FIELDED} epochs=1 rate=0.3"
    losses = []
    for seconds in (150, 0.001):
        more = (parts, ONE_RATE, f"auto.seconds={seconds}")
        found = linked.search(blend("bm25", CLICKED, more=more)).fitted
        losses.append([line["loss"] for line in found.facts["parts"][-1]["history"]])
    anew, further = losses
    assert len(anew) == 1
    assert 1 <= len(further) <= 2
    assert further[0] < 0.9 * anew[0]


def test_the_rate_that_is_best_on_validation_goes_on(linked: Trainer) -> None:
    """A rate of nearly zero learns nothing in its epoch; the other one takes the rest of the epochs."""
    for rates in ("1e-9,0.3", "0.3,1e-9"):
        parts = f"blend.linked=tfidf;{FIELDED} epochs=3 patience=3 rate=0.01"
        more = (parts, f"blend.linked_rates={rates}", "auto.seconds=0")
        found = linked.search(blend("bm25", CLICKED, more=more)).fitted
        trial, final = found.facts["trials"][-1], found.facts["parts"][-1]
        assert trial["rate"] == 0.3
        assert len(trial["history"]) == 2
        assert len(final["history"]) == 1 + trial["best_epoch"]


def test_a_rate_at_which_training_diverges_is_left_out(
    linked: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = TrainingRun.learn

    def diverge(run: TrainingRun, learner: Learner) -> dict[str, Any]:
        if run.recipe.train.rate == 0.7:
            raise Diverged("no longer finite")
        return learn(run, learner)

    monkeypatch.setattr(TrainingRun, "learn", diverge)
    parts = f"blend.linked=tfidf;{FIELDED} epochs=3 rate=0.2"
    for rates, wanted in (("0.7,0.3", 0.3), ("0.7,0.7", None)):
        more = (parts, f"blend.linked_rates={rates}", "auto.seconds=0")
        found = linked.search(blend("bm25", CLICKED, more=more)).fitted
        assert found.facts["trials"][-1].get("rate") == wanted


def test_matrices_of_texts_alone_are_built_once_for_both_fits(
    linked: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    plain = TrainingContext._build

    def counting(context: TrainingContext, settings: ModelSettings) -> Features:
        built.append(settings.match)
        return plain(context, settings)

    monkeypatch.setattr(TrainingContext, "_build", counting)
    parts = f"blend.linked=bm25;{FIELDED}"
    linked.search(blend("bm25", CLICKED, more=(parts,)))
    # BM25, the fielded model and the baseline tf-idf; the last fits build nothing.
    assert sorted(built) == ["bm25", "bm25", "tfidf"]
    linked.context.clear_cache()
    linked.context.features(load_recipe("bm25").model)
    assert len(built) == 4


def test_too_few_judgements_serve_the_first_part(tmp_path: Path) -> None:
    folder = write_planted(tmp_path / "c", splits=["train"])
    lines = (folder / "qrels" / "train.tsv").read_text().splitlines()[1:4]
    pairs = [(query, document) for query, document, _ in (line.split("\t") for line in lines)]
    write_qrels(folder / "qrels" / "train.tsv", pairs)
    log = StringIO()
    trainer = Trainer(read_collection(folder), Reporter(log), tmp_path, "blend", 1, 1, resume=False)
    best = trainer.search(load_recipe("auto"))
    table = trainer.compare(best)
    assert best.fitted.facts["weights"] == {"bm25": 1.0}
    assert table == []
    assert "warning: there are too few clicks or judgements" in log.getvalue()


def test_vectors_are_given_to_the_parts_that_can_start_at_them(tmp_path: Path) -> None:
    vectors = tmp_path / "words.vec"
    vectors.write_text("1 2\nword 0.5 0.5\n")
    recipe = blend("bm25", CLICKED, more=(f"train.vectors={vectors}",))
    parts = [load_part(text, recipe) for text in recipe.own.recipes]
    assert [part.train.vectors for part in parts] == ["", str(vectors)]
    validate(recipe)
    with pytest.raises(RecipeError, match=r"no part of blend\.recipes can start at word vectors"):
        validate(blend("bm25", "tfidf", more=(f"train.vectors={vectors}",)))


def test_a_cold_document_is_encoded_like_one_that_is_added_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document that nobody clicked ranks the same in the bundle and sent to the service afterwards."""
    monkeypatch.setattr(
        "fullrank_trainer.systems.blend.choose", lambda _: np.array([0.1, 0.3, 0.2, 0.4])
    )
    monkeypatch.setattr("fullrank_trainer.systems.blend.lift_unjudged", lambda *_: Lift(1.5, 0.75))
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
    assert isinstance(found.model, MixedModel)
    level = replace(found.model, lift=NO_LIFT)
    plain = level.encode_documents([documents[i].texts(sources) for i in cold.tolist()])
    np.testing.assert_allclose(stored.bias - plain.bias, 0.75, rtol=1e-5)
    bm25, translation = found.model.models[:2]
    assert bm25.n_dense == translation.n_dense == 0
    lexical = np.arange(plain.sparse.width) < bm25.n_sparse + translation.n_sparse
    wanted = plain.sparse.csr().toarray() * np.where(lexical, 1.5, 1.0)
    np.testing.assert_allclose(stored.sparse.csr().toarray(), wanted, rtol=1e-5, atol=1e-6)
    assert plain.bias.any()


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (("bm25",), "name two recipes or more"),
        (("bm25", "clicked", "clicked rate=0.1"), "name every recipe once"),
        (("bm25", "auto"), "auto is a mix or a search itself"),
        (("bm25", "query-expansion trials="), "not linear in the query"),
        (("bm25", "absent"), "no recipe 'absent'"),
        (("bm25", "bltm expanded=5"), r"language\.expanded: topics"),
    ],
)
def test_recipes_that_cannot_be_blended_are_refused(parts: tuple[str, ...], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        validate(blend(*parts))


def write_clicks(folder: Path) -> Path:
    """Planted judgements as clicks: they have weights."""
    write_planted(folder)
    for split in ("train", "valid"):
        write_values(folder, "weights", split, dict.fromkeys(judged_pairs(folder, split), 2.0))
    return folder


def test_once_clicks_of_valid_have_chosen_they_are_counted_and_most_are_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_trainer.systems.blend.CALIBRATING", 5)
    monkeypatch.setattr("fullrank_trainer.systems.blend.choose", lambda _: np.full(4, 0.25))
    trainer = trainer_of(write_clicks(tmp_path / "clicks"), tmp_path)
    seen: list[tuple[str, TrainingContext]] = []
    plain = TrainingContext.fit

    def noting(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
        seen.append((run.label, context))
        return plain(context, recipe, run)

    monkeypatch.setattr(TrainingContext, "fit", noting)
    recipe = blend("bm25", CLICKED, more=("blend.clicks=true", "valid_queries=0"))
    found = trainer.search(recipe).fitted.facts
    valid = trainer.valid(recipe)
    assert valid is not None
    trained = set(trainer.corpus.pairs.rows.tolist())
    for label, context in seen:
        learned = set(context.corpus.pairs.rows.tolist())
        if label.startswith("final"):
            calibrating = (
                set() if label.endswith(("memory ", "popularity ")) else {*valid.spread(5).rows}
            )
            assert learned == trained | ({*valid.rows} - calibrating)
            answers = {q: set(rows) for q, rows in context.corpus.pairs.items() if q not in trained}
            judged = {
                row: set(j.relevant) for row, j in zip(valid.rows, valid.judgements, strict=True)
            }
            assert answers == {q: judged[q] for q in answers}
        elif label.startswith("trial"):
            assert learned <= trained
    finals = [label.split()[1] for label, _ in seen if label.startswith("final")]
    assert {*finals} == {"bm25", "clicked", "memory", "popularity"}
    assert found["learned_valid"] == len(valid.rows)


SMALL = "dimension=5 epochs=2 batch=32 candidates=30 sampled_from=judged"
PARTS = f"bm25;word-translation expanded=50 stem=auto;fielded {SMALL} members=2;clicked {SMALL} members=1"
WEIGHTS = np.array([0.2, 0.0, 0.5, 0.3])


def trained(planted: Path, out: Path, start: Path | None = None, *overrides: str) -> Bundle:
    options = [] if start is not None else [f"blend.recipes={PARTS}", "auto.seconds=0"]
    result = train(
        planted, out, "mine", overrides=[*options, *overrides], start=start, threads=1,
        reporter=Reporter(quiet=True),
    )  # fmt: skip
    return open_bundle(result.path)


def set_weights(patch: pytest.MonkeyPatch) -> None:
    """Validation of the planted collection would choose one part."""
    patch.setattr("fullrank_trainer.systems.blend.choose", lambda _: WEIGHTS)
    patch.setattr("fullrank_trainer.systems.blend.lift_unjudged", lambda *_: Lift(1.5, 0.25))
    patch.setattr("fullrank_trainer.training.validation._FEWEST_QUERIES", 1)


@pytest.fixture
def _weights(monkeypatch: pytest.MonkeyPatch) -> None:
    set_weights(monkeypatch)


@pytest.fixture(scope="module")
def first(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    with pytest.MonkeyPatch.context() as patch:
        set_weights(patch)
        return trained(planted, tmp_path_factory.mktemp("first"))


@pytest.mark.usefixtures("_weights")
def test_a_blend_goes_on_with_its_parts_and_weights(
    planted: Path, first: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At rates of zero the parts are the same, and the sum of their biases is that of the bundle."""
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
    tmp_path: Path,
) -> None:
    planted = write_planted(tmp_path / "planted")
    write_qrels(
        planted / "qrels" / "train.tsv",
        [pair for pair in judged_pairs(planted, "train") if not pair[1].startswith("d1-")],
    )
    first = trained(planted, tmp_path)
    starts = WarmStart.of(first).parts([False, True, True])
    total = 0.5 * starts[1].bias + 0.3 * starts[2].bias
    unjudged = np.array([id.startswith("d1-") for id in first.documents.ids])
    np.testing.assert_allclose(total + 0.25 * unjudged, first.encoded.bias, atol=1e-5)
    assert not starts[0].bias.any()


@pytest.mark.sweep
def test_queries_that_a_blend_has_learned_do_not_measure_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures and floor are those of a training that never sees them; after it, nothing measures."""
    monkeypatch.setattr(
        "fullrank_trainer.systems.blend.choose", lambda _: np.array([0.2, 0, 0.3, 0.2, 0.2, 0.1])
    )
    clicks = write_clicks(tmp_path / "clicks")
    unseen, first = (
        trained(clicks, tmp_path / name, None, f"blend.learn_valid={name}")
        for name in ("false", "true")
    )
    assert first.card["training"]["learned_valid"]
    assert first.card["table"]
    assert first.card["table"] == unseen.card["table"]
    assert first.card["floor"] == unseen.card["floor"]
    judged = read_collection(clicks)
    for active, known in ((unseen, False), (first, True)):
        gates = [gate.name for gate in common_gates(active, first, ["name1n1"], judged)]
        assert gates == ["empty", "speed"]
        measure(active.path, clicks, "valid")
        assert ("has learned the clicks of valid" in capsys.readouterr().err) is known
    second = trained(clicks, tmp_path / "true", first.path)
    assert second.card["recipe"]["blend"]["learn_valid"]
    assert second.card["table"] == []


@pytest.mark.usefixtures("_weights")
def test_another_sum_is_refused(planted: Path, first: Bundle, tmp_path: Path) -> None:
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
