"""The first documents of each validation query, as the second stage gets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.encoding import Encoded, Float32, Int64
from fullrank.measures import RANKING_MEASURES, Float64, ranking_measures
from fullrank.models.contract import Mask
from fullrank.rerank.facts import DocumentFacts
from fullrank.rerank.features import was_chosen
from fullrank.rerank.stage import DEPTH, SecondStage, first_of, order_of
from fullrank.retrieval import Ranking, Retriever
from fullrank_trainer.evaluation.evaluate import measure_rankings, ranked_grades
from fullrank_trainer.evaluation.judgement import Judgement, relative_weights


@dataclass(frozen=True, eq=False)
class Candidates:
    """The first documents of B queries, R_i of query i.

    Attributes:
        features: float32 (R_i, K) of each query.
        grades: int64 of each query, of the whole measured ranking; zero if not relevant.
        ideal: int64 of each query, the grades of all its relevant documents.
        names: of the features.
        weights: float64 (B,), of the queries, with a mean of 1; None: all are alike.
        moved: bool (R_i,) of each query, the documents that a second stage moves; None: all.
    """

    features: Sequence[Float32]
    grades: Sequence[Int64]
    ideal: Sequence[Int64]
    names: tuple[str, ...]
    weights: Float64 | None = None
    moved: Sequence[Mask] | None = None

    def __len__(self) -> int:
        return len(self.features)

    def labels(self, query: int) -> Int64:
        """Return the grades of the first documents, int64 (R_i,)."""
        return self.grades[query][: len(self.features[query])]

    def measure(self, scores: Sequence[Float64] | None = None) -> dict[str, Float64]:
        """Measure all queries.

        Args:
            scores: of the first documents of each query, which they are ordered by; None keeps the order.

        Returns:
            measure → float64 (B,).
        """
        values = {name: np.zeros(len(self)) for name in RANKING_MEASURES}
        for i, grades in enumerate(self.grades):
            if scores is not None:
                order = order_of(scores[i], None if self.moved is None else self.moved[i])
                grades = np.concatenate([grades[order], grades[len(order) :]])
            for name, value in ranking_measures(grades, self.ideal[i]).items():
                values[name][i] = value
        return values


def collect(
    retriever: Retriever,
    queries: Encoded,
    texts: Sequence[str],
    judgements: Sequence[Judgement],
    stage: SecondStage,
    facts: DocumentFacts,
) -> Candidates:
    """Rank all documents for judged queries and compute the features of the first ones.

    Args:
        retriever: ranks the documents.
        queries: B encoded queries.
        texts: of the queries.
        judgements: of the queries.
        stage: computes the features.
        facts: about all documents.
    """
    features: list[Float32] = []
    grades: list[Int64] = []

    def keep(judgement: Judgement, ranking: Ranking) -> None:
        first, rows = first_of(ranking), ranking.rows[:DEPTH]
        features.append(stage.features(texts[len(features)], first, facts.take(rows)))
        grades.append(ranked_grades(ranking.rows, judgement))

    measure_rankings(
        retriever,
        queries,
        judgements,
        documents=len(facts),
        with_rank_loss=False,
        on_ranking=keep,
    )
    ideal = [judgement.grades for judgement in judgements]
    moved = None if stage.moves_all else [was_chosen(found) for found in features]
    return Candidates(features, grades, ideal, stage.names, relative_weights(judgements), moved)
