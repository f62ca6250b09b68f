"""Count what people chose: after each query, or at all."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from fullrank.encoding import Encoded, Rows
from fullrank.models.memory import MemoryModel, query_key
from fullrank.storage.lexicon import Lexicon
from trainer.features.corpus import Corpus
from trainer.recipes.recipe import Recipe
from trainer.recipes.settings import MemorySettings
from trainer.training.context import TrainingContext
from trainer.training.fitted import FittedModel, text_encoder
from trainer.training.loop import TrainingRun

MEMORY = Recipe("memory", system="memory")
POPULARITY = Recipe("popularity", system="memory", memory=MemorySettings(of="documents"))
BESIDE_BM25 = (0.1, 0.3, 1.0, 3.0)
"""Weights of popularity, of which a baseline has the best one."""


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Count the judgements of training by their weights; one without a weight counts once."""
    corpus, kappa = context.corpus, recipe.memory.kappa
    pairs, count = corpus.pairs, len(corpus.collection.document_ids)
    rows = pairs.relevant.entries
    clicks = np.ones(len(rows), np.float32) if pairs.weights is None else pairs.weights.entries
    sources = tuple(corpus.sources)
    nothing = Lexicon.of([]), np.zeros(0, np.float32)
    if recipe.memory.of == "documents":
        chosen = np.bincount(rows, clicks, count)
        bias = np.log1p(chosen).astype(np.float32)
        # Nobody had the chance to choose a new document, so it counts as one of the middle.
        middle = 0.0 if corpus.unjudged.all() else float(np.median(bias[~corpus.unjudged]))
        bias[corpus.unjudged] = middle
        model = MemoryModel(*nothing, kappa, sources, middle)
        documents = Encoded.from_rows(Rows.empty(count, 0), bias=bias)
        return FittedModel(model, documents, text_encoder(corpus, model))
    keys, features = _keys(corpus)
    known = features >= 0
    totals = np.bincount(features[known], clicks[known], len(keys)).astype(np.float32)
    model = MemoryModel(Lexicon.of(keys), totals, kappa, sources, is_of_queries=True)
    entries = clicks[known].astype(np.float32), (rows[known], features[known])
    table = sp.csr_array(entries, shape=(count, len(keys)))
    table.sum_duplicates()
    table.data = np.log1p(table.data / np.float32(kappa))
    return FittedModel(model, Encoded.from_rows(Rows.from_csr(table)), text_encoder(corpus, model))


def _keys(corpus: Corpus) -> tuple[list[str], np.ndarray]:
    """Return the distinct queries of training, and which of them each judged pair has; -1: it is not remembered."""
    queries = corpus.collection.queries
    relevant = corpus.pairs.relevant
    if queries is None:
        return [], np.full(len(relevant.entries), -1, np.int64)
    number: dict[str, int] = {}
    found = []
    for row in relevant.rows.tolist():
        key = query_key(queries[row].text)
        found.append(-1 if key is None else number.setdefault(key, len(number)))
    return [*number], np.repeat(np.array(found, np.int64), relevant.sizes)
