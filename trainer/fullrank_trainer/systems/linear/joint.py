"""Train two tasks that share V: queries in another language, and a monolingual task as regulariser.

    f(q_F, d_E) = q_Fᵀ U_Fᵀ V_E d_E          f(q_E, d_E) = q_Eᵀ V_Eᵀ V_E d_E          Bai et al. 2010, eq. 9, 10

The objective is the sum of both margin losses; gradient steps of the two tasks alternate. With one table [U_F; V_E],
both tasks are the model UᵀU: the second over the lower rows, the first between upper and lower rows. So the kernel of
the margin loss runs unchanged on triples that come from the two tasks in turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fullrank.encoding import Int64, Rows
from fullrank.errors import TrainingError
from fullrank.text.features import count_corpus
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.features.matrices import Features, composed
from fullrank_trainer.features.pairs import Pairs, judged_pairs, mate_rows
from fullrank_trainer.features.phi import Phi
from fullrank_trainer.recipes.settings import TrainSettings
from fullrank_trainer.systems.linear.margin import MarginLearner, Triples, sample
from fullrank_trainer.systems.linear.parameters import Parameters
from fullrank_trainer.training.context import TrainingContext


@dataclass(frozen=True, eq=False)
class Task:
    """A monolingual task on the same documents.

    Attributes:
        x: φ of its queries over the rows of V.
        pairs: judged pairs of its training split, by row of x.
        mates: int64 (queries,): the document that each query is; -1 without one.
        fingerprint: of its collection.
    """

    x: Rows
    pairs: Pairs
    mates: Int64
    fingerprint: str


def second_collection(context: TrainingContext, folder: str | Path) -> Collection:
    """Read a second collection with the same documents.

    Raises:
        CollectionError: it cannot be read.
        TrainingError: its documents differ.
    """
    fields = [verdict.name for verdict in context.collection.fields if verdict.is_read]
    collection = read_collection(folder, fields=fields)
    if collection.documents != context.collection.documents:
        raise TrainingError(
            f"train.monolingual: {folder} has other documents than {context.collection.path}"
        )
    if (skipped := collection.report.unknown_remark()) is not None:
        context.reporter.log("warning", reason=f"{folder}: {skipped}")
    return collection


def read_task(context: TrainingContext, folder: str | Path, features: Features) -> Task:
    """Read the second task; if its documents are its queries, the task is their links.

    Args:
        context: the main collection.
        folder: of the second collection.
        features: of the model.

    Raises:
        CollectionError: the folder cannot be read.
        TrainingError: the documents differ, no pair is judged, or no query has a word of the documents.
    """
    collection, corpus = second_collection(context, folder), context.corpus
    if collection.queries is None:
        words, counts = corpus.counts.words, corpus.documents
    else:
        counted = count_corpus([collection.query_texts], processes=corpus.processes)
        words, counts = counted.words, counted.columns[0]
    pairs = judged_pairs(collection, "train")
    if not len(pairs):
        raise TrainingError(
            f"train.monolingual: {folder} has no judged pair in its split 'train'; "
            "remove the setting or add judgements"
        )
    side = features.model.document
    x = composed(features.document_composition, side, words, [counts], [1.0])
    if not x.take(pairs.queries).values.any():
        raise TrainingError(f"train.monolingual: no query of {folder} has a word of the documents")
    return Task(x, pairs, mate_rows(collection), collection.fingerprint)


class JointLearner(MarginLearner):
    """The margin loss of two tasks in turn; U and V are the upper and lower rows of one table."""

    def __init__(
        self, features: Features, train: TrainSettings, rng: np.random.Generator, second: Task
    ) -> None:
        super().__init__(features, train, rng)
        self.per_epoch *= 2
        p, upper = self.values, len(self.values.U)
        table = np.concatenate([p.U, p.V])
        self.values = replace(p, U=table[:upper], V=table[upper:])
        self._table = Parameters(table, table, p.D, p.bias)
        self._both, self._second = stack(features, second)

    def step_input(self) -> tuple[Features, Parameters]:
        """Return both tasks, on one table."""
        return self._both, self._table

    def draw(self, count: int) -> Triples:
        """Draw ``count`` triples, or one more, from the two tasks in turn."""
        half = (count + 1) // 2
        tasks = [
            sample(pairs, self._both, half, self.rng, self.train.hardest_of)
            for pairs in (self._both.pairs, self._second)
        ]
        queries, positives, negatives = (
            np.stack(columns, axis=1).reshape(-1, *columns[0].shape[1:])
            for columns in zip(*tasks, strict=True)
        )
        return queries, positives, negatives


def stack(features: Features, second: Task) -> tuple[Features, Pairs]:
    """Stack the queries of both tasks over the rows of [U; V].

    Returns:
        The features of both tasks, and the second task's pairs by row of them. The second task's queries have no
        lexical part.
    """
    first, upper = len(features.xq), features.xq.width
    x = sp.block_diag([features.xq.csr(), second.x.csr()], format="csr")
    both = replace(
        features,
        xq=Rows.from_csr(sp.csr_array(x)),
        xd=Phi(_shift_columns(features.xd.composed(), upper)),
        s=_append_empty_rows(features.s, len(second.x)),
        mates=np.concatenate([features.mates, second.mates]),
    )
    queries = second.pairs.queries + first
    relevant, weights = second.pairs.relevant, second.pairs.weights
    relevant = replace(relevant, rows=relevant.rows + first)
    if weights is not None:
        weights = replace(weights, rows=relevant.rows)
    return both, Pairs(queries, relevant, weights=weights)


def _shift_columns(rows: Rows, by: int) -> Rows:
    """Shift all columns to the right."""
    return Rows(rows.indptr, rows.indices + np.int32(by), rows.values, rows.width + by)


def _append_empty_rows(rows: Rows, count: int) -> Rows:
    """Append empty rows."""
    indptr = np.concatenate([rows.indptr, np.full(count, rows.indptr[-1])])
    return Rows(indptr, rows.indices, rows.values, rows.width)
