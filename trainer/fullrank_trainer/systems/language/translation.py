"""Fit a translation recipe: word translation learned from pairs, in front of a model g of the documents' language.

A pair is a query and its mate if queries describe documents, otherwise a query and a judged document. P(e|f) is that of
IBM Model 1 with the query as source. A query word that documents contain keeps its own count in addition to its
translations.

g is any recipe of the linear family. It learns from the pairs of a second collection with the same documents, whose
queries are in the documents' language (``train.monolingual``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fullrank.encoding import Int64, Rows
from fullrank.models.linear import LinearModel
from fullrank.models.translation import TranslationModel
from fullrank.text.features import Vocabulary
from fullrank_trainer.features.corpus import Corpus, document_frequency
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.recipes.settings import TranslationSettings
from fullrank_trainer.systems.language.ibm1 import translation_table
from fullrank_trainer.systems.linear import system as linear
from fullrank_trainer.systems.linear.joint import second_collection
from fullrank_trainer.systems.linear.system import validate_model
from fullrank_trainer.systems.rules import require, validate_without_hashing
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel, text_encoder
from fullrank_trainer.training.loop import TrainingRun
from fullrank_trainer.training.validation import validation


def validate(recipe: Recipe) -> None:
    """Check the settings of a translation recipe. Raises RecipeError."""
    validate_without_hashing(recipe)
    validate_model(recipe)
    require(
        recipe.train.loss == "none" or bool(recipe.train.monolingual),
        "train.loss: behind a translation, only train.monolingual can be learned; name its collection",
    )


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Fit a translation recipe. Raises TrainingError if there is no pair to learn words from."""
    corpus = context.corpus
    words, targets, table, facts = context.cached(
        ("translation", recipe.translation), lambda: learn(context, recipe.translation)
    )
    inner = _inner(context, recipe, run)
    assert isinstance(inner.model, LinearModel)
    model = TranslationModel(Vocabulary(words), targets, table, inner.model)
    facts = {**inner.facts, "translation": facts}
    return FittedModel(model, inner.documents, text_encoder(corpus, model), facts)


def _inner(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Fit g, on the second collection if the recipe names one."""
    if not recipe.train.monolingual:
        return linear.fit(context, recipe, run)
    folder = recipe.train.monolingual
    other = context.cached(("second", folder), lambda: _second(context, folder))
    alone = replace(recipe, train=replace(recipe.train, monolingual=""))
    valid = validation(other.corpus, recipe.train.valid_queries)
    fingerprint = run.fingerprint + other.collection.fingerprint
    return linear.fit(other, alone, replace(run, valid=valid, fingerprint=fingerprint))


def _second(context: TrainingContext, folder: str) -> TrainingContext:
    collection = second_collection(context, folder)
    return TrainingContext(collection, context.reporter, context.seed, context.threads)


def word_pairs(corpus: Corpus) -> tuple[Int64, Int64]:
    """Return the rows of queries and of their mates, or of their judged documents if not all have mates."""
    queries = corpus.pairs.queries
    if (corpus.mates[queries] >= 0).all():
        return queries, corpus.mates[queries]
    starts, judged = corpus.pairs.relevant.take(queries)
    return np.repeat(queries, np.diff(starts)), judged


def learn(
    context: TrainingContext, settings: TranslationSettings
) -> tuple[list[str], list[str], Rows, dict[str, Any]]:
    """Learn a translation table.

    Returns:
        The words of queries, the words of documents, the table between them, and facts for the card.
    """
    corpus = context.corpus
    corpus.pairs.require()
    queries, documents = word_pairs(corpus)
    likelihoods: list[float] = []
    with context.reporter.stage("word translation", settings.iterations) as stage:

        def progress(iteration: int, likelihood: float) -> None:
            likelihoods.append(round(likelihood, 1))
            stage.advance(1)

        table = translation_table(
            corpus.queries.take(queries),
            corpus.documents.take(documents),
            iterations=settings.iterations,
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
