"""The typed queries of the experiment, made of three articles, and their measure."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.experiments.typed import categories, measure, names
from fullrank import open_bundle
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.train import train
from tests.planted import write_lines, write_qrels


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
    bundle = open_bundle(train(collection.path, tmp_path / "out", "b", recipe="bm25").path)
    found = measure(bundle, bundle.model, {"country": {"spain", "sea"}, "nowhere": {"sea"}})
    assert found.mean == pytest.approx((1 + 1 / 3) / 2)
