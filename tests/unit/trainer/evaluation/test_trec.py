"""TREC files: a written run reads back in the same order, by us and by trec_eval."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.errors import CollectionError
from fullrank_trainer.evaluation.trec import (
    RunWriter,
    strictly_descending,
    write_qrels,
)
from tests.runs import read_run

SCORES = st.lists(st.floats(-1e6, 1e6, width=64), max_size=30).map(lambda x: sorted(x)[::-1])


@given(SCORES)
def test_scores_descend_strictly_and_hardly_change(scores: list[float]) -> None:
    low = strictly_descending(scores)
    assert low.dtype == np.float32
    assert np.all(np.diff(low) < 0)
    expected = np.array(scores, np.float32)
    steps = np.spacing(np.abs(expected) + np.float32(1e-3)) * len(scores)
    assert np.all(np.abs(low.astype(np.float64) - expected) <= steps)


def test_distinct_scores_are_not_changed() -> None:
    assert strictly_descending([3.0, 2.0, 1.0]).tolist() == [3.0, 2.0, 1.0]


def test_a_long_tie_lowers_the_scores_after_it_too() -> None:
    one_below = float(np.nextafter(np.float32(1), np.float32(0)))
    low = strictly_descending([1.0, 1.0, 1.0, one_below])
    assert len(set(low.tolist())) == 4
    assert np.all(np.diff(low) < 0)


@pytest.mark.parametrize("scores", [[1.0, 2.0], [float("nan")], [float("inf"), 1.0]])
def test_infinite_or_unsorted_scores_are_refused(scores: list[float]) -> None:
    with pytest.raises(ValueError):
        strictly_descending(scores)


def test_trec_eval_reads_ties_in_our_order(tmp_path: Path) -> None:
    path = tmp_path / "run.txt"
    with RunWriter(path, "tag") as run:
        run.write("q1", ["a", "b", "c"], [0.5, 0.5, 0.5])
        run.write("q2", ["日本", "b"], [2.0, -1.0])
    assert [document for document, _ in read_run(path)["q1"]] == ["a", "b", "c"]
    assert [document for document, _ in read_run(path)["q2"]] == ["日本", "b"]
    assert path.read_text("utf-8").splitlines()[0] == "q1 Q0 a 1 0.5 tag"


def test_an_interrupted_run_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyError), RunWriter(tmp_path / "run.txt") as run:  # noqa: PT012
        run.write("q", ["a"], [1.0])
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_run_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match=r"nowhere/run\.txt: cannot be written"):
        RunWriter(tmp_path / "nowhere" / "run.txt").__enter__()


@pytest.mark.parametrize("id", ["two words", "", " a", "tab\tbed"])
def test_ids_with_spaces_are_refused(tmp_path: Path, id: str) -> None:
    with pytest.raises(CollectionError, match="not one word"), RunWriter(tmp_path / "run") as run:
        run.write(id, ["a"], [1.0])
    with pytest.raises(CollectionError, match="not one word"):
        write_qrels(tmp_path / "qrels", {"q": {id: 1}})


WORDS = st.text(st.characters(blacklist_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=8)
GRADES = st.dictionaries(WORDS, st.integers(-2, 5), min_size=1, max_size=5)


@pytest.mark.sweep
@given(qrels=st.dictionaries(WORDS, GRADES, max_size=5))
def test_qrels_round_trip(
    tmp_path_factory: pytest.TempPathFactory, qrels: dict[str, dict[str, int]]
) -> None:
    path = tmp_path_factory.mktemp("qrels") / "qrels.txt"
    write_qrels(path, qrels)
    found: dict[str, dict[str, int]] = {}
    for line in path.read_text("utf-8").splitlines():
        query, _, document, grade = line.split()
        found.setdefault(query, {})[document] = int(grade)
    assert found == qrels
