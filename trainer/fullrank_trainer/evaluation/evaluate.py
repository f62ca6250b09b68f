"""Evaluation: rank all candidates by the code that serves, then measure the rankings.

evaluate()            measures a bundle on a split of a collection
measure_rankings()    measures the rankings of any Retriever
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fullrank.bundle import Bundle
from fullrank.errors import CollectionError
from fullrank.measures import (
    MEASURES,
    RANKING_MEASURES,
    Estimate,
    estimates,
    rank_loss,
    ranking_measures,
)
from fullrank.models.contract import Model
from fullrank.progress import Reporter
from fullrank.retrieval import Ranking, Retriever
from fullrank.storage.encoding import Encoded, Float32, Float64, Int64
from fullrank_trainer.collection import Collection, Qrels, relevant
from fullrank_trainer.evaluation.trec import RunWriter

# The judgements of a split, as rows of the ranked documents.
#
# A query's mate (the document that it is, or describes in another language) is no candidate for it. Documents that an
# excluded split judges relevant to a query are no candidates for it either, so a model neither gains nor loses by
# having learned them.


@dataclass(frozen=True, eq=False)
class Judgement:
    """The judgements of one query, as rows of the ranked documents.

    Attributes:
        relevant: int64 (R,), ascending, R > 0, none of them excluded.
        grades: int64 (R,), above zero.
        excluded: int64 (E,), ascending, the rows that are no candidates.
        weight: sum of the weights of the judgements; 1 in a split without weights.
        shown: int64 (S,), ascending: only these rows are candidates, because clicks judge only what was shown; None:
            all rows are.
        clicks: float64 (R,), the weight of each relevant row; None in a split without weights.
    """

    query: str
    relevant: Int64
    grades: Int64
    excluded: Int64
    weight: float = 1.0
    shown: Int64 | None = None
    clicks: Float64 | None = None

    @property
    def weights(self) -> Float64:
        """The weight of each relevant row, float64 (R,); 1 in a split without weights."""
        return np.ones(len(self.relevant)) if self.clicks is None else self.clicks

    def left_out(self, documents: int, start: int = 0) -> npt.NDArray[np.bool_]:
        """Return which of so many rows from ``start`` on are no candidates, bool (documents,)."""
        found = np.full(documents, self.shown is not None)
        for rows, is_out in ((self.shown, False), (self.excluded, True)):
            if rows is not None:
                first, last = np.searchsorted(rows, (start, start + documents))
                found[rows[first:last] - start] = is_out
        return found


def judge(
    collection: Collection,
    split: str,
    exclude_splits: Sequence[str] = (),
    *,
    rows: Mapping[str, int] | None = None,
) -> tuple[list[Judgement], int]:
    """Collect the queries of a split that have a relevant candidate.

    Args:
        rows: document id → row of the ranked documents; by default the collection's own rows.

    Returns:
        (the judgements, in order of the queries; the number of judged queries without a relevant candidate).

    Raises:
        CollectionError: the split is unknown, excludes itself or has nothing to measure, or a judged document has no
            row.
    """
    if split in exclude_splits:
        raise CollectionError(f"split {split!r} cannot be both measured and excluded")
    qrels = collection.qrels(split)
    excluded = [collection.qrels(name) for name in exclude_splits]
    if rows is None:
        rows = collection.document_ids.rows
    weights = collection.weights.get(split)
    judgements = []
    for query in collection.query_ids:
        if query in qrels:
            judgement = _judge_query(collection, query, qrels, excluded, rows, weights)
            if len(judgement.relevant):
                judgements.append(judgement)
    if not judgements:
        raise CollectionError(
            f"{collection.path}: split {split!r} has no query with a relevant candidate"
        )
    return judgements, len(qrels) - len(judgements)


def _judge_query(
    collection: Collection,
    query: str,
    qrels: Qrels,
    excluded_qrels: Sequence[Qrels],
    rows: Mapping[str, int],
    weights: Mapping[str, Mapping[str, float]] | None,
) -> Judgement:
    excluded = {name for other in excluded_qrels for name in relevant(other.get(query, {}))}
    if collection.has_mates:
        excluded.add(query)
    # A table makes the dictionary of a query anew for each look-up.
    grades, weight_of = qrels[query], None if weights is None else weights.get(query, {})
    kept = [d for d in relevant(grades) if d not in excluded]
    ids = {_row(rows, document): document for document in kept}
    graded = {row: grades[document] for row, document in ids.items()}
    ordered = sorted(graded)
    return Judgement(
        query,
        np.array(ordered, np.int64),
        np.array([graded[row] for row in ordered], np.int64),
        np.array(sorted(_row(rows, document) for document in excluded), np.int64),
        1.0 if weight_of is None else sum(weight_of.get(d, 1.0) for d in kept),
        None if weight_of is None else shown_rows(grades, rows),
        None if weight_of is None else np.array([weight_of.get(ids[row], 1.0) for row in ordered]),
    )


def shown_rows(grades: Mapping[str, int], rows: Mapping[str, int]) -> Int64 | None:
    """Return the rows of all judged documents, ascending; None if none of them is judged not to be relevant.

    A model that never showed a document cannot have got a click on it. Ranked among all documents, the model that made
    the lists would win; ranked among those that were shown, each model has the same chance.
    (T. Sakai: Alternatives to bpref. SIGIR 2007: condensed lists.)
    """
    if all(grade > 0 for grade in grades.values()):
        return None
    return np.array(sorted(rows[d] for d in grades if d in rows), np.int64)


def relative_weights(judgements: Sequence[Judgement]) -> Float64 | None:
    """Return the weight of each query, with a mean of 1; None if all are alike."""
    weights = np.array([judgement.weight for judgement in judgements], np.float64)
    if not len(weights) or (weights == weights[0]).all():
        return None
    found: Float64 = weights / weights.mean()
    return found


def _row(rows: Mapping[str, int], document: str) -> int:
    try:
        return rows[document]
    except KeyError:
        raise CollectionError(f"document {document!r} is judged but the bundle lacks it") from None


DEPTH = 1000
"""Documents per query in a run, by TREC's convention."""

T = TypeVar("T")
Reorder = Callable[[int, Ranking], Ranking]

_BATCH_CELLS = 1 << 23  # scores in memory: 32 MiB of float32
_ENCODE_QUERIES = 512


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The measures of one bundle on one split.

    Attributes:
        left_out: queries of the split without a relevant candidate.
        per_query: measure → float64 (queries,), in the order of query_ids.
    """

    split: str
    excluded_splits: tuple[str, ...]
    documents: int
    queries: int
    left_out: int
    depth: int
    seconds: float
    measures: dict[str, Estimate]
    query_ids: list[str]
    per_query: dict[str, Float64]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form that ``fullrank evaluate --json`` prints."""
        return {
            "split": self.split,
            "excluded_splits": list(self.excluded_splits),
            "documents": self.documents,
            "queries": self.queries,
            "queries_left_out": self.left_out,
            "depth": self.depth,
            "seconds": round(self.seconds, 3),
            "measures": {name: value.as_dict() for name, value in self.measures.items()},
        }


def query_texts(collection: Collection, model: Model, ids: Sequence[str]) -> list[str]:
    """Return the texts of queries; for documents that are queries, model.query_text() of their fields."""
    rows = collection.query_ids.rows
    if collection.queries is not None:
        return [collection.queries[rows[id]].text for id in ids]
    return [model.query_text(collection.documents[rows[id]].fields) for id in ids]


def reordering(bundle: Bundle, texts: Sequence[str], *, is_document: bool = False) -> Reorder:
    """Return the second stage of a bundle, called with the place of a query among ``texts`` and its ranking."""

    def reorder(i: int, ranking: Ranking) -> Ranking:
        found = bundle.reorder(texts[i], ranking, is_document=is_document)
        return ranking if found is None else ranking.take(found.places(len(ranking.rows)))

    return reorder


def measure_rankings(
    retriever: Retriever,
    queries: Encoded,
    judgements: Sequence[Judgement],
    *,
    documents: int,
    depth: int = DEPTH,
    with_rank_loss: bool = True,
    reorder: Reorder | None = None,
    on_ranking: Callable[[Judgement, Ranking], None] | None = None,
) -> dict[str, Float64]:
    """Rank documents for queries and measure each ranking.

    Args:
        with_rank_loss: False leaves out rank_loss, the only measure that needs every score.
        reorder: the second stage, called with the place of a query and its ranking. It changes no score, so rank_loss
            stays that of the first stage.

    Returns:
        measure → float64 (B,), in the order of the judgements.

    Raises:
        ValueError: the numbers of queries and judgements differ.
    """
    if len(queries) != len(judgements):
        raise ValueError(f"{len(queries)} queries, {len(judgements)} judgements")
    names = MEASURES if with_rank_loss else RANKING_MEASURES
    values = {name: np.zeros(len(judgements)) for name in names}
    ranked = rank_in_batches(retriever, queries, judgements, documents, depth)
    for i, (judgement, (ranking, scores, deleted)) in enumerate(
        zip(judgements, ranked, strict=True)
    ):
        if reorder is not None:
            ranking = reorder(i, ranking)
        for name, value in measures_of(ranking.rows[:depth], judgement).items():
            values[name][i] = value
        if with_rank_loss:
            candidates = None if deleted is None else ~deleted
            values["rank_loss"][i] = rank_loss(scores, judgement.relevant, candidates)
        if on_ranking is not None:
            on_ranking(judgement, ranking)
    return values


def rank_in_batches(
    retriever: Retriever,
    queries: Encoded,
    judgements: Sequence[Judgement],
    documents: int,
    depth: int,
    start: int = 0,
) -> Iterator[tuple[Ranking, Float32, npt.NDArray[np.bool_] | None]]:
    """Yield of each query its ranking, the scores of all documents, and which are no candidates (None: all are).

    The retriever's first document has the row ``start`` in the judgements.
    """
    step = max(1, min(256, _BATCH_CELLS // max(1, documents)))
    for first in range(0, len(judgements), step):
        batch = judgements[first : first + step]
        encoded = queries.slice(first, first + len(batch))
        deleted = _mask(batch, documents, start)
        scores = retriever.scores(encoded)
        rankings = retriever.search(encoded, depth, deleted=deleted, scanned=scores)
        for i, ranking in enumerate(rankings):
            yield ranking, scores[i], None if deleted is None else deleted[i]


def measures_of(rows: Int64, judgement: Judgement) -> dict[str, float]:
    """Measure the ranking of one query, given by the rows of its documents, best first."""
    return ranking_measures(ranked_grades(rows, judgement), judgement.grades)


def _mask(batch: Sequence[Judgement], documents: int, start: int) -> npt.NDArray[np.bool_] | None:
    """Return bool (batch, documents), True for no candidate; None if all are candidates."""
    if not any(len(j.excluded) or j.shown is not None for j in batch):
        return None
    return np.array([judgement.left_out(documents, start) for judgement in batch])


def evenly_spread(count: int, limit: int) -> Int64:
    """Choose at most ``limit`` of ``count`` places, evenly spread; 0 chooses all."""
    if not limit or count <= limit:
        return np.arange(count)
    return np.linspace(0, count - 1, limit).round().astype(np.int64)


def evenly_chosen(items: Sequence[T], limit: int) -> list[T]:
    """Choose at most ``limit`` of some items, evenly spread; 0 chooses all."""
    return [items[place] for place in evenly_spread(len(items), limit).tolist()]


def ranked_grades(rows: Int64, judgement: Judgement) -> Int64:
    """Return the grade at every rank; zero if not relevant."""
    place = np.searchsorted(judgement.relevant, rows)
    place[place == len(judgement.relevant)] = 0
    return np.where(judgement.relevant[place] == rows, judgement.grades[place], 0)


def evaluate(
    bundle: Bundle,
    collection: Collection,
    split: str,
    exclude_splits: Sequence[str] = (),
    run: str | Path | None = None,
    depth: int = DEPTH,
    progress: Reporter | None = None,
) -> Evaluation:
    """Measure a bundle on a split of a collection.

    Args:
        run: file to write the rankings to as a TREC run. Given the split's qrels, ir-measures and trec_eval compute
            the same measures from it.

    Raises:
        CollectionError: see ``judge``.

    Example:
        >>> found = evaluate(open_bundle("bundles/shop/…"), read_collection("shop"), "test")
        >>> found.measures["ndcg@10"].mean
        0.41
    """
    started = time.perf_counter()
    ids = list(bundle.documents.ids)
    rows = {id: row for row, id in enumerate(ids)}
    judgements, left_out = judge(collection, split, exclude_splits, rows=rows)
    texts = query_texts(collection, bundle.model, [judgement.query for judgement in judgements])
    is_typed = not collection.documents_are_queries
    model = bundle.model if is_typed else bundle.model.for_documents
    parts: list[dict[str, Float64]] = []
    reporter = progress or Reporter(quiet=True)
    stage_of_bundle = bundle.second_stage
    is_plain = stage_of_bundle is None or stage_of_bundle.of_documents == is_typed
    with (
        RunWriter(run, bundle.version) if run is not None else nullcontext() as writer,
        reporter.stage("evaluate", len(judgements)) as stage,
    ):

        def write(judgement: Judgement, ranking: Ranking) -> None:
            if writer is not None:
                documents = [ids[row] for row in ranking.rows]
                # Programs that read a run sort it by score, which a second stage does not follow.
                scores = ranking.scores if is_plain else np.arange(len(documents), 0.0, -1.0)
                writer.write(judgement.query, documents, scores)

        for start in range(0, len(judgements), _ENCODE_QUERIES):
            stop = min(start + _ENCODE_QUERIES, len(judgements))
            reorder = reordering(bundle, texts[start:stop], is_document=not is_typed)
            parts.append(
                measure_rankings(
                    bundle.retriever,
                    model.encode_queries(texts[start:stop]),
                    judgements[start:stop],
                    documents=len(ids),
                    depth=depth,
                    reorder=None if is_plain else reorder,
                    on_ranking=write,
                )
            )
            stage.advance(stop - start)
    per_query = {name: np.concatenate([part[name] for part in parts]) for name in MEASURES}
    return Evaluation(
        split=split,
        excluded_splits=tuple(exclude_splits),
        documents=len(ids),
        queries=len(judgements),
        left_out=left_out,
        depth=depth,
        seconds=time.perf_counter() - started,
        measures=estimates(per_query, relative_weights(judgements)),
        query_ids=[judgement.query for judgement in judgements],
        per_query=per_query,
    )
