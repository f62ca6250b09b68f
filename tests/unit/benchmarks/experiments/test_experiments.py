"""Findings: who is better, by what rule, on which queries."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.experiments.claims import STATEMENTS, compare, findings_table
from benchmarks.experiments.failures import failures, main
from benchmarks.experiments.papers import summarise
from benchmarks.experiments.site import QUESTIONS, SITE, read_questions
from benchmarks.experiments.typed import categories, measure, names
from benchmarks.harness.store import Result
from fullrank import open_bundle as typed_open_bundle
from fullrank.bundle import open_bundle
from fullrank.progress import Reporter
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.evaluation.evaluate import evaluate
from fullrank_trainer.train import train
from tests.planted import write_lines, write_planted, write_qrels


def result(values: list[float], measure: str = "map") -> Result:
    return Result({}, [f"q{i}" for i in range(len(values))], {measure: np.array(values)})


RESULTS = {
    "good": result([0.9, 0.8, 0.9, 0.7]),
    "bad": result([0.2, 0.1, 0.3, 0.1]),
    "near": result([0.9, 0.8, 0.7, 0.9]),
    "elsewhere": Result({}, ["x"], {"map": np.array([1.0])}),
}


@pytest.mark.parametrize(
    ("better", "worse", "rule", "margin", "verdict"),
    [
        ("good", "bad", "beats", 0.0, "reproduced"),
        ("bad", "good", "beats", 0.0, "not reproduced"),
        ("good", "near", "beats", 0.0, "not reproduced"),
        ("good", "near", "equals", 0.0, "reproduced"),
        ("bad", "good", "equals", 0.0, "not reproduced"),
        ("bad", "good", "equals", 0.7, "reproduced"),
        ("good", "near", "alike", 0.0, "reproduced"),
        ("good", "bad", "alike", 0.0, "not reproduced"),
        ("good", "bad", "alike", 0.7, "reproduced"),
        ("good", "nobody", "beats", 0.0, "not tested"),
        ("good", "elsewhere", "beats", 0.0, "not tested"),
    ],
)
def test_verdicts_follow_the_two_standard_error_rules(
    better: str, worse: str, rule: str, margin: float, verdict: str
) -> None:
    found = compare("cfh-all", "here", RESULTS, better, worse, "map", rule=rule, margin=margin)
    assert found["verdict"] == verdict


def test_a_loss_is_better_when_lower() -> None:
    results = {"a": result([0.1, 0.2, 0.1], "rank_loss"), "b": result([0.6, 0.7, 0.5], "rank_loss")}
    found = compare("htr", "here", results, "a", "b", "rank_loss")
    assert found["verdict"] == "reproduced"
    assert found["difference"]["mean"] == pytest.approx(1.4 / 3)
    assert "the other way round" in compare("htr", "here", results, "b", "a", "rank_loss")["note"]


def test_an_unknown_statement_is_refused() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        compare("nonsense", "here", RESULTS, "good", "bad", "map")


def test_the_summary_has_every_statement_once() -> None:
    found = [
        {"experiment": "one", **compare("cfh-all", "x", RESULTS, *pair, "map")}
        for pair in (("good", "bad"), ("bad", "good"), ("good", "nobody"))
    ]
    found.append({"experiment": "two", **compare("htr", "x", RESULTS, "bad", "good", "map")})
    lines = {line["claim"]: line for line in summarise(found)}
    assert list(lines) == list(STATEMENTS)
    assert (lines["cfh-all"]["verdict"], lines["cfh-all"]["reproduced"]) == ("in part", 1)
    assert lines["cfh-all"]["tests"] == 2
    assert lines["htr"]["verdict"] == "not reproduced"
    assert lines["data"]["verdict"] == "not tested"
    table = findings_table(found)
    assert len(table.rows) == 3
    assert any("nobody" in note for note in table.notes)
    assert table.markdown().count("\n| ") == 3 + 2


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a bundle that knows only words, and its collection, whose queries have other words."""
    root = tmp_path_factory.mktemp("failures")
    folder = write_planted(root / "planted")
    found = train(folder, root / "bundles", "p", recipe="tfidf", reporter=Reporter(quiet=True))
    return found.path, folder


def test_the_failed_queries_are_those_without_an_early_answer(trained: tuple[Path, Path]) -> None:
    bundle, collection = open_bundle(trained[0]), read_collection(trained[1])
    every, queries = failures(bundle, collection, "test", 0)
    assert len(every) == queries
    found = evaluate(bundle, collection, "test", ["train", "valid"])
    mean = sum(1 / failure.rank for failure in every) / queries
    assert mean == pytest.approx(found.measures["mrr"].mean, abs=1e-9)
    late, _ = failures(bundle, collection, "test", 5)
    assert late == [failure for failure in every if failure.rank > 5]
    assert late
    # The first document has the higher score, so the differences add up to something positive.
    assert all(sum(failure.difference) >= -1e-6 for failure in late)


def test_the_command_prints_a_table_or_json(
    trained: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    options = [str(trained[0]), str(trained[1]), "--below", "3", "--count", "4"]
    main([*options, "--json"])
    result = json.loads(capsys.readouterr().out)
    assert len(result["failures"]) == 4 <= result["failed"] <= result["queries"]
    main([*options, "--markdown"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"### 4 of {result['failed']} failed queries")
    assert len([line for line in lines if line.startswith("|")]) == 6
    main(options)
    assert "failed queries" in capsys.readouterr().out


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    documents = [
        {
            "_id": "sea",
            "title": "Black Sea",
            "text": "Ships of the black seas. The Kingdom of Spain owns some.",
        },
        {"_id": "spain", "title": "Spain", "text": "A country in Europe, and Spain again."},
        {"_id": "kingdom", "title": "Kingdom of the West", "text": "A state."},
    ]
    write_lines(tmp_path / "corpus.jsonl", documents)
    write_qrels(tmp_path / "qrels" / "train.tsv", [("kingdom", "spain")])
    write_qrels(
        tmp_path / "qrels" / "test.tsv", [("sea", "kingdom"), ("sea", "spain"), ("spain", "sea")]
    )
    return read_collection(tmp_path)


def test_names_are_words_of_the_page_that_are_not_the_title(collection: Collection) -> None:
    """ "Spain" is the title; the page about Spain does not name the sea; small words end no name."""
    assert names(collection) == {"Kingdom": {"kingdom"}}


def test_a_category_is_the_end_of_its_path(tmp_path: Path) -> None:
    path = tmp_path / "categories.tsv"
    path.write_text("article\tcategory\nsea\tsubject.Geography.Black_Seas\ngone\tsubject.X\n")
    assert categories(path, ["sea", "spain"]) == {"Black Seas": {"sea"}}


def test_the_best_answer_counts_and_the_last_of_equals(
    collection: Collection, tmp_path: Path
) -> None:
    bundle = typed_open_bundle(train(collection.path, tmp_path / "out", "b", recipe="bm25").path)
    found = measure(bundle, bundle.model, {"country": {"spain", "sea"}, "nowhere": {"sea"}})
    assert found.mean == pytest.approx((1 + 1 / 3) / 2)


def test_the_pages_that_answer_questions_to_the_site_exist() -> None:
    questions = read_questions(QUESTIONS)
    assert len(questions) == 30
    pages = set().union(*questions.values())
    assert [page for page in pages if not (SITE / f"{page}.md").is_file()] == []
