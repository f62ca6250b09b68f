"""Fit language models: unigram, topic and translation models, and the weights of their parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp

from fullrank.models.language import LanguageModel, LanguageScorer, no_translation
from fullrank.storage.encoding import Encoded, Float32, Float64, Int32, Int64, Rows
from fullrank.text.features import Vocabulary, damped
from fullrank.text.folding import stemmer
from fullrank_trainer.collection.pairs import Pairs
from fullrank_trainer.evaluation.evaluate import Judgement, evenly_spread, relative_weights
from fullrank_trainer.features.corpus import Corpus, document_frequency
from fullrank_trainer.features.sides import kept_words
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.recipes.settings import ModelSettings, require
from fullrank_trainer.recipes.systems import System
from fullrank_trainer.systems.linear.softmax import choose_candidates, places_of
from fullrank_trainer.systems.topics import TOPIC_PRIOR, LanguageSettings, TopicLearner
from fullrank_trainer.systems.translation import translation_table
from fullrank_trainer.training.context import TrainingContext
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.loop import TrainingRun
from fullrank_trainer.training.validation import Validation

_FOLDING = 20  # EM iterations to fold in a document
_TRANSLATION_FLOOR = 1e-4  # smaller translation probabilities are dropped
_MIX_QUERIES = 200  # most validation queries that pick λ₁ and λ₂
STEMS = ("none", "english")
"""What `language.stem = "auto"` tries."""


def validate(recipe: Recipe) -> None:
    require(
        not recipe.own.expanded or recipe.own.smoothing != "topics",
        "language.expanded: topics score all words of a document; use smoothing none or translation",
    )


def fit(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Fit a language recipe: learn what smooths the documents, then choose λ₁ and λ₂. Raises TrainingError."""
    if recipe.own.stem == "auto":
        return _best_stem(context, recipe, run)
    corpus, settings = context.corpus, recipe.own
    # The learned part depends neither on the weights nor on the time limit of a trial.
    kept = replace(settings, lambda1=(), lambda2=(), ranked=False)
    key = ("language", recipe.model, kept, replace(recipe.train, seconds=0.0))
    learned, documents, facts = context.cached(key, lambda: _learn(context, recipe, run))
    model = with_weights(learned, settings.lambda1[0], settings.lambda2[0])

    def encode(rows: Int64) -> Encoded:
        return model.encode_query_counts(corpus.counts.words, corpus.queries.take(rows))

    if len(settings.lambda1) * len(settings.lambda2) > 1 and run.valid is not None:
        tried = try_weights(model, documents, encode(run.valid.rows), run.valid, settings)
        best = max(tried, key=lambda line: float(line["map"]))
        model = with_weights(model, best["lambda1"], best["lambda2"])
        facts = {**facts, "weights": tried}
        run.reporter.log(f"{run.label}weights", **best)
    chosen = replace(
        settings, lambda1=(model.settings["lambda1"],), lambda2=(model.settings["lambda2"],)
    )
    if settings.ranked and corpus.pairs.weights is None:
        queries, rng = encode(corpus.pairs.queries).sparse, np.random.default_rng(context.seed)
        table = trained_table(model, documents.sparse, queries, corpus.pairs, rng)
        model = replace(model, translation=table)
    if settings.expanded:
        model = expanded(model, settings.expanded)
        documents = model.encode_document_counts(corpus.counts.words, corpus.documents)
    return FittedModel(model, documents, encode, facts, replace(recipe, own=chosen))


def _best_stem(context: TrainingContext, recipe: Recipe, run: TrainingRun) -> FittedModel:
    """Fit with words as they are and with English stems; return the better on validation, without it the first."""
    tried = []
    for stem in STEMS:
        # Ranks are trained for the better one only.
        with_stem = replace(recipe, own=replace(recipe.own, stem=stem, ranked=False))
        fitted = fit(context, with_stem, run)
        found = [float(line["map"]) for line in fitted.facts.get("weights", ())]
        tried.append((max(found, default=0.0), stem, fitted))
        if not found:
            break
    quality = {stem: found for found, stem, _ in tried}
    run.reporter.log(f"{run.label}stems", **quality)
    best = max(tried, key=lambda line: line[0])[2]
    facts = {**best.facts, "stems": quality}
    if recipe.own.ranked and best.settled is not None:
        settled = replace(best.settled.own, ranked=True)
        best = fit(context, replace(best.settled, own=settled), run)
    return replace(best, facts=facts)


def _learn(
    context: TrainingContext, recipe: Recipe, run: TrainingRun
) -> tuple[LanguageModel, Encoded, dict[str, Any]]:
    corpus, settings = context.corpus, recipe.own
    texts = count_texts(corpus, recipe.model, settings)
    model = _unigram(corpus, texts, recipe)
    facts: dict[str, Any] = {}
    if settings.smoothing == "topics":
        model, facts = _topics(model, texts, context.seed, recipe, run)
    elif settings.smoothing == "translation":
        model, facts = _translation(model, texts, recipe, run)
    documents = model.encode_document_counts(corpus.counts.words, corpus.documents)
    return model, documents, facts


@dataclass(frozen=True, eq=False)
class Texts:
    """Word counts to learn from.

    Attributes:
        queries, documents: the two texts of each pair; without queries, each document once.
        background: float64 (words,), P(w|C).
        surface: the words as they are written, if `words` are stems and typing errors are corrected.
    """

    words: Vocabulary
    queries: Rows
    documents: Rows
    background: Float64
    mean_length: float
    weights: Float32 | None = None
    surface: Vocabulary | None = None


def count_texts(corpus: Corpus, model: ModelSettings, settings: LanguageSettings) -> Texts:
    """Collect the vocabulary of documents and training queries, the pairs and the collection's distribution.

    P(w|C) is the mean of a word's share in all documents and its share in the training queries, so that the size of
    either side does not matter. Raises TrainingError.
    """
    starts, documents = corpus.pairs.take(corpus.pairs.queries)
    queries = np.repeat(corpus.pairs.queries, np.diff(starts))
    if settings.smoothing != "none" and settings.learn_from == "pairs":
        corpus.pairs.require()
    training_queries, all_documents = corpus.queries.take(corpus.pairs.queries), corpus.documents
    if settings.damped:
        all_documents = all_documents.with_values(damped(all_documents.values))
    stems, stem_of = _stems(corpus.counts.words, settings.stem)
    df = sum(
        document_frequency(rows.remap_columns(stem_of, len(stems)))
        for rows in (training_queries, all_documents)
    )
    kept = kept_words(np.asarray(df), model)
    target = np.full(len(stems), -1, np.int32)
    target[kept] = np.arange(len(kept), dtype=np.int32)
    words = Vocabulary([stems[i] for i in kept.tolist()])

    surface = None
    if model.spelling and settings.stem != "none":
        occurring = np.unique(np.concatenate([training_queries.indices, all_documents.indices]))
        written = occurring[target[stem_of[occurring]] >= 0].tolist()
        surface = Vocabulary([corpus.counts.words[i] for i in written])

    def project(rows: Rows) -> Rows:
        return rows.remap_columns(target[stem_of], len(kept))

    shares = [
        share
        for rows in (project(all_documents), project(training_queries))
        if (share := _shares(rows)).any()
    ]
    background = np.mean(shares, axis=0) if shares else np.zeros(len(kept))
    lengths = all_documents.sums()
    mean_length = float(lengths[lengths > 0].mean()) if lengths.any() else 1.0
    if settings.learn_from == "documents":
        everything = project(all_documents)
        nothing = np.zeros(len(all_documents) + 1, np.int64)
        queries_of = Rows(nothing, everything.indices[:0], everything.values[:0], len(kept))
        return Texts(words, queries_of, everything, background, mean_length, surface=surface)
    pairs = project(corpus.queries.take(queries)), project(all_documents.take(documents))
    weights = corpus.pairs.weights_of(corpus.pairs.queries)
    return Texts(words, *pairs, background, mean_length, weights, surface)


def _stems(words: Sequence[str], language: str) -> tuple[Sequence[str], Int32]:
    if language == "none":
        return words, np.arange(len(words), dtype=np.int32)
    by_word = [*map(stemmer(language), words)]
    stems = sorted(set(by_word))
    place = {stem: i for i, stem in enumerate(stems)}
    return stems, np.array([place[stem] for stem in by_word], np.int32)


def _shares(rows: Rows) -> Float64:
    counts = np.bincount(rows.indices, rows.values, rows.width)
    return np.asarray(counts / max(1.0, counts.sum()))


def _unigram(corpus: Corpus, texts: Texts, recipe: Recipe) -> LanguageModel:
    settings, spelling = recipe.own, recipe.model.spelling
    none = np.zeros((len(texts.words), 0), np.float32)
    return LanguageModel(
        {
            "latent": settings.smoothing,
            "lambda1": settings.lambda1[0],
            "lambda2": settings.lambda2[0],
            "iterations": _FOLDING,
            "prior": TOPIC_PRIOR - 1,
            **({"damped": True} if settings.damped else {}),
            **_length(texts, settings),
            **({} if settings.stem == "none" else {"stem": settings.stem}),
            **({"spelling": spelling} if spelling else {}),
            "fields": list(corpus.sources),
            "query_fields": list(corpus.sources),
        },
        texts.words,
        texts.background.astype(np.float32),
        none,
        none,
        no_translation(len(texts.words)),
        texts.surface,
    )


def _length(texts: Texts, settings: LanguageSettings) -> dict[str, float]:
    if settings.length == 1:
        return {}
    return {"length": settings.length, "mean_length": round(texts.mean_length, 6)}


def _topics(
    model: LanguageModel, texts: Texts, seed: int, recipe: Recipe, run: TrainingRun
) -> tuple[LanguageModel, dict[str, Any]]:
    learner = TopicLearner(
        texts.queries,
        texts.documents,
        recipe.own,
        topics=recipe.model.dimension,
        epochs=recipe.train.epochs,
        rng=np.random.default_rng(seed),
        weights=texts.weights,
    )
    # Run all iterations without validation, which would take longer than an iteration.
    facts = replace(run, valid=None).learn(learner)
    facts["evaluations"] = learner.evaluations.tolist()
    phi_q, phi_d = learner.phi_q.astype(np.float32), learner.phi_d.astype(np.float32)
    return replace(model, query=phi_q, document=phi_d), facts


def _translation(
    model: LanguageModel, texts: Texts, recipe: Recipe, run: TrainingRun
) -> tuple[LanguageModel, dict[str, Any]]:
    likelihoods = []
    with run.reporter.stage(f"{run.label}training", recipe.train.epochs) as stage:

        def progress(likelihood: float) -> None:
            likelihoods.append(likelihood)
            stage.advance(1, loss=-likelihood / len(texts.queries))

        queries = texts.queries
        if texts.weights is not None:
            # P(T | S) of a pair to the power of its weight: the same as n(t, T) times the weight.
            queries = queries.with_values(queries.values * queries.spread(texts.weights))
        table = translation_table(
            texts.documents,
            queries,
            iterations=recipe.train.epochs,
            floor=_TRANSLATION_FLOOR,
            progress=progress,
        )
    by_query_word = table.T.tocsr().astype(np.float32)
    by_query_word.sort_indices()
    return replace(model, translation=by_query_word), {"log_likelihood": likelihoods}


def with_weights(model: LanguageModel, lambda1: float, lambda2: float) -> LanguageModel:
    return replace(model, settings={**model.settings, "lambda1": lambda1, "lambda2": lambda2})


def expanded(model: LanguageModel, words: int) -> LanguageModel:
    return replace(model, settings={**model.settings, "expanded": words})


def try_weights(
    model: LanguageModel,
    documents: Encoded,
    queries: Encoded,
    valid: Validation,
    settings: LanguageSettings,
) -> list[dict[str, float]]:
    """Return {"lambda1", "lambda2", "map"} of each pair of weights, measured on evenly spread validation queries."""
    grid = list(product(settings.lambda1, settings.lambda2))
    chosen = evenly_spread(len(valid.judgements), _MIX_QUERIES).tolist()
    weights = relative_weights([valid.judgements[i] for i in chosen])
    total = np.zeros(len(grid))
    for nth, i in enumerate(chosen):
        scores = mixed_scores(model, documents, queries.slice(i, i + 1), grid)
        found = np.array([_average_precision(line, valid.judgements[i]) for line in scores])
        total += found if weights is None else weights[nth] * found
    means = zip(grid, total / len(chosen), strict=True)
    return [{"lambda1": l1, "lambda2": l2, "map": float(ap)} for (l1, l2), ap in means]


def mixed_scores(
    model: LanguageModel, documents: Encoded, query: Encoded, grid: Sequence[tuple[float, float]]
) -> Float64:
    """Score one query under each (λ₁, λ₂), float64 (grid, documents); it looks up words once."""
    scorer, rows = LanguageScorer(model, documents), np.arange(len(documents))
    _, words, counts, _ = query.row(0)
    scores = np.zeros((len(grid), len(documents)))
    for n, (matched, smoothed) in zip(counts.tolist(), scorer.ratios(words, rows), strict=True):
        for line, (lambda1, lambda2) in zip(scores, grid, strict=True):
            c = (1 - lambda1) / lambda1
            line += n * np.log(1 + c * (lambda2 * matched + (1 - lambda2) * smoothed))
    return scores


def _average_precision(scores: Float64, judgement: Judgement) -> float:
    """Return the AP of a ranking by scores, ties by row. Only the ranks of relevant documents are needed."""
    scores[judgement.left_out(len(scores))] = -np.inf
    ranks = [
        np.count_nonzero(scores > scores[row]) + np.count_nonzero(scores[:row] == scores[row]) + 1
        for row in judgement.relevant.tolist()
    ]
    return float(np.mean(np.arange(1, len(ranks) + 1) / np.sort(ranks)))


# Train a translation table on what it is for: the ranks of judged documents.
#
#     L = − mean_q log( e^{γ f(q,d) + b_d} / Σ_n e^{γ f(q,n) + b_n} )      d: a judged document, n: it and sampled ones
#
#     f(q, D) = Σ_w n(w) log(1 + c M_w / P(w|C))        M_w = λ₂ P_ml(w|D) + (1 − λ₂) Σ_t P(w|t) P_ml(t|D)
#     ∂f/∂P(w|t) = n(w) c (1 − λ₂) P_ml(t|D) / (P(w|C) + c M_w)                               c = (1 − λ₁) / λ₁
#
# P(w|t) = P₀(w|t) e^a starts at the probabilities of EM, and those that are zero stay zero. Then rows sum to no 1.
# AdaGrad takes the steps on a, γ and b. Only P is kept: b says how often people ask for a document, which others learn.


_BATCH, _CANDIDATES = 256, 1500
_RATE, _SCALE_RATE, _BIAS_RATE = 0.05, 0.05, 0.03
_SCALE = 0.5  # γ at the start


def trained_table(
    model: LanguageModel,
    documents: Rows,
    queries: Rows,
    pairs: Pairs,
    rng: np.random.Generator,
) -> sp.csr_array[np.float32]:
    """Take one pass over the training queries, whose counts are given in the order of ``pairs``; return P(w|t)."""
    lambda1, lambda2 = model.settings["lambda1"], model.settings["lambda2"]
    c = np.float32((1 - lambda1) / lambda1)
    table = sp.csr_array(model.translation, copy=True)
    start, steps = table.data.copy(), np.zeros_like(table.data)
    squares, bias = np.zeros_like(steps), np.zeros(len(documents), np.float32)
    bias_squares, scale, scale_squares = np.zeros_like(bias), np.log(_SCALE), 0.0
    share = np.maximum(model.background, np.float32(1e-9))
    order = rng.permutation(len(pairs.queries))
    for first in range(0, len(order), _BATCH):
        chosen = np.sort(order[first : first + _BATCH])
        rows = pairs.queries[chosen]
        known = [pairs[row] for row in rows.tolist()]
        positives = np.array([rng.choice(found) for found in known])
        candidates = choose_candidates(pairs, rows, positives, pairs.documents, _CANDIDATES, rng)
        asked = queries.take(chosen).csr()
        words = np.unique(asked.indices)
        counts = asked[:, words].toarray()
        own = documents.take(candidates).csr()
        columns = np.unique(own.indices)
        entries, owners, places = _entries(table, words, columns)
        part = sp.csr_array((table.data[entries], (owners, places)), (len(words), len(columns)))
        own_columns = sp.csr_array(own[:, columns])
        mass = (part @ own_columns.T).toarray() * np.float32(1 - lambda2)
        mass += np.float32(lambda2) * own[:, words].toarray().T
        inner = share[words][:, None] + c * mass
        raw = counts @ np.log(inner / share[words][:, None])
        gamma = np.float32(np.exp(scale))
        G = _gradient(gamma * raw + bias[candidates], candidates, positives, known)

        g = float(gamma * np.vdot(G, raw))
        scale_squares += g * g
        scale -= _SCALE_RATE * g / np.sqrt(scale_squares + 1e-9)
        g_bias = G.sum(axis=0)
        bias_squares[candidates] += g_bias * g_bias
        bias[candidates] -= _BIAS_RATE * g_bias / np.sqrt(bias_squares[candidates] + 1e-9)
        by_mass = (counts.T @ G) * (gamma * c * np.float32(1 - lambda2)) / inner
        by_entry = np.asarray((own_columns.T @ by_mass.T).T)[owners, places] * table.data[entries]
        moved = by_entry != 0
        entries, by_entry = entries[moved], by_entry[moved]
        squares[entries] += by_entry * by_entry
        steps[entries] -= _RATE * by_entry / np.sqrt(squares[entries] + 1e-10)
        table.data[entries] = start[entries] * np.exp(steps[entries])
    return table


def _entries(
    table: sp.csr_array[np.float32], words: Int32, columns: Int32
) -> tuple[Int64, Int64, Int64]:
    """Return the entries of a part of the table: their places in it, and their rows and columns in the part."""
    sizes = table.indptr[words + 1] - table.indptr[words]
    owners = np.repeat(np.arange(len(words)), sizes)
    entries = np.arange(sizes.sum()) + np.repeat(
        table.indptr[words] - (np.cumsum(sizes) - sizes), sizes
    )
    place = np.full(table.shape[1], -1, np.int64)
    place[columns] = np.arange(len(columns))
    places = place[table.indices[entries]]
    kept = places >= 0
    return entries[kept], owners[kept], places[kept]


def _gradient(scores: Float32, candidates: Int64, positives: Int64, known: list[Int64]) -> Float32:
    """Return the softmax less 1 for the positive of each query; its other judged documents are left out."""
    own = places_of(candidates, positives)
    for line, place, rows in zip(scores, own.tolist(), known, strict=True):
        others = places_of(candidates, rows)
        line[others[(others >= 0) & (others != place)]] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    G = np.exp(scores)
    G /= G.sum(axis=1, keepdims=True)
    G[np.arange(len(own)), own] -= 1
    return np.asarray(G, np.float32)


SYSTEM = System("language", fit, validate, "language", LanguageSettings)
