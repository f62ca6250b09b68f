"""What fitting a recipe yields, whichever system it is of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fullrank.encoding import Encoded, Int64
from fullrank.model import Model
from trainer.evaluation.evaluate import query_texts
from trainer.features.corpus import Corpus


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model ready to be measured and written.

    documents  the corpus as the bundle stores it: learned biases and item vectors included
    encode     queries of the collection, by row, as the model encodes them
    facts      for the model card: best_epoch, history, whatever was chosen
    """

    model: Model
    documents: Encoded
    encode: Callable[[Int64], Encoded]
    facts: dict[str, Any] = field(default_factory=dict)


def text_encoder(corpus: Corpus, model: Model) -> Callable[[Int64], Encoded]:
    """``Fitted.encode`` through the model's own front door: the queries' texts."""

    def encode(rows: Int64) -> Encoded:
        ids = [corpus.query_ids[row] for row in rows.tolist()]
        return model.encode_queries(query_texts(corpus.collection, model, ids))

    return encode


def encode_documents(corpus: Corpus, model: Model) -> Encoded:
    """The corpus through the model's own front door."""
    return model.encode_documents(
        [document.texts(corpus.sources) for document in corpus.collection.documents]
    )
