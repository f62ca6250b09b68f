"""Count what people chose: after each query, or at all; and what queries with common answers lead to."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from fullrank.models.memory import LinkModel, MemoryModel, query_key, text_key
from fullrank.storage.encoding import Encoded, Rows
from fullrank.storage.strings import Lexicon
from fullrank_trainer.evaluation.evaluate import query_texts
from fullrank_trainer.features.corpus import Corpus
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.recipes.settings import setting
from fullrank_trainer.recipes.systems import System
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel, text_encoder
from fullrank_trainer.training.loop import TrainingRun


@dataclass(frozen=True)
class MemorySettings:
    """What people chose before."""

    # "queries": documents that people chose after a query; "documents": how often they chose a document at all;
    # "links": what queries with common answers lead to
    of: str = setting("queries", choices=("queries", "documents", "links"))


MEMORY = Recipe("memory", system="memory", own=MemorySettings())
POPULARITY = Recipe("popularity", system="memory", own=MemorySettings(of="documents"))
LINKS = Recipe("links", system="memory", own=MemorySettings(of="links"))
BESIDE_BM25 = (0.1, 0.3, 1.0, 3.0)
"""Weights of popularity, of which a baseline has the best one."""

_KAPPA = 3.0  # so many clicks count ln 2, ten times as many ln 11
_ALIKE = 100  # queries that recommend their answers, and answers that each query keeps
_SCALE = 5.0  # of the sum of their cosines
_BATCH = 512  # queries


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Count the judgements of training by their weights; one without a weight counts once."""
    corpus = context.corpus
    pairs, count = corpus.pairs, len(corpus.collection.document_ids)
    rows = pairs.entries
    clicks = np.ones(len(rows), np.float32) if pairs.weights is None else pairs.weights
    sources = tuple(corpus.sources)
    nothing = Lexicon.of([]), np.zeros(0, np.float32)
    if recipe.own.of == "links":
        return _fit_links(corpus)
    if recipe.own.of == "documents":
        chosen = np.bincount(rows, clicks, count)
        bias = np.log1p(chosen).astype(np.float32)
        # Nobody had the chance to choose a new document, so it counts as one of the middle.
        middle = 0.0 if corpus.unjudged.all() else float(np.median(bias[~corpus.unjudged]))
        bias[corpus.unjudged] = middle
        model = MemoryModel(*nothing, _KAPPA, sources, middle)
        documents = Encoded.from_rows(Rows.empty(count, 0), bias=bias)
        return FittedModel(model, documents, text_encoder(corpus, model))
    keys, features = _keys(corpus)
    known = features >= 0
    totals = np.bincount(features[known], clicks[known], len(keys)).astype(np.float32)
    model = MemoryModel(Lexicon.of(keys), totals, _KAPPA, sources, is_of_queries=True)
    entries = clicks[known].astype(np.float32), (rows[known], features[known])
    table = sp.csr_array(entries, shape=(count, len(keys)))
    table.sum_duplicates()
    table.data = np.log1p(table.data / np.float32(_KAPPA))
    return FittedModel(model, Encoded.from_rows(Rows.from_csr(table)), text_encoder(corpus, model))


def _keys(corpus: Corpus) -> tuple[list[str], np.ndarray]:
    """Return the distinct queries of training, and which of them each judged pair has; -1: it is not remembered."""
    queries = corpus.collection.queries
    relevant = corpus.pairs
    if queries is None:
        return [], np.full(len(relevant.entries), -1, np.int64)
    number: dict[str, int] = {}
    found = []
    for row in relevant.rows.tolist():
        key = query_key(queries[row].text)
        found.append(-1 if key is None else number.setdefault(key, len(number)))
    return [*number], np.repeat(np.array(found, np.int64), relevant.sizes)


def _fit_links(corpus: Corpus) -> FittedModel:
    lists, count = corpus.pairs, len(corpus.collection.document_ids)
    model = LinkModel(Lexicon.of([]), np.zeros(0, np.float32), _KAPPA, tuple(corpus.sources))
    ids = [corpus.query_ids[row] for row in lists.rows.tolist()]
    number: dict[str, int] = {}
    for place, text in enumerate(query_texts(corpus.collection, model, ids)):
        number.setdefault(text_key(text), place)
    chosen = np.array([*number.values()], np.int64)  # the first of those with the same text
    model = replace(
        model, queries=Lexicon.of([*number]), clicks=lists.sizes[chosen].astype(np.float32)
    )
    ones = np.ones(len(lists.entries), np.float32)
    links = sp.csr_array((ones, lists.entries, lists.starts), shape=(len(ids), count))
    idf = np.log(count / (1 + np.bincount(lists.entries, minlength=count))).astype(np.float32)
    weighed = sp.csr_array(links @ sp.diags_array(idf.clip(0)))
    norms = np.sqrt(np.asarray(weighed.multiply(weighed).sum(axis=1))).ravel()
    weighed = sp.csr_array(sp.diags_array(1 / np.maximum(norms, 1e-9)) @ weighed)
    by_document = sp.csr_array(weighed.T)
    blocks = []
    for start in range(0, len(chosen), _BATCH):
        rows = chosen[start : start + _BATCH]
        alike = sp.csr_array(weighed[rows] @ by_document)
        alike.data[alike.indices == np.repeat(rows, np.diff(alike.indptr))] = 0
        found = sp.csr_array(_largest(alike).csr() @ links)
        found.data = np.log1p(np.float32(_SCALE) * found.data)
        blocks.append(_largest(found))
    table = Rows.vstack(blocks).transposed() if blocks else Rows.empty(count, 0)
    return FittedModel(model, Encoded.from_rows(table), text_encoder(corpus, model))


def _largest(rows: sp.csr_array) -> Rows:
    rows.sort_indices()
    rows.eliminate_zeros()
    return Rows.from_csr(rows).top_entries(_ALIKE)


SYSTEM = System("memory", fit, section="memory", settings=MemorySettings)
