"""A counted collection and the intermediate results that several fits on it share."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from fullrank.progress import Reporter
from fullrank.text.features import Counts
from fullrank_trainer.collection import Collection
from fullrank_trainer.features.corpus import Corpus, Counting, count_collection
from fullrank_trainer.features.matrices import Features, build_features
from fullrank_trainer.recipes.recipe import Recipe, system_of
from fullrank_trainer.recipes.settings import ModelSettings
from fullrank_trainer.training.fitted import FittedModel
from fullrank_trainer.training.loop import TrainingRun
from fullrank_trainer.training.memory import ArrayFiles

T = TypeVar("T")


class TrainingContext:
    """What the ``fit`` function of a system gets."""

    def __init__(
        self,
        collection: Collection,
        reporter: Reporter,
        seed: int,
        threads: int,
        scratch: Path | None = None,
        counting: Counting | None = None,
    ) -> None:
        self.collection, self.reporter = collection, reporter
        self.seed, self.threads = seed, threads
        began = time.monotonic()
        self.files = ArrayFiles(scratch)
        corpus = count_collection(
            collection, processes=threads, counting=counting, zeros=self.files.zeros
        )
        columns = [*map(self.files.put_rows, corpus.counts.columns)]
        self.corpus = replace(corpus, counts=Counts(corpus.counts.words, columns))
        self.corpus.totals.documents = self.corpus.add_fields(self.files.stack)
        self.files.release()
        words = len(self.corpus.counts.words)
        reporter.log("counted", words=words, seconds=time.monotonic() - began)
        self._cache: dict[Hashable, Any] = {}
        self._parent: TrainingContext | None = None

    def with_corpus(self, corpus: Corpus) -> TrainingContext:
        """Return a context of the same texts with other judgements.

        It has a cache of its own, but takes matrices that read no judgement from this context.
        """
        other = copy(self)
        other.corpus, other._cache, other._parent = corpus, {}, self
        return other

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return ``make()``, which is called for the first use of a key only, for example by the trials of a search."""
        if key not in self._cache:
            self._cache[key] = make()
        return cast(T, self._cache[key])

    def clear_cache(self) -> None:
        """Drop all cached results; the counted corpus stays."""
        self._cache.clear()

    def fit(self, recipe: Recipe, run: TrainingRun) -> FittedModel:
        found: FittedModel = system_of(recipe).fit(self, recipe, run)
        return found

    def features(self, settings: ModelSettings) -> Features:
        """Return the matrices of a model's settings; they are built once."""
        if self._parent is not None and self.reads_no_judgement(settings):
            return replace(self._parent.features(settings), pairs=self.corpus.pairs)
        # No matrix depends on these settings.
        key = replace(settings, alpha=1.0, layers=(), skip=False, cosine=0.0)
        return replace(self.cached(key, lambda: self._build(key)), settings=settings)

    def reads_no_judgement(self, settings: ModelSettings) -> bool:
        """Tell whether the matrices depend on texts alone: else judged queries count as texts, or as clicked text."""
        is_plain = settings.clicked == "off" and settings.hashing == "none"
        return self.collection.documents_are_queries and is_plain

    def _build(self, settings: ModelSettings) -> Features:
        began = time.monotonic()
        features = build_features(self.corpus, settings, self.reporter, self.files.stack)
        put = self.files.put_rows
        features = replace(
            features,
            z=[*map(put, features.z)],
            field_counts=[*map(put, features.field_counts)],
            query_counts=put(features.query_counts),
            query_sequences=put(features.query_sequences),
        )
        self.files.release()
        self.reporter.log("featurised", seconds=time.monotonic() - began)
        return features
