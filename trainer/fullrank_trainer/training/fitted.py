"""The result of fitting a recipe by any system."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from fullrank.encoding import Encoded, Int64
from fullrank.models.contract import Model
from fullrank_trainer.evaluation.evaluate import query_texts
from fullrank_trainer.features.corpus import Corpus
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.training.learned import Learned
from fullrank_trainer.training.memory import ArrayFiles
from fullrank_trainer.training.result import ResultRow


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A model that can be measured and written.

    Attributes:
        model: the model.
        documents: the corpus as the bundle stores it, with learned biases and document vectors.
        encode: encodes queries of the collection, given by row.
        facts: for the model card: best_epoch, history, chosen values.
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
    """Encode the texts of the corpus by the model."""
    return model.encode_documents(
        [document.texts(corpus.sources) for document in corpus.collection.documents]
    )
