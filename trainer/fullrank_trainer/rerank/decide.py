"""Fit a second stage, judge it on the validation split, measure its time, and keep it or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import thread_time
from typing import Any

import numpy as np

from fullrank.errors import RecipeError, TrainingError
from fullrank.measures import Estimate, Float64, estimate
from fullrank.progress import Reporter
from fullrank.retrieval import Retriever
from fullrank.search.rerank.facts import DocumentFacts
from fullrank.search.rerank.features import Statistics
from fullrank.search.rerank.stage import DEPTH, SecondStage, first_of
from fullrank.search.rerank.trees import Trees
from fullrank.storage.encoding import Encoded
from fullrank_trainer.collection import Collection, count_answered
from fullrank_trainer.evaluation.evaluate import query_texts
from fullrank_trainer.features.corpus import Corpus
from fullrank_trainer.recipes.recipe import Recipe
from fullrank_trainer.rerank.boosting import FOLDS, LEAVES, cross_fit
from fullrank_trainer.rerank.candidates import Candidates, collect, document_facts, fact_settings
from fullrank_trainer.training.fitted import LEARNED_VALID, FittedModel
from fullrank_trainer.training.validation import validation
from fullrank_trainer.training.warm import WarmStart

# The judged trees learn from four fifths of the queries, and so gain less than those of the bundle.
MIN_GAIN = 0.005
_SURE = 2  # standard errors of the gain
MAX_MS = 2.0
# Fewer queries leave too few in each fold to learn from.
MIN_QUERIES = 5 * FOLDS
# More queries would take long and change little.
_MAX_QUERIES = 5000
_TIMED_QUERIES = 200
_REPEATS = 3
# Hits of a plain search, which the time of the second stage is compared with.
_PLAIN_HITS = 10
_SHOWN = ("map", "mrr", "ndcg@10")


@dataclass(frozen=True, eq=False)
class Decision:
    """A fitted second stage and whether the bundle gets it.

    Attributes:
        on: the gain and the time meet the rule.
        gain: of MAP, on queries that the judged trees did not see.
        ms: more time of the calling thread per query than a plain search, the median.
        first, second: measure → float64 (queries,), of the first stage, and of trees that did not see the query.
    """

    stage: SecondStage
    facts: DocumentFacts
    on: bool
    reason: str
    gain: Estimate
    ms: float
    card: dict[str, Any]
    queries: list[str]
    first: dict[str, Float64]
    second: dict[str, Float64]


def unlearned(recipe: Recipe, warm: WarmStart | None) -> Recipe:
    """Leave the queries of valid to the second stage. Raises RecipeError if ``warm`` has learned them."""
    if warm is not None and warm.facts.get(LEARNED_VALID):
        raise RecipeError(
            f"{warm.version} has learned the clicks of valid, which a second stage has to learn from; "
            "train without --from, or without --rerank"
        )
    return recipe.override(["blend.learn_valid=false"]) if "blend" in recipe.sections else recipe


def require_queries(collection: Collection) -> None:
    """Raise TrainingError unless a collection has queries that a second stage can learn from."""
    if "valid" not in collection.splits:
        raise TrainingError(
            f"{collection.path}: the second stage learns from a split 'valid'; "
            "add qrels/valid.tsv, or train without --rerank"
        )
    count = count_answered(collection.qrels("valid"))
    if count < MIN_QUERIES:
        raise TrainingError(
            f"{collection.path}: the second stage needs {MIN_QUERIES} queries in the split 'valid', "
            f"there are {count}; train without --rerank"
        )


def second_stage(
    corpus: Corpus, fitted: FittedModel, reporter: Reporter, *, seed: int, threads: int
) -> Decision:
    """Fit a second stage and decide: on if it surely gains MIN_GAIN of MAP in at most MAX_MS a query."""
    require_queries(corpus.collection)
    valid = validation(corpus, _MAX_QUERIES)
    assert valid is not None
    settings = fact_settings(corpus)
    facts = document_facts(corpus, settings)
    statistics = Statistics.of(facts)
    facts = statistics.weigh(facts)
    stage = SecondStage(
        settings, statistics, Trees.empty(), corpus.collection.documents_are_queries
    )
    retriever = Retriever(fitted.documents, fitted.model.scorer(fitted.documents))
    ids = [judgement.query for judgement in valid.judgements]
    texts = query_texts(corpus.collection, fitted.model, ids)
    encoded = fitted.encode(valid.rows)
    candidates = collect(retriever, encoded, texts, valid.judgements, stage, facts)
    reporter.log("second stage", queries=len(ids), features=len(stage.names))
    crossed = cross_fit(candidates, ids, seed=seed, threads=threads)
    stage = replace(stage, trees=crossed.trees)
    ms = _added_ms(retriever, encoded, texts, stage, facts)
    first, second = candidates.measure(), candidates.measure(crossed.scores)
    weights = candidates.weights
    gain = estimate(second["map"] - first["map"], weights)
    on, reason = verdict(gain, ms)
    line: dict[str, float | None] = {}
    for name in _SHOWN:
        change = estimate(second[name] - first[name], weights).as_dict()
        line[name], line[f"{name}_se"] = change["mean"], change["standard_error"]
    card = {
        "on": on,
        "reason": reason,
        "queries": len(candidates),
        "folds": FOLDS,
        "trees": len(stage.trees),
        "trees_of_folds": crossed.sizes,
        "leaves": LEAVES,
        "ms": round(ms, 3),
        "gain": line,
        "first": {name: estimate(first[name], weights).mean for name in _SHOWN},
        "second": {name: estimate(second[name], weights).mean for name in _SHOWN},
        "features": importance(stage, candidates),
    }
    return Decision(stage, facts, on, reason, gain, ms, card, ids, first, second)


def verdict(gain: Estimate, ms: float) -> tuple[bool, str]:
    """Apply the rule to a gain of MAP and the milliseconds of a query; return the decision and its reason."""
    figures = f"it gains {gain.mean:+.4f} ± {gain.standard_error:.4f} MAP in {ms:.2f} ms a query"
    if gain.mean < MIN_GAIN:
        return False, f"off: {figures}; it needs a gain of {MIN_GAIN}"
    if gain.mean < _SURE * gain.standard_error:
        return False, f"off: {figures}; it needs a gain of {_SURE} standard errors"
    if ms > MAX_MS:
        return False, f"off: {figures}; it may take {MAX_MS} ms"
    return True, f"on: {figures}"


def importance(stage: SecondStage, candidates: Candidates, queries: int = 50) -> dict[str, float]:
    """Return the mean absolute contribution of each feature, the largest first."""
    step = max(1, len(candidates) // queries)
    rows = np.concatenate(list(candidates.features[::step]))
    sizes = np.abs(stage.trees.contributions(rows)).mean(axis=0)
    order = np.argsort(-sizes, kind="stable")
    return {stage.names[i]: round(float(sizes[i]), 5) for i in order.tolist() if sizes[i] > 0}


def _added_ms(
    retriever: Retriever,
    queries: Encoded,
    texts: Sequence[str],
    stage: SecondStage,
    facts: DocumentFacts,
) -> float:
    """Return the median of what the second stage adds to a search for 10 hits: more candidates, features, trees.

    It is the time of this thread, the best of three, because a wall clock also counts other processes.
    """
    step = max(1, len(texts) // _TIMED_QUERIES)
    added = []
    for i in range(0, len(texts), step):
        query = queries.slice(i, i + 1)

        def plain(query: Encoded = query) -> None:
            retriever.search(query, _PLAIN_HITS)

        def reordered(query: Encoded = query, text: str = texts[i]) -> None:
            [ranking] = retriever.search(query, DEPTH)
            stage.order(text, first_of(ranking), facts.take(ranking.rows))

        added.append(_seconds(reordered) - _seconds(plain))
    return 1000 * max(0.0, float(np.median(added)))


def _seconds(work: Callable[[], None]) -> float:
    found = []
    for _ in range(_REPEATS):
        began = thread_time()
        work()
        found.append(thread_time() - began)
    return min(found)
