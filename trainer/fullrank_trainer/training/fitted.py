"""The result of fitting a recipe by any system, where the fit ended, and its line in the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from fullrank.measures import Estimate
from fullrank.models.contract import Model
from fullrank.storage.encoding import Encoded, Int64
from fullrank_trainer.evaluation.evaluate import query_texts
from fullrank_trainer.features.corpus import Corpus
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.training.checkpoint import stored_arrays
from fullrank_trainer.training.memory import ArrayFiles

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Learned:
    """Parameters and state of a fit; they fit any learner with the same matrices."""

    parameters: Mapping[str, npt.NDArray[Any]]
    state: Mapping[str, npt.NDArray[Any]]
    epochs: int

    @staticmethod
    def stored(path: Path, epochs: int) -> Learned:
        """Return where a finished run ended; the arrays stay in its checkpoint until they are read."""
        arrays = stored_arrays(path)
        return Learned(arrays.group("now."), arrays.group("state."), epochs)


LEARNED_VALID = "learned_valid"
"""Key of a training's facts: how many queries of valid the finished model knows, so that they cannot measure it."""
BASELINES = ("tfidf", "bm25")
"""Recipes that the table shows beside the model."""


@dataclass(frozen=True)
class ResultRow:
    """One line of the table that every training prints and stores."""

    system: str
    split: str
    queries: int
    measures: Mapping[str, Estimate]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form: system, split, queries, each measure, and ``<measure>_se``."""
        line: dict[str, Any] = {
            "system": self.system, "split": self.split, "queries": self.queries
        }  # fmt: skip
        for name, estimate in self.measures.items():
            line[name] = estimate.mean
            line[f"{name}_se"] = estimate.as_dict()["standard_error"]
        return line


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A model that can be measured and written.

    Attributes:
        documents: the corpus as the bundle stores it, with learned biases and document vectors.
        encode: encodes queries of the collection, given by row.
        settled: the recipe with what validation chose, so that a fit without validation repeats it; None if
            validation chose nothing.
        comparison: the model beside baselines, measured before all judgements went into it; empty if the
            finished model can be measured.
        learned: where the fit ended; None unless the run keeps its state and has a single member.
    """

    model: Model
    documents: Encoded
    encode: Callable[[Int64], Encoded]
    facts: dict[str, Any] = field(default_factory=dict)
    settled: Recipe | None = None
    comparison: tuple[ResultRow, ...] = ()
    learned: Learned | None = None

    def in_files(self, files: ArrayFiles) -> FittedModel:
        """Return the model with documents in files, and without ``encode``, which holds the matrices of all queries."""
        return replace(self, documents=files.put_encoded(self.documents), encode=_dropped)


def _dropped(_: Int64) -> Encoded:
    raise RuntimeError(
        "the encoder of the collection's queries was dropped before the bundle is written"
    )


def text_encoder(corpus: Corpus, model: Model) -> Callable[[Int64], Encoded]:
    """Return a ``FittedModel.encode`` that encodes the queries' texts by the model."""

    def encode(rows: Int64) -> Encoded:
        ids = [corpus.query_ids[row] for row in rows.tolist()]
        return model.encode_queries(query_texts(corpus.collection, model, ids))

    return encode


def encode_documents(corpus: Corpus, model: Model) -> Encoded:
    return model.encode_documents(
        [document.texts(corpus.sources) for document in corpus.collection.documents]
    )
