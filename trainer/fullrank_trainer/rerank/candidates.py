"""The first documents of each validation query, as the second stage gets them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fullrank.measures import RANKING_MEASURES, Float64, ranking_measures
from fullrank.retrieval import Ranking, Retriever
from fullrank.search.rerank.facts import NO_DATE, DocumentFacts, FactSettings, day_of
from fullrank.search.rerank.features import was_chosen
from fullrank.search.rerank.stage import DEPTH, SecondStage, first_of, order_of
from fullrank.storage.documents import field_text
from fullrank.storage.encoding import Encoded, Float32, Int64, Mask
from fullrank_trainer.evaluation.evaluate import (
    Judgement,
    measure_rankings,
    ranked_grades,
    relative_weights,
)
from fullrank_trainer.features.corpus import Corpus
from fullrank_trainer.features.fields import CLICKED

# A field is a date if at least this share of the documents has one, and no document another text there.
_MIN_DATED = 0.5


def fact_settings(corpus: Corpus) -> FactSettings:
    """Choose the fields: every text field, clicked text, and a date if the documents have one."""
    names = [*corpus.sources, *([] if CLICKED in corpus.sources else [CLICKED])]
    return FactSettings(tuple((name, (name,)) for name in names), date_field(corpus), CLICKED)


def date_field(corpus: Corpus) -> str:
    """Return the first stored field, by name, that holds ISO 8601 dates; "" without one."""
    documents = corpus.collection.documents
    dated: dict[str, int] = {}
    other: set[str] = set()
    for document in documents:
        for name, value in document.fields.items():
            if day_of(value) != NO_DATE:
                dated[name] = dated.get(name, 0) + 1
            elif value is not None:
                other.add(name)
    enough = max(1.0, _MIN_DATED * len(documents))
    return min((n for n, count in dated.items() if n not in other and count >= enough), default="")


def document_facts(corpus: Corpus, settings: FactSettings) -> DocumentFacts:
    """Read the documents of a collection with the clicked text and clicks of its training split.

    No text of a validation query is in it, so features of validation queries are those of queries that training
    never saw.
    """
    led = np.bincount(corpus.pairs.entries, minlength=len(corpus.collection.documents))
    return DocumentFacts.of(list(_with_clicked_text(corpus)), settings, led.astype(np.int32))


def _with_clicked_text(corpus: Corpus) -> Iterator[Mapping[str, Any]]:
    """Yield the stored fields of each document and its clicked text.

    A document that is a query counts with its title, as in `fullrank_trainer.features.fields`.
    """
    collection = corpus.collection
    uses_titles = collection.documents_are_queries and "title" in corpus.sources
    texts = corpus.query_texts(["title"] if uses_titles else corpus.sources)
    clicked: list[list[str]] = [[] for _ in collection.documents]
    for query, rows in corpus.pairs.clicked.items():
        for row in rows.tolist():
            clicked[row].append(texts[query])
    for document, found in zip(collection.documents, clicked, strict=True):
        own = field_text(document.fields, [CLICKED])
        text = "\n".join([own, *found] if own else found)
        yield {**document.fields, CLICKED: text}


@dataclass(frozen=True, eq=False)
class Candidates:
    """The first documents of B queries, R_i of query i.

    Attributes:
        features: float32 (R_i, K) of each query.
        grades: int64 of each query, of the whole measured ranking; zero if not relevant.
        ideal: int64 of each query, the grades of all its relevant documents.
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
        return self.grades[query][: len(self.features[query])]

    def measure(self, scores: Sequence[Float64] | None = None) -> dict[str, Float64]:
        """Measure all queries, ordered by ``scores`` (None: as they are); measure → float64 (B,)."""
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
    """Rank all documents for judged queries and compute the features of the first ones."""
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
