"""The judgements of a split, as rows of the ranked documents.

A query's mate (the document that it is, or describes in another language) is no candidate for it. Documents that an
excluded split judges relevant to a query are no candidates for it either, so a model neither gains nor loses by having
learned them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fullrank.encoding import Float64, Int64
from fullrank.errors import CollectionError
from fullrank_trainer.collection import Collection, Qrels, relevant


@dataclass(frozen=True, eq=False)
class Judgement:
    """The judgements of one query, as rows of the ranked documents.

    Attributes:
        query: its id.
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
        collection: the collection.
        split: its queries are measured.
        exclude_splits: their relevant documents are no candidates.
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
