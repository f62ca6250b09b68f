"""Small second stages for tests: random trees, and a stage over the seven documents of `tests.bundles`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fullrank.search.rerank.facts import DocumentFacts, FactSettings
from fullrank.search.rerank.features import Statistics, names
from fullrank.search.rerank.stage import SecondStage
from fullrank.search.rerank.trees import Trees
from fullrank.storage.documents import Document
from fullrank.storage.encoding import Float32, Int32
from tests.bundles import FIELDS

SETTINGS = FactSettings(tuple((name, (name,)) for name in FIELDS), "date", "clicked")


def random_trees(trees: int, nodes: int, width: int, seed: int = 1) -> Trees:
    """Trees of random shapes with 0 to `nodes` inner nodes, over `width` features around zero."""
    rng = np.random.default_rng(seed)
    arrays = Trees.zeros(trees, nodes)
    arrays["leaf"] = rng.standard_normal((trees, nodes + 1))
    arrays["left"][:] = arrays["right"][:] = -1

    def grow(tree: int, size: int, counts: list[int]) -> int:
        """Write a subtree of `size` nodes; return it as a child."""
        if not size:
            counts[1] += 1
            return -counts[1]
        node = counts[0]
        counts[0] += 1
        left = int(rng.integers(0, size))
        arrays["feature"][tree, node] = rng.integers(0, width)
        # Thresholds that features take too, so that equality is tested.
        arrays["threshold"][tree, node] = rng.integers(-2, 3) / 2
        arrays["value"][tree, node] = rng.standard_normal()
        arrays["left"][tree, node] = grow(tree, left, counts)
        arrays["right"][tree, node] = grow(tree, size - 1 - left, counts)
        return node

    for tree in range(trees):
        grow(tree, int(rng.integers(0, nodes + 1)), [0, 0])
    return Trees(**arrays)


def random_features(rows: int, width: int, seed: int = 1) -> Float32:
    """Features of which many equal a threshold of `random_trees`."""
    found = np.random.default_rng(seed).integers(-4, 5, (rows, width)) / 2
    return found.astype(np.float32)


def walked(trees: Trees, row: Float32) -> tuple[float, list[float]]:
    """The twin: one row walked from each root; the sum of the leaves, and the change of value by feature."""
    total, changes = 0.0, [0.0] * len(row)
    for t in range(len(trees)):
        if not trees.feature.shape[1] or trees.left[t, 0] == trees.right[t, 0]:
            total += float(trees.leaf[t, 0])
            continue
        node, value = 0, float(trees.value[t, 0])
        while node >= 0:
            feature = int(trees.feature[t, node])
            to_left = row[feature] <= trees.threshold[t, node]
            node = int((trees.left if to_left else trees.right)[t, node])
            after = float(trees.value[t, node] if node >= 0 else trees.leaf[t, -1 - node])
            changes[feature] += after - value
            value = after
        total += value
    return total, changes


def clicks_first(settings: FactSettings) -> Trees:
    """Trees that put documents with more clicks first: more than 1, and more than 5."""
    column = names(settings.names).index("clicks")
    return Trees(
        np.full((2, 1), column, np.int16),
        np.log1p(np.array([[1], [5]])).astype(np.float32),
        np.full((2, 1), -1, np.int16),
        np.full((2, 1), -2, np.int16),
        np.full((2, 1), 0.5),
        np.array([[0.0, 1.0], [0.0, 1.0]]),
    )


def stage_of(
    documents: Sequence[Document],
    *,
    trees: Trees | None = None,
    of_documents: bool = False,
    seed: int = 1,
    settings: FactSettings = SETTINGS,
    clicks: Int32 | None = None,
) -> tuple[SecondStage, DocumentFacts]:
    """A stage whose trees are random, and the facts of its documents; without their clicks, all documents move."""
    facts = DocumentFacts.of([document.fields for document in documents], settings, clicks)
    if trees is None:
        trees = random_trees(30, 7, len(names(settings.names)), seed)
    stage = SecondStage(settings, Statistics.of(facts), trees, of_documents, clicks is None)
    return stage, stage.statistics.weigh(facts)
