"""Two tasks that share V: queries in another language, and a monolingual task that regularises it.

    f(q_F, d_E) = q_Fᵀ U_Fᵀ V_E d_E          f(q_E, d_E) = q_Eᵀ V_Eᵀ V_E d_E          Bai et al. 2010, eq. 9, 10

The objective is the sum of both margin losses; a gradient step for one is followed by a gradient step for the other.
Written as one table [U_F; V_E], the second task is the model UᵀU over that table's lower rows and the first the same
model between its upper rows and its lower ones. So the kernel of the margin loss runs unchanged over a list that takes
its triples from the two tasks in turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fullrank.encoding import Int64
from fullrank.errors import TrainingError
from fullrank.features import Rows, count_corpus, rows_of
from trainer.collection import Collection, read_collection
from trainer.features.corpus import Pairs, mates_of, pairs_of
from trainer.features.data import Features
from trainer.recipes.settings import TrainSettings
from trainer.systems.linear.margin import MarginLearner, Triples, sample
from trainer.systems.linear.parameters import Parameters
from trainer.workshop import Workshop


@dataclass(frozen=True, eq=False)
class Task:
    """A monolingual task on the same documents.

    x      φ of its queries over the rows of V
    pairs  of its training split, by row of x
    mates  int64 (B,): the document that each query is, -1 where there is none
    """

    x: Rows
    pairs: Pairs
    mates: Int64
    fingerprint: str


def second_collection(workshop: Workshop, folder: str | Path) -> Collection:
    """A collection on the workshop's documents.

    Raises CollectionError where it cannot be read, and TrainingError where its documents are others.
    """
    collection = read_collection(folder)
    if collection.documents != workshop.collection.documents:
        raise TrainingError(
            f"train.monolingual: {folder} has other documents than {workshop.collection.path}"
        )
    return collection


def read_task(workshop: Workshop, folder: str | Path, features: Features) -> Task:
    """The task of a collection folder; where its documents are its queries, what they link to.

    Raises CollectionError where it cannot be read, and TrainingError where its documents are not the workshop's, no
    pair is judged or no query has a word that V knows.
    """
    collection, corpus = second_collection(workshop, folder), workshop.corpus
    if collection.queries is None:
        ids = [document.id for document in collection.documents]
        words, counts = corpus.counts.words, corpus.documents
    else:
        ids = [query.id for query in collection.queries]
        texts = [query.text for query in collection.queries]
        counted = count_corpus([texts], processes=corpus.processes)
        words, counts = counted.words, counted.columns[0]
    pairs = pairs_of(collection, ids, "train")
    if not len(pairs):
        raise TrainingError(f"train.monolingual: {folder} has no judged pair in its split 'train'")
    side = features.model.document
    x = features.rows_d.trained(side, *side.features(words, [counts], [1.0]))
    if not x.take(pairs.queries).values.any():
        raise TrainingError(f"train.monolingual: no query of {folder} has a word of the documents")
    return Task(x, pairs, mates_of(collection, ids), collection.fingerprint)


class JointLearner(MarginLearner):
    """The margin loss of two tasks in turn.

    U and V, what is measured and stored, are the upper and lower rows of one table.
    """

    def __init__(
        self, features: Features, train: TrainSettings, rng: np.random.Generator, second: Task
    ) -> None:
        super().__init__(features, train, rng)
        self.per_epoch *= 2
        p, upper = self.values, len(self.values.U)
        table = np.concatenate([p.U, p.V])
        self.values = replace(p, U=table[:upper], V=table[upper:])
        self._table = Parameters(table, table, p.D, p.bias)
        self._both, self._second = stacked(features, second)

    def stepped(self) -> tuple[Features, Parameters]:
        """Both tasks, on one table."""
        return self._both, self._table

    def draw(self, count: int) -> Triples:
        """``count`` triples, or one more, the two tasks in turn.

        Several threads take every so-manieth triple each: two threads have a task each, at the same time.
        """
        half = (count + 1) // 2
        tasks = [sample(p, self._both, half, self.rng) for p in (self._both.pairs, self._second)]
        queries, positives, negatives = (
            np.stack(columns, axis=1).ravel() for columns in zip(*tasks, strict=True)
        )
        return queries, positives, negatives


def stacked(features: Features, second: Task) -> tuple[Features, Pairs]:
    """Both tasks' queries one below the other over the rows of [U; V], and the second's pairs as their rows.

    The second task's queries have no exact-match part.
    """
    first, upper = len(features.xq), features.xq.width
    x = sp.block_diag([features.xq.csr(), second.x.csr()], format="csr")
    both = replace(
        features,
        xq=rows_of(sp.csr_array(x)),
        xd=_lowered(features.xd, upper),
        s=_longer(features.s, len(second.x)),
        mates=np.concatenate([features.mates, second.mates]),
    )
    queries = second.pairs.queries + first
    relevant = {row + first: documents for row, documents in second.pairs.relevant.items()}
    return both, Pairs(queries, relevant)


def _lowered(rows: Rows, by: int) -> Rows:
    """Every column moved to the right by so many."""
    return Rows(rows.indptr, rows.indices + np.int32(by), rows.values, rows.width + by)


def _longer(rows: Rows, by: int) -> Rows:
    """So many empty rows below."""
    indptr = np.concatenate([rows.indptr, np.full(by, rows.indptr[-1])])
    return Rows(indptr, rows.indices, rows.values, rows.width)
