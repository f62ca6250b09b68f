"""A collection counted once, and what several fits on it share."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, TypeVar, cast

from trainer.collection import Collection
from trainer.features.corpus import Corpus, count_collection
from trainer.features.data import Features, build_features
from trainer.progress import Reporter
from trainer.recipes.settings import ModelSettings

Made = TypeVar("Made")


class Workshop:
    """What a system's ``fit`` works with.

    seed  of everything random
    """

    def __init__(self, collection: Collection, report: Reporter, seed: int, threads: int) -> None:
        self.collection, self.report, self.seed, self.threads = collection, report, seed, threads
        began = time.monotonic()
        self.corpus: Corpus = count_collection(collection, processes=threads)
        report.say("counted", words=len(self.corpus.counts.words), seconds=time.monotonic() - began)
        self._made: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What ``make`` returns, made at the first call for this key: trials that differ in a mix share the rest."""
        if key not in self._made:
            self._made[key] = make()
        return cast(Made, self._made[key])

    def forget(self) -> None:
        """Let go of all that was made; the counted corpus stays."""
        self._made.clear()

    def features(self, settings: ModelSettings) -> Features:
        """The matrices of a model's settings, made once."""
        key = replace(settings, alpha=1.0, layers=(), skip=False, cosine=0.0)
        return replace(self.once(key, lambda: self._build(key)), settings=settings)

    def _build(self, settings: ModelSettings) -> Features:
        began = time.monotonic()
        features = build_features(self.corpus, settings, self.report)
        self.report.say("featurised", seconds=time.monotonic() - began)
        return features
