"""Trees: their sums equal a walk from each root, and the split by feature adds up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from fullrank.rerank.trees import MAX_LEAVES, Trees
from tests.reranking import random_features, random_trees, walked


@pytest.mark.parametrize("nodes", [0, 1, 3, 7, MAX_LEAVES - 1])
@pytest.mark.parametrize("rows", [0, 1, 2, 100])
def test_predict_equals_a_walk_from_every_root(nodes: int, rows: int) -> None:
    trees = random_trees(40, nodes, 6, seed=nodes)
    trees.check(6)
    features = random_features(rows, 6, seed=rows)
    expected = [walked(trees, row)[0] for row in features]
    np.testing.assert_allclose(trees.predict(features), expected, rtol=0, atol=1e-12)


def test_contributions_are_the_changes_along_each_path() -> None:
    trees = random_trees(25, 7, 5)
    features = random_features(30, 5)
    found = trees.contributions(features)
    np.testing.assert_allclose(found, [walked(trees, row)[1] for row in features], atol=1e-12)
    np.testing.assert_allclose(trees.base + found.sum(axis=1), trees.predict(features), atol=1e-12)


def test_a_feature_in_no_tree_contributes_nothing() -> None:
    trees = random_trees(10, 7, 3)
    features = random_features(20, 4)
    assert not trees.contributions(features)[:, 3].any()


def test_without_trees_every_row_scores_zero() -> None:
    trees = Trees.empty()
    trees.check(3)
    features = random_features(4, 3)
    assert trees.predict(features).tolist() == [0, 0, 0, 0]
    assert trees.contributions(features).tolist() == np.zeros((4, 3)).tolist()
    assert trees.base == 0


def test_stored_trees_predict_the_same() -> None:
    trees = random_trees(12, 7, 5)
    again = Trees.from_arrays(trees.arrays())
    features = random_features(50, 5)
    assert again.predict(features).tolist() == trees.predict(features).tolist()


def _changed(array: npt.NDArray[np.int16], value: int) -> npt.NDArray[np.int16]:
    found = array.copy()
    found[0, 0] = value
    return found


def test_damaged_trees_are_refused() -> None:
    trees = random_trees(5, 7, 5)
    for damaged, reason in (
        (replace(trees, feature=_changed(trees.feature, 5)), "not below 5"),
        (replace(trees, feature=_changed(trees.feature, -1)), "not below 5"),
        (replace(trees, left=_changed(trees.left, 0)), "later node"),
        (replace(trees, left=_changed(trees.left, 7)), "later node"),
        (replace(trees, right=_changed(trees.right, -9)), "later node"),
        (replace(trees, leaf=trees.leaf[:, 1:]), "leaf is"),
        (replace(trees, threshold=trees.threshold.astype(np.float64)), "threshold is"),
        (random_trees(2, MAX_LEAVES, 5), "leaves a tree"),
    ):
        with pytest.raises(ValueError, match=reason):
            damaged.check(5)
