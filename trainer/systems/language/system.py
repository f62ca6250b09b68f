"""Fitting language models: unigram, topic and translation models, and the weights of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from fullrank.encoding import Encoded, Float64, Int64
from fullrank.errors import TrainingError
from fullrank.features import Rows, Vocabulary, moved
from fullrank.measures import average_precision
from fullrank.models.language import LanguageModel, no_translation
from trainer.evaluation.evaluate import Judgement
from trainer.features.corpus import Corpus, document_frequency
from trainer.features.data import kept_words
from trainer.recipes.recipe import Recipe
from trainer.recipes.settings import LanguageSettings, ModelSettings
from trainer.systems.language.ibm1 import translation_table
from trainer.systems.language.topics import TopicLearner
from trainer.training.fitted import Fitted
from trainer.training.loop import Run
from trainer.training.validation import Validation
from trainer.workshop import Workshop


def fit(workshop: Workshop, recipe: Recipe, run: Run) -> Fitted:
    """A language recipe: what smooths the documents is learned, then λ₁ and λ₂ are chosen on validation.

    Raises TrainingError where pairs are to be learned from and none is judged.
    """
    corpus, settings = workshop.corpus, recipe.language
    # The weights are no part of what is learned, and a search gives each of its trials another share of time.
    kept = replace(settings, lambda1=(), lambda2=(), mix_queries=0)
    key = ("language", recipe.model, kept, replace(recipe.train, seconds=0.0))
    learned, documents, facts = workshop.once(key, lambda: _learned(workshop, recipe, run))
    model = with_weights(learned, settings.lambda1[0], settings.lambda2[0])

    def encode(rows: Int64) -> Encoded:
        return model.encode_query_counts(corpus.counts.words, corpus.queries.take(rows))

    if len(settings.lambda1) * len(settings.lambda2) > 1 and run.valid is not None:
        tried = try_weights(model, documents, encode(run.valid.rows), run.valid, settings)
        best = max(tried, key=lambda line: float(line["map"]))
        model = with_weights(model, best["lambda1"], best["lambda2"])
        facts = {**facts, "weights": tried}
        run.reporter.say(f"{run.label}weights", **best)
    return Fitted(model, documents, encode, facts)


def _learned(
    workshop: Workshop, recipe: Recipe, run: Run
) -> tuple[LanguageModel, Encoded, dict[str, Any]]:
    """The model under the first weights, the corpus under it, and what the card says of its training."""
    corpus, settings = workshop.corpus, recipe.language
    texts = count_texts(corpus, recipe.model, settings)
    model = _unigram(corpus, texts, settings)
    facts: dict[str, Any] = {}
    if settings.smoothing == "topics":
        model, facts = _topics(model, texts, workshop.seed, recipe, run)
    elif settings.smoothing == "translation":
        model, facts = _translation(model, texts, recipe, run)
    documents = model.encode_document_counts(corpus.counts.words, corpus.documents)
    return model, documents, facts


# -- what is learned from ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Texts:
    """Counts over the model's vocabulary.

    queries, documents   the two texts of each pair, row by row; without queries, each document once
    background           float64 (words,): P(w|C)
    """

    words: Vocabulary
    queries: Rows
    documents: Rows
    background: Float64


def count_texts(corpus: Corpus, model: ModelSettings, settings: LanguageSettings) -> Texts:
    """The vocabulary (words of documents and of training queries), the pairs and the collection's distribution.

    P(w|C) is the mean of a word's share in all documents and in the training queries: neither side's size decides.
    Raises TrainingError where there is nothing to learn from.
    """
    queries = np.repeat(
        corpus.pairs.queries, [len(corpus.pairs.relevant[q]) for q in corpus.pairs.queries.tolist()]
    )
    answers = [corpus.pairs.relevant[q] for q in corpus.pairs.queries.tolist()]
    documents = np.concatenate(answers) if answers else np.zeros(0, np.int64)
    if settings.smoothing != "none" and settings.learn_from == "pairs" and not len(queries):
        raise TrainingError("the training split has no judged pair; nothing can be learned")
    asked, told = corpus.queries.take(corpus.pairs.queries), corpus.documents
    df = document_frequency(asked) + document_frequency(told)
    kept = kept_words(df, df, model)
    target = np.full(len(corpus.counts.words), -1, np.int32)
    target[kept] = np.arange(len(kept), dtype=np.int32)
    words = Vocabulary([corpus.counts.words[i] for i in kept.tolist()])

    def over(rows: Rows) -> Rows:
        return moved(rows, target, len(kept))

    shares = [share for rows in (over(told), over(asked)) if (share := _shares(rows)).any()]
    background = np.mean(shares, axis=0) if shares else np.zeros(len(kept))
    if settings.learn_from == "documents":
        everything = over(told)
        nothing = np.zeros(len(told) + 1, np.int64)
        queries_of = Rows(nothing, everything.indices[:0], everything.values[:0], len(kept))
        return Texts(words, queries_of, everything, background)
    pairs = over(corpus.queries.take(queries)), over(corpus.documents.take(documents))
    return Texts(words, *pairs, background)


def _shares(rows: Rows) -> Float64:
    """Each word's share of all words, float64 (words,)."""
    counts = np.bincount(rows.indices, rows.values, rows.width)
    return np.asarray(counts / max(1.0, counts.sum()))


# -- the models -------------------------------------------------------------------------------


def _unigram(corpus: Corpus, texts: Texts, settings: LanguageSettings) -> LanguageModel:
    none = np.zeros((len(texts.words), 0), np.float32)
    return LanguageModel(
        {
            "latent": settings.smoothing,
            "lambda1": settings.lambda1[0],
            "lambda2": settings.lambda2[0],
            "iterations": settings.folding,
            "prior": settings.topic_prior - 1,
            "fields": list(corpus.sources),
            "query_fields": list(corpus.sources),
        },
        texts.words,
        texts.background.astype(np.float32),
        none,
        none,
        no_translation(len(texts.words)),
    )


def _topics(
    model: LanguageModel, texts: Texts, seed: int, recipe: Recipe, run: Run
) -> tuple[LanguageModel, dict[str, Any]]:
    learner = TopicLearner(
        texts.queries,
        texts.documents,
        recipe.language,
        topics=recipe.model.dimension,
        epochs=recipe.train.epochs,
        rng=np.random.default_rng(seed),
    )
    # All iterations are run: validating one would take longer than making it.
    facts = replace(run, valid=None).learn(learner)
    facts["evaluations"] = learner.evaluations.tolist()
    phi_q, phi_d = learner.phi_q.astype(np.float32), learner.phi_d.astype(np.float32)
    return replace(model, query=phi_q, document=phi_d), facts


def _translation(
    model: LanguageModel, texts: Texts, recipe: Recipe, run: Run
) -> tuple[LanguageModel, dict[str, Any]]:
    likelihoods = []
    with run.reporter.stage(f"{run.label}training", recipe.train.epochs) as stage:

        def progress(iteration: int, likelihood: float) -> None:
            likelihoods.append(likelihood)
            stage.advance(1, loss=-likelihood / len(texts.queries))

        table = translation_table(
            texts.documents,
            texts.queries,
            iterations=recipe.train.epochs,
            floor=recipe.language.translation_floor,
            progress=progress,
        )
    by_query_word = table.T.tocsr().astype(np.float32)
    by_query_word.sort_indices()
    return replace(model, translation=by_query_word), {"log_likelihood": likelihoods}


# -- λ₁ and λ₂ --------------------------------------------------------------------------------


def with_weights(model: LanguageModel, lambda1: float, lambda2: float) -> LanguageModel:
    """The same model with other weights."""
    return replace(model, settings={**model.settings, "lambda1": lambda1, "lambda2": lambda2})


def try_weights(
    model: LanguageModel,
    documents: Encoded,
    queries: Encoded,
    valid: Validation,
    settings: LanguageSettings,
) -> list[dict[str, float]]:
    """Mean average precision of each pair of weights on validation queries, evenly spread.

    queries  encoded, one per judgement of ``valid``
    """
    grid = list(product(settings.lambda1, settings.lambda2))
    count = len(valid.judgements)
    wanted = min(count, settings.mix_queries or count)
    chosen = np.linspace(0, count - 1, wanted).round().astype(int).tolist()
    total = np.zeros(len(grid))
    for i in chosen:
        scores = mixed_scores(model, documents, queries.slice(i, i + 1), grid)
        total += [_average_precision(line, valid.judgements[i]) for line in scores]
    found = zip(grid, total / wanted, strict=True)
    return [{"lambda1": l1, "lambda2": l2, "map": float(ap)} for (l1, l2), ap in found]


def mixed_scores(
    model: LanguageModel, documents: Encoded, query: Encoded, grid: Sequence[tuple[float, float]]
) -> Float64:
    """Scores of one query under each (λ₁, λ₂), float64 (grid, documents): the words are looked up once for all."""
    scorer, rows = model.scorer(documents), np.arange(len(documents))
    _, words, counts, _ = query.row(0)
    scores = np.zeros((len(grid), len(documents)))
    for n, (matched, smoothed) in zip(counts.tolist(), scorer.ratios(words, rows), strict=True):
        for line, (lambda1, lambda2) in zip(scores, grid, strict=True):
            c = (1 - lambda1) / lambda1
            line += n * np.log(1 + c * (lambda2 * matched + (1 - lambda2) * smoothed))
    return scores


def _average_precision(scores: Float64, judgement: Judgement) -> float:
    scores[judgement.excluded] = -np.inf
    order = np.argsort(-scores, kind="stable")
    found = np.isin(order, judgement.relevant).astype(np.int64)
    return average_precision(found, len(judgement.relevant))
