"""Fit a translation recipe: word translation learned from pairs, in front of a model g of the documents' language.

A pair is a query and its mate if queries describe documents, otherwise a query and a judged document. P(e|f) is that of
IBM Model 1 with the query as source. A query word that documents contain keeps its own count in addition to its
translations.

g is any recipe of the linear family. It learns from the pairs of a second collection with the same documents, whose
queries are in the documents' language (``train.monolingual``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fullrank.models.linear import LinearModel
from fullrank.models.translation import TranslationModel
from fullrank.storage.encoding import Float64, Int32, Int64, Rows
from fullrank.text.features import Vocabulary
from fullrank_trainer.compiled import compiled
from fullrank_trainer.features.corpus import Corpus, document_frequency
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.recipes.settings import require, setting
from fullrank_trainer.recipes.systems import System
from fullrank_trainer.systems.linear import system as linear
from fullrank_trainer.systems.linear.margin import second_collection
from fullrank_trainer.systems.linear.system import validate_model
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel, text_encoder
from fullrank_trainer.training.loop import TrainingRun
from fullrank_trainer.training.validation import validation

_ITERATIONS = 5  # of EM


@dataclass(frozen=True)
class TranslationSettings:
    """Word translation by IBM Model 1."""

    # drop smaller probabilities
    floor: float = setting(0.001, high=1)


def validate(recipe: Recipe) -> None:
    validate_model(recipe)
    require(
        recipe.train.loss == "none" or bool(recipe.train.monolingual),
        "train.loss: behind a translation, only train.monolingual can be learned; name its collection",
    )


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Fit a translation recipe. Raises TrainingError if there is no pair to learn words from."""
    corpus = context.corpus
    words, targets, table, facts = context.cached(
        ("translation", recipe.own), lambda: learn(context, recipe.own)
    )
    inner = _inner(context, recipe, run)
    assert isinstance(inner.model, LinearModel)
    model = TranslationModel(Vocabulary(words), targets, table, inner.model)
    facts = {**inner.facts, "translation": facts}
    return FittedModel(model, inner.documents, text_encoder(corpus, model), facts)


def _inner(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    if not recipe.train.monolingual:
        return linear.fit(context, recipe, run)
    folder = recipe.train.monolingual
    other = context.cached(("second", folder), lambda: _second(context, folder))
    valid = validation(other.corpus, recipe.train.valid_queries)
    run = replace(run, valid=valid, fingerprint=run.fingerprint + other.collection.fingerprint)
    return linear.fit(other, recipe.with_train(monolingual=""), run)


def _second(context: TrainingContext, folder: str) -> TrainingContext:
    collection = second_collection(context, folder)
    return TrainingContext(collection, context.reporter, context.seed, context.threads)


def word_pairs(corpus: Corpus) -> tuple[Int64, Int64]:
    """Return the rows of queries and of their mates, or of their judged documents if not all have mates."""
    queries = corpus.pairs.queries
    if (corpus.mates[queries] >= 0).all():
        return queries, corpus.mates[queries]
    starts, judged = corpus.pairs.take(queries)
    return np.repeat(queries, np.diff(starts)), judged


def learn(
    context: TrainingContext, settings: TranslationSettings
) -> tuple[list[str], list[str], Rows, dict[str, Any]]:
    """Return the words of queries, the words of documents, the translations between them, and facts for the card."""
    corpus = context.corpus
    corpus.pairs.require()
    queries, documents = word_pairs(corpus)
    likelihoods: list[float] = []
    with context.reporter.stage("word translation", _ITERATIONS) as stage:

        def progress(likelihood: float) -> None:
            likelihoods.append(round(likelihood, 1))
            stage.advance(1)

        table = translation_table(
            corpus.queries.take(queries),
            corpus.documents.take(documents),
            iterations=_ITERATIONS,
            floor=settings.floor,
            progress=progress,
        )
    in_documents = document_frequency(corpus.documents) > 0
    table = sp.csr_array(table + sp.diags_array(in_documents.astype(np.float64), format="csr"))
    translated = np.flatnonzero(np.diff(table.indptr))
    document_words = np.flatnonzero(in_documents)
    words, names = corpus.counts.words, translated.tolist()
    found = Rows.from_csr(sp.csr_array(table[translated][:, document_words].astype(np.float32)))
    return (
        [words[i] for i in names],
        [words[i] for i in document_words.tolist()],
        found,
        {"pairs": len(queries), "words": int(found.indptr[-1]), "log_likelihood": likelihoods},
    )


# IBM Model 1: word translation probabilities, learned from pairs of texts by EM.
#
#     P(T | S) = Π_t [ Σ_s P_ml(s|S) P(t|s) ]^{n(t,T)}           P_ml(s|S) = n(s,S) / |S|
#
#     E   δ(s|t) = n(s,S) P(t|s) / Σ_s' n(s',S) P(t|s')                  of every pair
#     M   P(t|s) = Σ_pairs n(t,T) δ(s|t) / Σ_t' Σ_pairs n(t',T) δ(s|t')
#
# after Brown, Della Pietra, Della Pietra, Mercer 1993, without the empty word. The log-likelihood is concave in P, so
# the start does not matter; only words that occur in the same pair are stored.


@compiled()
def _find(indices: Int32, start: int, stop: int, wanted: int) -> int:
    """Return the place of ``wanted`` in the ascending indices[start:stop], which must contain it."""
    while start < stop:
        middle = (start + stop) // 2
        if indices[middle] < wanted:
            start = middle + 1
        else:
            stop = middle
    return start


@compiled()
def _pair(  # type: ignore[no-untyped-def]
    s_words, s_counts, t_words, t_counts, indptr, indices, P, expected
):
    """Add n(t,T) δ(s|t) of one pair to ``expected``; return Σ_t n(t,T) log Σ_s P_ml(s|S) P(t|s)."""
    total = 0.0
    for a in range(len(s_words)):
        total += s_counts[a]
    place = np.empty((len(s_words), len(t_words)), np.int64)
    mass = np.zeros(len(t_words))
    for a in range(len(s_words)):
        here, last = indptr[s_words[a]], indptr[s_words[a] + 1]
        for b in range(len(t_words)):
            here = _find(indices, here, last, t_words[b])
            place[a, b] = here
            mass[b] += s_counts[a] * P[here]
    likelihood = 0.0
    for b in range(len(t_words)):
        if mass[b] > 0:
            likelihood += t_counts[b] * np.log(mass[b] / total)
            mass[b] = t_counts[b] / mass[b]
    for a in range(len(s_words)):
        for b in range(len(t_words)):
            expected[place[a, b]] += s_counts[a] * P[place[a, b]] * mass[b]
    return likelihood


@compiled()
def _pairs(  # type: ignore[no-untyped-def]
    source, target, indptr, indices, P, expected
):
    """Do all pairs in order in one thread, so results do not depend on the number of threads."""
    likelihood = 0.0
    for i in range(len(source[0]) - 1):
        a, b = source[0][i], source[0][i + 1]
        c, d = target[0][i], target[0][i + 1]
        if a < b and c < d:
            likelihood += _pair(
                source[1][a:b], source[2][a:b], target[1][c:d], target[2][c:d],
                indptr, indices, P, expected,
            )  # fmt: skip
    return likelihood


def expectation(
    source: Rows, target: Rows, table: sp.csr_array[np.float64]
) -> tuple[Float64, float]:
    """Return the expected counts of each entry of the table, float64 (nnz,), and the log-likelihood."""
    expected = np.zeros(len(table.data))
    likelihood: float = _pairs(
        source.arrays, target.arrays, table.indptr.astype(np.int64),
        table.indices.astype(np.int32, copy=False), table.data, expected,
    )  # fmt: skip
    return expected, likelihood


def translation_table(
    source: Rows,
    target: Rows,
    *,
    iterations: int = 10,
    floor: float = 1e-4,
    progress: Callable[[float], object] | None = None,
) -> sp.csr_array[np.float64]:
    """Learn P(t|s), (source words, target words); rows sum to 1, and a word of no pair has an empty one.

    It takes 20 bytes for every two words that occur in the same pair.

    Args:
        source, target: word counts of the two texts of each pair, row by row. A pair with an empty side is ignored.
        floor: drop smaller probabilities at the end and scale rows to 1 again; the largest of a row always stays.
        progress: called with the log-likelihood before each iteration.

    Raises:
        ValueError: the sides differ in length.
    """
    if len(source) != len(target):
        raise ValueError(f"{len(source)} source texts, {len(target)} target texts")
    table = _cooccurring(source, target)
    table.data[:] = 1 / max(1, target.width)
    owner = np.repeat(np.arange(source.width), np.diff(table.indptr))
    for _ in range(iterations):
        expected, likelihood = expectation(source, target, table)
        if progress is not None:
            progress(likelihood)
        table.data[:] = _normalised(expected, owner, source.width)
    return _floored(table, owner, floor)


def _cooccurring(source: Rows, target: Rows) -> sp.csr_array[np.float64]:

    def present(rows: Rows) -> sp.csr_array[np.float32]:
        return rows.with_values(np.ones_like(rows.values)).csr()

    met = sp.csr_array(present(source).T.tocsr() @ present(target))
    met.sort_indices()
    return sp.csr_array((met.data.astype(np.float64), met.indices, met.indptr), shape=met.shape)


def _normalised(values: Float64, owner: Int64, rows: int) -> Float64:
    total = np.bincount(owner, values, minlength=rows)
    total[total == 0] = 1
    return np.asarray(values / total[owner])


def _floored(
    table: sp.csr_array[np.float64], owner: Int64, floor: float
) -> sp.csr_array[np.float64]:
    """Drop values below the floor, except the largest of a row, and scale rows to 1."""
    largest = np.zeros(table.shape[0])
    np.maximum.at(largest, owner, table.data)
    kept = table.data >= np.minimum(floor, largest[owner])
    kept &= table.data > 0
    indptr = np.zeros(table.shape[0] + 1, np.int64)
    np.cumsum(np.bincount(owner[kept], minlength=table.shape[0]), out=indptr[1:])
    values = _normalised(table.data[kept], owner[kept], table.shape[0])
    return sp.csr_array((values, table.indices[kept], indptr), shape=table.shape)


SYSTEM = System("translation", fit, validate, "translation", TranslationSettings)
