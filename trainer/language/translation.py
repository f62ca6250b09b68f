"""Fitting a translation recipe: word translation learned from pairs, in front of a model of the documents' language.

The pairs are query and mate where queries describe documents, else query and judged document. P(e|f) is that of IBM
Model 1 with the query as source. A word that documents hold too keeps its own count beside its translations.

g is any recipe of the linear family. What it learns, it learns from the pairs of a second collection on the same
corpus, whose queries are written in the documents' language (``train.monolingual``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fullrank.encoding import Int64
from fullrank.errors import TrainingError
from fullrank.features import Rows, Vocabulary, rows_of
from fullrank.linear import LinearModel
from fullrank.models.translation import TranslationModel
from trainer.features.corpus import Corpus, document_frequency
from trainer.recipes.recipe import Recipe
from trainer.recipes.settings import TranslationSettings
from trainer.systems.language.ibm1 import translation_table
from trainer.systems.linear import system as linear
from trainer.systems.linear.joint import second_collection
from trainer.training.fitted import Fitted, text_encoder
from trainer.training.loop import Run
from trainer.training.validation import validation
from trainer.workshop import Workshop


def fit(workshop: Workshop, recipe: Recipe, run: Run) -> Fitted:
    """The model of a translation recipe. Raises TrainingError where there is no pair to learn words from."""
    corpus = workshop.corpus
    words, targets, table, facts = workshop.once(
        ("translation", recipe.translation), lambda: learn(workshop, recipe.translation)
    )
    inner = _inner(workshop, recipe, run)
    assert isinstance(inner.model, LinearModel)
    model = TranslationModel(Vocabulary(words), targets, table, inner.model)
    facts = {**inner.facts, "translation": facts}
    return Fitted(model, inner.documents, text_encoder(corpus, model), facts)


def _inner(workshop: Workshop, recipe: Recipe, run: Run) -> Fitted:
    """g, fitted on the second collection where it has something to learn."""
    if not recipe.train.monolingual:
        return linear.fit(workshop, recipe, run)
    folder = recipe.train.monolingual
    other = workshop.once(("second", folder), lambda: _second(workshop, folder))
    alone = replace(recipe, train=replace(recipe.train, monolingual=""))
    valid = validation(other.corpus, recipe.train.valid_queries)
    fingerprint = run.fingerprint + other.collection.fingerprint
    return linear.fit(other, alone, replace(run, valid=valid, fingerprint=fingerprint))


def _second(workshop: Workshop, folder: str) -> Workshop:
    collection = second_collection(workshop, folder)
    return Workshop(collection, workshop.report, workshop.seed, workshop.threads)


def word_pairs(corpus: Corpus) -> tuple[Int64, Int64]:
    """Rows of queries and of the documents that say the same: mates, or else judged documents of the training split."""
    queries = corpus.pairs.queries
    if (corpus.mates[queries] >= 0).all():
        return queries, corpus.mates[queries]
    judged = [corpus.pairs.relevant[q] for q in queries.tolist()]
    return np.repeat(queries, [len(d) for d in judged]), np.concatenate(judged)


def learn(
    workshop: Workshop, settings: TranslationSettings
) -> tuple[list[str], list[str], Rows, dict[str, Any]]:
    """The words of queries, the words of documents, T between them, and what to say of it."""
    corpus = workshop.corpus
    if not len(corpus.pairs):
        raise TrainingError("the training split has no judged pair; no translation can be learned")
    queries, documents = word_pairs(corpus)
    likelihoods: list[float] = []
    with workshop.report.stage("word translation", settings.iterations) as stage:

        def told(iteration: int, likelihood: float) -> None:
            likelihoods.append(round(likelihood, 1))
            stage.advance(1)

        table = translation_table(
            corpus.queries.take(queries),
            corpus.documents.take(documents),
            iterations=settings.iterations,
            floor=settings.floor,
            progress=told,
        )
    held = document_frequency(corpus.documents) > 0
    table = sp.csr_array(table + sp.diags_array(held.astype(np.float64), format="csr"))
    speaking = np.flatnonzero(np.diff(table.indptr))
    told_words = np.flatnonzero(held)
    words, names = corpus.counts.words, speaking.tolist()
    found = rows_of(sp.csr_array(table[speaking][:, told_words].astype(np.float32)))
    return (
        [words[i] for i in names],
        [words[i] for i in told_words.tolist()],
        found,
        {"pairs": len(queries), "words": int(found.indptr[-1]), "log_likelihood": likelihoods},
    )
