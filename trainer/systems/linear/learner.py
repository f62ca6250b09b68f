"""What the learners of the linear family share: parameters, and how they are measured while they change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from trainer.features.data import Features
from trainer.recipes.settings import TrainSettings
from trainer.systems.linear.parameters import start
from trainer.training.loop import Arrays, InPlace
from trainer.training.validation import Validation, scan_documents, scan_queries

_DEPTH = 100  # places that the MAP of early stopping looks at


class LinearLearner(InPlace, ABC):
    """f(q, d) = (U x_q)·(V x_d) + Σ_f s·D_f·z_f + b_d under some loss.

    values  the parameters, changed in place by ``steps``
    """

    per_epoch: int

    def __init__(self, features: Features, train: TrainSettings, rng: np.random.Generator) -> None:
        self.features, self.train, self.rng = features, train, rng
        self.values = start(features, train, rng)

    @abstractmethod
    def prepare(self) -> None:
        """As Learner.prepare."""

    @abstractmethod
    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """As Learner.steps."""

    @abstractmethod
    def state(self) -> Arrays:
        """As Learner.state."""

    def parameters(self) -> Arrays:
        """U, V, D, bias, layers; what both sides share once."""
        return dict(self.values.arrays())

    def measure(self, valid: Validation) -> float:
        """MAP on validation, without compiling a model."""
        documents = scan_documents(self.features, self.values)
        queries = scan_queries(self.features, self.values, valid.rows)
        return float(valid.measure(documents, queries, depth=_DEPTH)["map"].mean)
