"""Count how often a text that says a document's name leads to the document.

    P(d | q says t) = (l_t + σ p) / (n_t + σ)
    P(d)            = relevant pairs / (judged queries · judged documents)

n_t counts the pairs of a judged query that says t and another judged document called t; l_t counts those of them that
are relevant. p = Σ l_t / Σ n_t is what a name has whose documents nobody judged.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fullrank.errors import TrainingError
from fullrank.models.mentions import MentionsModel, names_of
from fullrank.storage.documents import field_text
from fullrank.storage.encoding import Encoded, Float32, Rows
from fullrank.storage.strings import Lexicon
from fullrank_trainer.features.corpus import Corpus
from fullrank_trainer.features.fields import titles_of
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.recipes.systems import System
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel, encode_documents, text_encoder
from fullrank_trainer.training.loop import TrainingRun

MENTIONS = Recipe("mentions", system="mentions")
_SIGMA = 5.0  # pairs that a name is thought to have had before


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Count the judged pairs of training. Raises TrainingError if the documents have no titles."""
    corpus = context.corpus
    titles = titles_of(corpus.sources)
    if not titles:
        raise TrainingError("mentions: the documents have no title, name or anchors")
    documents = corpus.collection.documents
    called = [{*names_of(field_text(document.fields, titles))} for document in documents]
    names = Lexicon.of(sorted(set().union(*called)))
    model = MentionsModel(
        names, np.ones(len(names), np.float32), tuple(titles), tuple(corpus.sources)
    )
    own = encode_documents(corpus, model).sparse
    model = replace(model, values=_values(corpus, model, own))
    found = Encoded.from_rows(own.with_values(model.values[own.indices]))
    return FittedModel(model, found, text_encoder(corpus, model))


def _values(corpus: Corpus, model: MentionsModel, documents: Rows) -> Float32:
    """Return max(0, ln(P(d | q says t) / P(d))) of each name, float32 (F,)."""
    pairs, judged = corpus.pairs, ~corpus.unjudged
    queries = pairs.rows
    said = text_encoder(corpus, model)(queries).sparse.csr()
    own = documents.csr()
    place = np.repeat(np.arange(len(queries)), pairs.sizes)
    led: Float32 = said[place].multiply(own[pairs.entries]).sum(axis=0)
    mates = corpus.mates[queries]
    # A query is no answer of itself.
    own_name = (mates >= 0) & judged[mates]
    itself: Float32 = said[own_name].multiply(own[mates[own_name]]).sum(axis=0)
    pairs_said = said.sum(axis=0) * own[judged].sum(axis=0) - itself
    if not led.any():
        return np.zeros(model.n_sparse, np.float32)
    chance = led.sum() / pairs_said.sum()
    base = len(pairs) / (len(queries) * judged.sum())
    ratio = (led + _SIGMA * chance) / (pairs_said + _SIGMA) / base
    return np.asarray(np.log(np.maximum(1, ratio)), np.float32)


SYSTEM = System("mentions", fit)
