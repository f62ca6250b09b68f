"""The second stage: trees reorder the first documents of a ranking by features of each pair.

Only the order changes. A document's score stays u·v + s·t + b; below the first DEPTH documents the order stays too. So
does the place of a document that no training query led to: the trees have learned that such documents are no answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fullrank.retrieval.ranking import Ranking
from fullrank.search.rerank.facts import DocumentFacts, FactSettings
from fullrank.search.rerank.features import (
    FirstStage,
    Statistics,
    compute,
    in_list,
    names,
    was_chosen,
)
from fullrank.search.rerank.trees import Trees
from fullrank.storage.encoding import Float32, Float64, Int64, Mask

# Documents that the second stage reorders.
DEPTH = 100
_TREES, _STATISTICS = "trees.", "words."


class FeatureScore(NamedTuple):
    """One feature of a query and a document, and its contribution to the second score."""

    feature: str
    value: float
    contribution: float


@dataclass(frozen=True, slots=True)
class SecondScore:
    """The second score of one document: base + the contributions of all features.

    Attributes:
        score: The sum of the trees, by which the first documents are ordered.
        base: The same for every document.
        features: Those with a contribution, the largest first.
    """

    score: float
    base: float
    features: list[FeatureScore]

    def as_dict(self) -> dict[str, Any]:
        """Return it as a service answers it: ``fullrank.replies.SecondScore``."""
        split = [feature._asdict() for feature in self.features]
        return {"score": self.score, "base": self.base, "features": split}


@dataclass(frozen=True, eq=False)
class Reordered:
    """The order of the first R documents of a ranking.
    order: int64 (R,): first-stage places, best first, ties by first-stage place.
    scores: float64 (R,), by first-stage place.
    features: float32 (R, K), by first-stage place.
    """

    order: Int64
    scores: Float64
    features: Float32

    def places(self, total: int) -> Int64:
        """Return the first-stage place of each of `total` documents, best first, int64 (total,)."""
        return np.concatenate([self.order, np.arange(len(self.order), total)])


@dataclass(frozen=True, eq=False)
class SecondStage:
    """Trees over the features of pairs, and what the features need.

    Attributes:
        settings: What is read of documents.
        statistics: Of the training documents.
        trees: Whose sum is the second score.
        of_documents: Trained on queries that are documents; otherwise a document or a page as a query is unlike
            all that the trees have seen.
        moves_all: Documents that no training query led to are reordered too, as older bundles do.
    """

    settings: FactSettings
    statistics: Statistics
    trees: Trees
    of_documents: bool = False
    moves_all: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        found = names(self.settings.names)
        return found if self.settings.asked else found[:-1]

    def facts(self, documents: Sequence[Mapping[str, Any]]) -> DocumentFacts:
        """Read documents that are added to a bundle; training queries led to none of them."""
        return self.statistics.weigh(DocumentFacts.of(documents, self.settings))

    def features(self, text: str, first: FirstStage, facts: DocumentFacts) -> Float32:
        """Compute float32 (R, K): features of a query and its first documents, best first."""
        return compute(text, first, facts, self.statistics)[:, : len(self.names)]

    def order(self, text: str, first: FirstStage, facts: DocumentFacts) -> Reordered:
        """Order the first documents of a ranking."""
        return self.order_by(self.features(text, first, facts))

    def order_merged(self, features: Float32, scores: Float64) -> Reordered:
        """Order the first documents of a ranking that was merged from several.

        Args:
            features: float32 (R, K), as ``features`` returns them for the ranking that each document is from.
            scores: float64 (R,), their first scores, best first, at most DEPTH.
        """
        return self.order_by(in_list(features, scores))

    def order_by(self, features: Float32) -> Reordered:
        """Order the first documents of a ranking by their features, float32 (R, K), best first."""
        scores = self.trees.predict(features)
        chosen = None if self.moves_all else was_chosen(features)
        return Reordered(order_of(scores, chosen), scores, features)

    def explain(self, features: Float32) -> SecondScore:
        """Split the second score of one document, given its features, float32 (K,)."""
        [contributions] = self.trees.contributions(features[None])
        split = [
            FeatureScore(*item)
            for item in zip(self.names, features.tolist(), contributions.tolist(), strict=True)
            if item[2]
        ]
        split.sort(key=lambda item: (-abs(item.contribution), item.feature))
        base = self.trees.base
        return SecondScore(base + float(contributions.sum()), base, split)

    def config(self) -> dict[str, Any]:
        """Return the JSON settings."""
        return {
            "depth": DEPTH,
            "fields": [[name, list(sources)] for name, sources in self.settings.fields],
            "date": self.settings.date,
            "asked": self.settings.asked,
            "newest": self.statistics.newest,
            "mean_lengths": list(self.statistics.mean_lengths),
            "features": list(self.names),
            "of_documents": self.of_documents,
            "moves_all": self.moves_all,
        }

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays, without those about documents."""
        found = {_TREES + name: array for name, array in self.trees.arrays().items()}
        return found | {
            f"{_STATISTICS}numbers": self.statistics.words,
            f"{_STATISTICS}idf": self.statistics.idf,
        }

    @staticmethod
    def from_parts(
        config: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
    ) -> SecondStage:
        """Load `config()` and `arrays()`.

        Raises:
            ValueError: The parts do not fit each other, or the features are those of another release.
        """
        fields = tuple((str(name), tuple(map(str, sources))) for name, sources in config["fields"])
        words, idf = arrays[f"{_STATISTICS}numbers"], arrays[f"{_STATISTICS}idf"]
        if (words.dtype.str, idf.dtype.str) != ("<u4", "<f4") or words.shape != idf.shape:
            raise ValueError("words.numbers and words.idf differ in length")
        if words.ndim != 1 or np.any(words[1:] <= words[:-1]):
            raise ValueError("words.numbers do not ascend")
        lengths = tuple(float(length) for length in config["mean_lengths"])
        found = SecondStage(
            FactSettings(fields, str(config["date"]), str(config.get("asked", ""))),
            Statistics(words, idf, lengths, int(config["newest"])),
            Trees.from_arrays(
                {
                    name.removeprefix(_TREES): a
                    for name, a in arrays.items()
                    if name.startswith(_TREES)
                }
            ),
            bool(config["of_documents"]),
            bool(config.get("moves_all", True)),
        )
        if config["depth"] != DEPTH or config["features"] != list(found.names):
            raise ValueError("the second stage was written by another release; train it again")
        if len(lengths) != len(fields):
            raise ValueError(f"{len(lengths)} mean lengths of {len(fields)} fields")
        found.trees.check(len(found.names))
        return found


def order_of(scores: Float64, moved: Mask | None) -> Int64:
    """Order documents by second scores, ties by place.

    Args:
        moved: bool (R,), the documents that move; the others keep their places. None: all move.
    """
    order = np.arange(len(scores))
    rows = order if moved is None else np.flatnonzero(moved)
    order[rows] = rows[np.argsort(-scores[rows], kind="stable")]
    return order


def first_of(ranking: Ranking) -> FirstStage:
    """Return the scores of the first documents of a ranking."""
    columns = (ranking.scores, ranking.dense, ranking.lexical, ranking.bias)
    return FirstStage(*(column[:DEPTH] for column in columns))
