"""LambdaMART by LightGBM: fit trees on groups of documents, and take them over as arrays.

The weight of a query is that of each of its documents: it multiplies their gradients, and the query's average
precision where that chooses how many trees there are. Weights that differ between documents would take away one side
of a pair of documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from fullrank.errors import TrainingError
from fullrank.measures import Float64
from fullrank.search.rerank.trees import Trees
from fullrank.storage.encoding import Float32, Int64
from fullrank_trainer.rerank.candidates import Candidates

try:
    import lightgbm
except OSError as error:  # its wheel needs a library that slim images lack
    raise TrainingError(
        f"LightGBM cannot be loaded: {error}; on Debian: apt-get install libgomp1"
    ) from error

LEAVES = 8
# From 120 trees on the gain is flat. 170 take 1.9 of the 2 ms that a search may take: too near for a slower machine.
MAX_TREES = 140
# LightGBM counts a grade as 2^grade − 1; its table ends here.
_MAX_GRADE = 30
_SETTINGS: dict[str, Any] = {
    "objective": "lambdarank",
    "learning_rate": 0.08,
    "num_leaves": LEAVES,
    "min_data_in_leaf": 20,
    "lambdarank_truncation_level": 30,
    # Features are finite, so a tree needs no branch for missing values.
    "use_missing": False,
    "feature_pre_filter": False,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}


def fit_booster(
    candidates: Candidates,
    fit: Sequence[int],
    *,
    trees: int = MAX_TREES,
    seed: int,
    threads: int,
) -> lightgbm.Booster:
    settings = {**_SETTINGS, "seed": seed, "num_threads": threads}
    return lightgbm.train(settings, _dataset(candidates, fit, settings), trees)


def _dataset(
    candidates: Candidates, queries: Sequence[int], settings: dict[str, Any]
) -> lightgbm.Dataset:
    features: list[Float32] = [candidates.features[i] for i in queries]
    labels: list[Int64] = [np.minimum(candidates.labels(i), _MAX_GRADE) for i in queries]
    weights = candidates.weights
    if weights is not None:
        weights = np.repeat(weights[list(queries)], [len(rows) for rows in features])
    return lightgbm.Dataset(
        np.concatenate(features),
        np.concatenate(labels),
        weight=weights,
        group=[len(rows) for rows in features],
        params=dict(settings),
    )


def trees_of(booster: lightgbm.Booster) -> Trees:
    """Take over the trees of a booster; `Trees.predict` equals `Booster.predict` on float32 features."""
    dumped = booster.dump_model()["tree_info"]
    arrays = Trees.zeros(len(dumped), LEAVES - 1)
    arrays["left"][:] = arrays["right"][:] = -1
    for number, tree in enumerate(dumped):
        _Writer({name: array[number] for name, array in arrays.items()}).write(
            tree["tree_structure"]
        )
    return Trees(**arrays)


class _Writer:
    """Writes one tree: nodes in the order of a walk that goes left first, leaves from left to right."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self._arrays, self._nodes, self._leaves = arrays, 0, 0

    def write(self, node: dict[str, Any]) -> tuple[int, float, float]:
        """Write a node and all below; return its number, the mean of its rows, and how many there are."""
        if "split_feature" not in node:
            place, self._leaves = self._leaves, self._leaves + 1
            self._arrays["leaf"][place] = node["leaf_value"]
            return -1 - place, node["leaf_value"], float(node.get("leaf_count", 1))
        if node["decision_type"] != "<=" or node["missing_type"] != "None":
            raise TrainingError(
                f"LightGBM made a node of type {node['decision_type']!r}, "
                f"missing {node['missing_type']!r}, which a second stage cannot hold"
            )
        place, self._nodes = self._nodes, self._nodes + 1
        left, left_mean, left_rows = self.write(node["left_child"])
        right, right_mean, right_rows = self.write(node["right_child"])
        rows = left_rows + right_rows
        mean = (left_mean * left_rows + right_mean * right_rows) / rows
        values = {
            "feature": node["split_feature"],
            "threshold": float32_below(node["threshold"]),
            "left": left,
            "right": right,
            "value": mean,
        }
        for name, value in values.items():
            self._arrays[name][place] = value
        return place, mean, rows


def float32_below(threshold: float) -> float:
    """Return the largest float32 that is at most the threshold.

    A float32 feature is at most one of them exactly if it is at most the other.
    """
    limits = np.finfo(np.float32)
    found = np.float32(np.clip(threshold, limits.min, limits.max))
    if float(found) > threshold:
        found = np.nextafter(found, np.float32(-np.inf))
    return float(found)


# Cross-fitting: every query is judged by trees that did not see it.
#
# The base model has learned the training queries, so only validation queries show what a second stage will meet. They
# are cut into FOLDS parts; each part is judged by trees that were fitted on all others, and by as many of them as rank
# the other parts best. The second stage of the bundle is fitted on all parts, with the best number of trees.

FOLDS = 5
# Multiples of this are tried; it divides MAX_TREES.
_STEP = 20


@dataclass(frozen=True, eq=False)
class CrossFit:
    """The result of cross-fitting.

    Attributes:
        scores: second scores of the first documents of each query, by trees that did not see it.
        sizes: number of trees that judged each fold, at most.
    """

    scores: list[Float64]
    trees: Trees
    sizes: list[int]


def folds(queries: Sequence[str]) -> Int64:
    """Return the fold of each query, int64 (B,): equal sizes, in the order of the ids' CRC-32."""
    order = sorted(range(len(queries)), key=lambda i: (crc32(queries[i].encode()), queries[i]))
    found = np.empty(len(queries), np.int64)
    found[order] = np.arange(len(queries)) % FOLDS
    return found


def cross_fit(
    candidates: Candidates, queries: Sequence[str], *, seed: int, threads: int
) -> CrossFit:
    fold, counts = folds(queries), range(_STEP, MAX_TREES + 1, _STEP)
    scores: list[list[Float64]] = [[np.zeros(0)] * len(candidates) for _ in counts]
    for judged in range(FOLDS):
        fit = np.flatnonzero(fold != judged).tolist()
        trees = trees_of(fit_booster(candidates, fit, seed=seed, threads=threads))
        part = np.flatnonzero(fold == judged).tolist()
        features = [candidates.features[query] for query in part]
        rows, ends = np.concatenate(features), np.cumsum([len(own) for own in features])
        found = np.zeros(len(rows))
        for place, count in enumerate(counts):
            found = found + trees.take(count - _STEP, count).predict(rows)
            for query, own in zip(part, np.split(found, ends[:-1]), strict=True):
                scores[place][query] = own
    ranked = np.array([candidates.measure(found)["map"] for found in scores])
    if candidates.weights is not None:
        ranked = ranked * candidates.weights
    sums = np.stack([ranked[:, fold == part].sum(axis=1) for part in range(FOLDS)])
    best = np.argmax(sums.sum(axis=0) - sums, axis=1)
    count = counts[int(np.argmax(sums.sum(axis=0)))]
    everything = list(range(len(candidates)))
    whole = fit_booster(candidates, everything, trees=count, seed=seed, threads=threads)
    honest = [scores[best[fold[query]]][query] for query in everything]
    return CrossFit(honest, trees_of(whole), [counts[place] for place in best.tolist()])
