"""The train function, from a collection folder to a bundle with its table."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from fullrank.bundle import open_bundle
from fullrank.errors import BundleError, CollectionError, RecipeError, TrainingError
from fullrank.measures import MEASURES
from fullrank.progress import Reporter
from fullrank_trainer.train import TrainResult, train
from fullrank_trainer.training.loop import Interrupted
from tests.planted import write_lines, write_planted, write_qrels

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = ("dimension=8", "epochs=6", "patience=6", "batch=32", "candidates=30", "rate=0.1")
BLEND = (
    "blend.recipes=bm25;word-translation expanded=50;clicked members=1 "
    "dimension=8 epochs=3 batch=32 candidates=30 train.rate=0.1"
)


NOTHING_JUDGED = (
    "there are no clicks or judgements to learn from, so bm25 serves; clicks are counted, not learned. "
    "Train again when there are more"
)


def trained(
    collection: Path, out: Path, recipe: str, *overrides: str, **changes: Any
) -> tuple[TrainResult, list[dict[str, Any]]]:
    """Train; return the result and the reported lines."""
    stream = io.StringIO()
    result = train(
        collection, out, "planted", recipe=recipe, overrides=overrides,
        **{"threads": 1, "reporter": Reporter(stream, as_json=True), **changes},
    )  # fmt: skip
    return result, [json.loads(line) for line in stream.getvalue().splitlines()]


def warnings_in(lines: list[dict[str, Any]]) -> list[str]:
    return [line["reason"] for line in lines if line["event"] == "warning"]


@pytest.fixture(scope="module")
def fielded(
    planted: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TrainResult, list[dict[str, Any]]]:
    """A training with seed 1; no test may change what it wrote."""
    return trained(planted, tmp_path_factory.mktemp("fielded"), "fielded", *TINY)


def test_train_writes_a_bundle_a_table_and_a_card(
    fielded: tuple[TrainResult, list[dict[str, Any]]],
) -> None:
    result, lines = fielded
    bundle = open_bundle(result.path)
    out = result.path.parent.parent
    assert result.path.parent == out / "planted"
    assert [row.system for row in result.table] == ["fielded", "tfidf", "bm25"]
    for row in result.table:
        assert (row.split, row.queries) == ("valid", 30)
        assert set(row.measures) == set(MEASURES)
        facts = row.as_dict()
        assert all(0 <= facts[name] <= 1 and facts[f"{name}_se"] >= 0 for name in MEASURES)
    assert result.table[1].measures["map"].standard_error > 0
    card = bundle.card
    assert card["table"] == [row.as_dict() for row in result.table]
    assert card["recipe"]["train"]["epochs"] == 6
    assert (card["seed"], card["threads"]) == (1, 1)
    assert card["collection"]["splits"] == ["train", "valid", "test"]
    history = card["training"]["history"]
    assert history[card["training"]["best_epoch"] - 1]["valid_map"] > 0.9
    assert [line["system"] for line in lines if line["event"] == "measured"] == [
        "fielded", "tfidf", "bm25",
    ]  # fmt: skip
    assert lines[0]["event"] == "read"
    assert (lines[0]["documents"], lines[0]["queries"]) == (36, 186)
    assert lines[-1]["event"] == "written"
    assert warnings_in(lines) == []
    assert not (out / ".training").exists()
    assert json.loads(json.dumps(result.as_dict(), allow_nan=False))["version"] == result.path.name


def test_a_model_worse_than_a_baseline_gets_a_warning(planted: Path, tmp_path: Path) -> None:
    """A model that ranks worse than a baseline comes with a warning."""
    _, lines = trained(planted, tmp_path, "ssi", "dimension=2", "epochs=1", "rates=0", "init=3")
    assert warnings_in(lines) == [
        f"{name} ranks better than ssi on validation; --recipe {name} trains it"
        for name in ("tfidf", "bm25")
    ]


def test_the_table_equals_an_evaluation_of_the_bundle(planted: Path, tmp_path: Path) -> None:
    """The table of a trained tf-idf model has one tf-idf line."""
    own, _ = trained(planted, tmp_path, "tfidf")
    other, _ = trained(planted, tmp_path, "bm25")
    for name, result in (("tfidf", own), ("bm25", other)):
        assert result.table[0].system == name
        assert sorted(row.system for row in result.table) == ["bm25", "tfidf"]
        assert open_bundle(result.path).model.n_dense == 0
    assert own.table[0].as_dict() == other.table[1].as_dict()
    assert own.table[1].as_dict() == other.table[0].as_dict()


@pytest.mark.parametrize("trials", [("rate=0", "rate=0.1"), ("rate=0.1", "rate=0")])
def test_a_search_keeps_the_best_trial(
    trials: tuple[str, str], planted: Path, tmp_path: Path
) -> None:
    settings = (*TINY, "auto.seconds=100", f"trials={';'.join(trials)}")
    result, lines = trained(planted, tmp_path, "fielded", *settings)
    found = {line["overrides"]: line["map"] for line in lines if line["event"] == "trial"}
    assert list(found) == list(trials)
    assert found["rate=0.1"] > found["rate=0"]
    card = open_bundle(result.path).card
    assert card["recipe"]["train"]["rate"] == 0.1
    assert result.table[0].measures["map"].mean == pytest.approx(found["rate=0.1"], abs=1e-5)
    assert [trial["overrides"] for trial in card["training"]["trials"]] == list(trials)
    assert not (tmp_path / ".training").exists()


def test_zero_seconds_leave_trials_without_a_time_limit(planted: Path, tmp_path: Path) -> None:
    settings = (*TINY, "auto.seconds=0", "trials=rate=0;rate=0.1")
    result, _ = trained(planted, tmp_path, "fielded", *settings)
    assert result.recipe.train.seconds == 0
    assert open_bundle(result.path).card["training"]["history"][-1]["epoch"] == 6


def test_the_default_writes_a_blend_with_a_warm_and_a_cold_table(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_trainer.training.validation._FEWEST_QUERIES", 1)
    result, lines = trained(planted, tmp_path, "auto", BLEND, "auto.seconds=60")
    assert {(row.system, row.split) for row in result.table} == {
        (system, split) for split in ("new", "cold") for system in ("auto", "bm25", "tfidf")
    }
    bundle = open_bundle(result.path)
    assert bundle.card["table"] == [row.as_dict() for row in result.table]
    assert bundle.card["training"]["validation"] == bundle.card["table"]
    assert sum(bundle.card["training"]["weights"].values()) == pytest.approx(1)
    (chosen,) = (line for line in lines if line["event"] == "blend")
    assert {name for name, weight in chosen.items() if weight} >= {"event"}
    assert not (tmp_path / ".training").exists()


def test_without_judgements_the_default_serves_bm25_and_corrects_typos(tmp_path: Path) -> None:
    functions = (np.convolve, np.histogram, np.interp, np.linalg.det, np.linalg.eigvals, np.fft.fft)
    documents = [{"_id": f.__name__, "text": str(f.__doc__)} for f in functions]
    write_lines(tmp_path / "c" / "corpus.jsonl", documents)
    result, lines = trained(tmp_path / "c", tmp_path, "auto")
    assert warnings_in(lines) == [NOTHING_JUDGED]
    bundle = open_bundle(result.path)
    for typo, word, answer in (
        ("convoluton", "convolution", "convolve"),
        ("histogrm", "histogram", "histogram"),
        ("interpolatoin", "interpolation", "interp"),
        ("determinnat", "determinant", "det"),
        ("eigenvlues", "eigenvalues", "eigvals"),
        ("fourrier", "fourier", "fft"),
    ):
        assert [hit.id for hit in bundle.search(word)][:1] == [answer]
        assert [hit.id for hit in bundle.search(typo)][:1] == [answer]
    # A service may count the clicks that will come.
    assert bundle.click_parts is not None
    assert {hit.bias for hit in bundle.search("determinant")} == {0.0}


def test_judgements_of_another_corpus_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    write_lines(folder / "corpus.jsonl", [{"_id": "a", "title": "oak table"}])
    write_lines(folder / "queries.jsonl", [{"_id": "q", "text": "table"}])
    write_qrels(folder / "qrels" / "train.tsv", [("q", "elsewhere")])
    with pytest.raises(
        CollectionError, match=r"no judgement is left .* 'elsewhere' \(train.tsv:2\)"
    ):
        train(folder, tmp_path / "out", "shop")
    assert not (tmp_path / "out" / "shop").exists()


def test_scores_of_zero_are_no_judgements_to_learn_from(tmp_path: Path) -> None:
    folder = write_planted(tmp_path / "c")
    file = folder / "qrels" / "train.tsv"
    file.write_text(file.read_text().replace("\t1\n", "\t0\n"))
    result, lines = trained(folder, tmp_path, "auto")
    assert NOTHING_JUDGED in warnings_in(lines)
    assert {row.split for row in result.table} == {"valid"}


def test_training_works_without_a_validation_split(tmp_path: Path) -> None:
    folder = write_planted(tmp_path / "c", splits=["train"])
    result, lines = trained(folder, tmp_path, "fielded", *TINY, "trials=rate=0.1;rate=0")
    assert result.table == []
    assert result.recipe.train.rate == 0.1
    assert warnings_in(lines) == [
        "there is no qrels/valid.tsv to compare trials by, so only the first one is trained"
    ]
    open_bundle(result.path)


def test_another_seed_gives_another_bundle(
    fielded: tuple[TrainResult, list[dict[str, Any]]], planted: Path, tmp_path: Path
) -> None:
    result, _ = trained(planted, tmp_path, "fielded", *TINY, seed=2)
    one, other = (open_bundle(path).encoded.whole() for path in (fielded[0].path, result.path))
    assert one.dense.tobytes() != other.dense.tobytes()


def test_resuming_after_ctrl_c_gives_the_same_bundle(
    fielded: tuple[TrainResult, list[dict[str, Any]]],
    planted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A command that is interrupted and resumed ends with the same bundle."""
    whole, _ = fielded
    log = Reporter.log

    def press(self: Reporter, event: str, **figures: Any) -> None:
        log(self, event, **figures)
        if event == "epoch" and figures["epoch"] == 2:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Reporter, "log", press)
        with pytest.raises(Interrupted, match="--resume continues after epoch 2"):
            trained(planted, tmp_path, "fielded", *TINY)
    assert (tmp_path / ".training" / "planted" / "0.npz").is_file()
    assert not (tmp_path / "planted").exists()
    with pytest.raises(TrainingError, match="another recipe, seed or collection"):
        trained(planted, tmp_path, "fielded", *TINY, "rate=0.3", resume=True)
    result, lines = trained(planted, tmp_path, "fielded", *TINY, resume=True)
    assert [line["after_epoch"] for line in lines if line["event"] == "resumed"] == [2]
    a, b = open_bundle(whole.path), open_bundle(result.path)
    np.testing.assert_array_equal(a.encoded.whole().dense, b.encoded.whole().dense)
    np.testing.assert_array_equal(a.encoded.bias, b.encoded.bias)
    assert not (tmp_path / ".training").exists()


def test_bad_arguments_are_refused_before_training(planted: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError):
        trained(tmp_path / "absent", tmp_path, "magic")
    with pytest.raises(RecipeError):
        trained(tmp_path / "absent", tmp_path, "ssi", "dimension=-1")
    with pytest.raises(BundleError, match="cannot name a bundle"):
        train(tmp_path / "absent", tmp_path, "../planted", recipe="tfidf")
    with pytest.raises(CollectionError, match="no such folder"):
        trained(tmp_path / "absent", tmp_path, "ssi")
    folder = write_planted(tmp_path / "c", splits=["test"])
    with pytest.raises(
        TrainingError, match=r"c/qrels/train\.tsv: no judged pair .* leave out --recipe"
    ):
        trained(folder, tmp_path, "ssi", "dimension=4")
    write_qrels(folder / "qrels" / "train.tsv", [])
    with pytest.raises((TrainingError, CollectionError)):
        trained(folder, tmp_path, "ssi", "dimension=4")
    assert not list(tmp_path.glob("planted/*"))


def test_a_click_on_a_deleted_document_is_skipped_unless_strict(tmp_path: Path) -> None:
    folder = write_planted(tmp_path / "c")
    qrels = folder / "qrels" / "train.tsv"
    count = len(qrels.read_text().splitlines())
    with qrels.open("a") as file:
        file.write(f"{qrels.read_text().splitlines()[1].split()[0]}\tdeleted\t1\n")
    _, lines = trained(folder, tmp_path, "tfidf")
    skipped = f"1 judgement of unknown ids, skipped: 'deleted' (train.tsv:{count + 1})"
    assert f"{skipped}; --strict refuses them" in warnings_in(lines)
    with pytest.raises(CollectionError, match="unknown id 'deleted'"):
        trained(folder, tmp_path, "tfidf", strict=True)


def test_threads_are_set_and_bounded(planted: Path, tmp_path: Path) -> None:
    trained(planted, tmp_path, "tfidf", threads=1)
    assert numba.get_num_threads() == 1
    result, _ = trained(planted, tmp_path, "tfidf", threads=10_000)
    assert 1 <= open_bundle(result.path).card["threads"] == numba.get_num_threads() < 10_000


def test_a_bundle_card_names_the_previous_version(planted: Path, tmp_path: Path) -> None:
    first, _ = trained(planted, tmp_path, "tfidf")
    second, _ = trained(planted, tmp_path, "bm25")
    assert open_bundle(first.path).card["parent"] is None
    assert open_bundle(second.path).card["parent"] == first.path.name
