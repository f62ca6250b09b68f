"""Measuring a model on the validation split while it is being trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fullrank.encoding import Encoded, Float32, Int64
from fullrank.features import Rows, rows_of
from fullrank.measures import Estimate, estimates
from fullrank.models.linear.towers import Tower
from fullrank.retrieval import Retriever
from trainer.collection import Collection
from trainer.evaluation.evaluate import DEPTH, Judgement, judge, measure_rankings
from trainer.features.corpus import Corpus
from trainer.features.data import Features
from trainer.systems.linear.parameters import Parameters
from trainer.systems.linear.towers import forward
from trainer.training.fitted import Fitted


@dataclass(frozen=True, eq=False)
class Validation:
    """Queries of the validation split: their rows, and what is judged of each."""

    split: str
    rows: Int64
    judgements: list[Judgement]

    def measure(
        self, documents: Encoded, queries: Encoded, *, depth: int = DEPTH
    ) -> dict[str, Estimate]:
        """Means and standard errors over the queries, of the first ``depth`` places, without the rank loss."""
        return self._measure(Retriever(documents), queries, depth, with_rank_loss=False)

    def measure_fitted(self, fitted: Fitted) -> dict[str, Estimate]:
        """All measures of a fitted model, through the code that serves."""
        documents = fitted.documents
        retriever = Retriever(documents, fitted.model.scorer(documents))
        return self._measure(retriever, fitted.encode(self.rows), DEPTH, with_rank_loss=True)

    def _measure(
        self, retriever: Retriever, queries: Encoded, depth: int, *, with_rank_loss: bool
    ) -> dict[str, Estimate]:
        values = measure_rankings(
            retriever,
            queries,
            self.judgements,
            documents=len(retriever.documents),
            depth=depth,
            with_rank_loss=with_rank_loss,
        )
        return estimates(values)


def validation(corpus: Corpus, limit: int, split: str = "valid") -> Validation | None:
    """At most ``limit`` queries of a split (0: all), evenly spread; None where there is no such split.

    Links of the training split are no candidates, as they will not be when the model is measured.
    """
    collection: Collection = corpus.collection
    if split not in collection.splits:
        return None
    exclude = [name for name in ("train",) if name in collection.splits]
    judgements, _ = judge(collection, split, exclude)
    if limit and len(judgements) > limit:
        chosen = np.linspace(0, len(judgements) - 1, limit).round().astype(int)
        judgements = [judgements[i] for i in chosen.tolist()]
    place = {query: row for row, query in enumerate(corpus.query_ids)}
    rows = np.array([place[judgement.query] for judgement in judgements], np.int64)
    return Validation(split, rows, judgements)


def scan_documents(features: Features, parameters: Parameters) -> Encoded:
    """The corpus under some parameters, without compiling a model: v, t = Σ_f D_f z_f."""
    parts = [
        z.with_values(z.values * parameters.D[f, z.indices]).csr() for f, z in enumerate(features.z)
    ]
    t = rows_of(sp.csr_array(sum(parts[1:], parts[0])))
    unit = 1.0 if features.settings.cosine else 0.0
    dense = _embed(features.xd, parameters.V, parameters.document, unit, features.documents)
    return _encoded(dense, t, parameters.bias)


def scan_queries(features: Features, parameters: Parameters, rows: Int64) -> Encoded:
    """Queries by row under some parameters: u, s."""
    s = features.s.take(rows)
    xq = features.xq.take(rows) if len(parameters.U) else features.xq
    dense = _embed(xq, parameters.U, parameters.query, features.settings.cosine, len(rows))
    return _encoded(dense, s, np.zeros(len(rows), np.float32))


def _embed(x: Rows, table: Float32, tower: Tower, gamma: float, count: int) -> Float32:
    if not len(table):
        return np.zeros((count, 0), np.float32)
    return forward(x, table, tower, gamma).u


def _encoded(dense: np.ndarray, rows: Rows, bias: np.ndarray) -> Encoded:
    return Encoded(dense, rows.indptr, rows.indices, rows.values, rows.width, bias)


@dataclass(frozen=True)
class Row:
    """One line of the table that every training prints and stores."""

    system: str
    split: str
    queries: int
    measures: Mapping[str, Estimate]

    def as_dict(self) -> dict[str, Any]:
        """system, split, queries, then each measure and its standard error as ``<measure>_se``."""
        line: dict[str, Any] = {
            "system": self.system, "split": self.split, "queries": self.queries
        }  # fmt: skip
        for name, estimate in self.measures.items():
            line[name] = estimate.mean
            line[f"{name}_se"] = estimate.standard_error
        return line
