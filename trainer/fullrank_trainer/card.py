"""The model card: what a bundle was trained from, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fullrank.bundle import find_bundle
from fullrank.errors import BundleNotFound
from fullrank.models.contract import Model
from fullrank.models.memory import MemoryModel
from fullrank.models.mixed import MixedModel
from fullrank.storage.encoding import Encoded
from fullrank_trainer.collection import Collection
from fullrank_trainer.evaluation.evaluate import evenly_chosen, query_texts
from fullrank_trainer.evaluation.floor import CalibratedFloor, calibrate_floor
from fullrank_trainer.features.corpus import Corpus
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.training.fitted import ResultRow
from fullrank_trainer.training.validation import CALIBRATING, Validation, typed_queries

GOLDEN = 20  # replayed whenever the bundle is opened
TUNING = 400  # half tune the fast mode, half measure its recall
MAX_CHARACTERS = 400


@dataclass(frozen=True, eq=False)
class Sampled:
    corpus: Corpus
    model: Model
    valid: Validation | None

    def golden(self) -> list[str]:
        """Return queries whose results the bundle stores and checks whenever it is opened."""
        return self._texts(evenly_chosen(self.corpus.public_queries, GOLDEN))

    def tuning(self) -> list[str]:
        """Return queries to tune the fast mode with, of the validation split if there is one."""
        ids = (
            self.corpus.query_ids
            if self.valid is None
            else [judgement.query for judgement in self.valid.judgements]
        )
        texts = self._texts(evenly_chosen(ids, TUNING))
        if self._typed is None:
            return texts
        return texts[::2] + (self._typed.spread(TUNING // 2).texts or [])

    def floor(self, documents: Encoded) -> CalibratedFloor | None:
        """Choose the evidence that a document needs to be found, by validation queries if there are any.

        Memory knows these queries, as it will not know those of people, so it is left aside.
        """
        model = self.model
        if isinstance(model, MixedModel):
            pairs = zip(model.models, model.weights, strict=True)
            weights = [0.0 if isinstance(part, MemoryModel) else weight for part, weight in pairs]
            model = replace(model, weights=weights)
        if self._typed is not None:
            typed = self._typed.spread(CALIBRATING)
            return calibrate_floor(model, documents, typed.texts or [], typed.judgements)
        if self.valid is None:
            texts = self._texts(evenly_chosen(self.corpus.query_ids, CALIBRATING))
            found = calibrate_floor(model, documents, texts)
        else:
            judgements = self.valid.spread(CALIBRATING).judgements
            texts = self._texts([judgement.query for judgement in judgements])
            found = calibrate_floor(model, documents, texts, judgements)
        if found is None or (found.words is None and not self.model.n_dense):
            # No document has a word of these queries: by them, no word would ever be evidence.
            some = evenly_chosen(self.corpus.collection.documents, CALIBRATING)
            texts = [self.model.query_text(document.fields)[:MAX_CHARACTERS] for document in some]
            found = calibrate_floor(model, documents, texts)
        return found

    @cached_property
    def _typed(self) -> Validation | None:
        """Typed queries, if the model has weights for documents and others for these."""
        if self.model.for_documents is self.model:
            return None
        return typed_queries(self.corpus)[0]

    def _texts(self, ids: Sequence[str]) -> list[str]:
        texts = query_texts(self.corpus.collection, self.model, ids)
        return [text[:MAX_CHARACTERS] for text in texts]


def model_card(
    collection: Collection,
    recipe: Recipe,
    training: Mapping[str, Any],
    table: Sequence[ResultRow],
) -> dict[str, Any]:
    return {
        "recipe": recipe.as_dict(),
        "collection": {
            "fingerprint": collection.fingerprint,
            "documents": len(collection.documents),
            "splits": list(collection.splits),
            "fields": [verdict.as_dict() for verdict in collection.fields],
        },
        "table": [row.as_dict() for row in table],
        "training": dict(training),
    }


def newest_version(bundles: Path, name: str) -> str | None:
    try:
        return find_bundle(bundles, name).name
    except BundleNotFound:
        return None
