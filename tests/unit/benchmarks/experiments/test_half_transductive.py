"""Relevance by category paths, its precision, and the splits of the digits, by hand-computed values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.experiments.categories import (
    GRADES,
    graded_precision,
    read_categories,
    relevance,
    shared,
    write_categories,
)
from benchmarks.experiments.digits import (
    METHODS,
    NEIGHBOURS,
    Digits,
    eigenmaps_extended,
    linear_features,
    pixels_alone,
    rbf_features,
    split,
)
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.judgement import judge
from tests.planted import write_lines

MAMMAL, BIRD = ("Science", "Biology", "Mammals"), ("Science", "Biology", "Birds")


def test_relevance_is_the_shared_beginning_over_the_longer_path() -> None:
    assert shared(MAMMAL, MAMMAL) == 1
    assert shared(MAMMAL, BIRD) == pytest.approx(2 / 3)
    assert shared(MAMMAL, ("Science",)) == pytest.approx(1 / 3)
    assert shared(MAMMAL, ("Art", "Biology", "Mammals")) == 0
    assert relevance((BIRD, ("Art",)), (("Art", "Painting"), MAMMAL)) == pytest.approx(2 / 3)
    assert relevance((), (MAMMAL,)) == 0


def test_categories_are_read_with_all_paths_of_an_article(tmp_path: Path) -> None:
    file = tmp_path / "categories.tsv"
    file.write_text("corpus-id\tcategory-path\nfox\tScience.Biology\nfox\tArt\nowl\tArt\n", "utf-8")
    assert read_categories(file) == {"fox": (("Art",), ("Science", "Biology")), "owl": (("Art",),)}


def test_held_out_articles_are_queries_graded_by_their_paths(tmp_path: Path) -> None:
    names = [f"a{i}" for i in range(40)]
    source = tmp_path / "source"
    write_lines(source / "corpus.jsonl", [{"_id": n, "title": n, "text": f"of {n}"} for n in names])
    (source / "qrels").mkdir()
    paths = {name: ("S.B.M", "S.B.V", "A")[i % 3] for i, name in enumerate(names[:-1])}
    lines = ["corpus-id\tcategory-path", *(f"{n}\t{path}" for n, path in paths.items())]
    (source / "categories.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    target = write_categories(
        read_collection(source), source / "categories.tsv", tmp_path / "target", seed=1
    )
    found = read_collection(target)
    kept = {document.id for document in found.documents}
    assert found.queries is not None
    asked = {query.id for query in found.queries}
    assert kept | asked == set(names) - {"a39"}
    assert not kept & asked
    test, valid = found.qrels("test"), found.qrels("valid")
    assert set(test) | set(valid) == asked
    assert not set(test) & set(valid)
    for query, grades in test.items():
        wanted = {
            name: round(GRADES * shared(tuple(paths[query].split(".")), tuple(paths[name].split("."))))
            for name in kept
        }  # fmt: skip
        assert grades == {name: grade for name, grade in wanted.items() if grade}
    for query, grades in valid.items():
        assert set(grades) == {name for name in kept if paths[name] == paths[query]}
        assert set(grades.values()) == {GRADES}
    assert len(judge(found, "test", [])[0]) == round(0.2 * 39)


def test_graded_precision_is_the_mean_of_the_first_places() -> None:
    scores = np.array([[0.1, 0.9, 0.5], [1.0, 1.0, 1.0]])
    relevant = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 1.0]])
    found = graded_precision(scores, relevant, (1, 2, 3, 100))
    np.testing.assert_allclose(found, [[0.5, 0.25, 0.5, 0.5], [0.0, 0.5, 2 / 3, 2 / 3]])


def test_digit_features_do_not_use_the_test_split() -> None:
    one, again, other = split(1), split(1), split(2)
    np.testing.assert_array_equal(one.train, again.train)
    assert not np.array_equal(one.train_class, other.train_class)
    assert len(one.train) + len(one.test) == 1797
    assert one.train.max() == 1
    few = Digits(one.train[:80], one.test[:10], one.train_class[:80], one.test_class[:10])
    fewer = Digits(one.train[:80], one.test[:5], one.train_class[:80], one.test_class[:5])
    for features in (linear_features, rbf_features):
        train, test = features(few)
        same, _ = features(fewer)
        dense, rows = (a if isinstance(a, np.ndarray) else a.toarray() for a in (train, same))
        np.testing.assert_array_equal(dense, rows)
        assert np.square(dense).sum(axis=1).mean() == pytest.approx(1, rel=1e-4)
        assert test.shape == (10, dense.shape[1])


def test_errors_are_shares_of_the_test() -> None:
    one = split(1)
    few = Digits(one.train[:300], one.test[:60], one.train_class[:300], one.test_class[:60])
    assert few.error(few.train, few.train[:60]) > 0.5  # other digits' classes
    nearest = pixels_alone(few, 5)
    assert 0 <= nearest < 0.2
    assert abs(eigenmaps_extended(few, 10) - nearest) < 0.2
    assert set(METHODS) >= {"eigenmaps, extended", "half transductive, RBF"}
    assert NEIGHBOURS == 5
