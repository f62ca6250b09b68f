"""The base of the linear family's learners: parameters, and their MAP on validation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from fullrank_trainer.features.matrices import Features
from fullrank_trainer.recipes.settings import TrainSettings
from fullrank_trainer.systems.linear.parameters import Parameters, start
from fullrank_trainer.systems.linear.scan import scan_blocks, scan_queries
from fullrank_trainer.training.fitted import Arrays
from fullrank_trainer.training.loop import RestoresInPlace
from fullrank_trainer.training.memory import release
from fullrank_trainer.training.validation import Validation

_DEPTH = 100  # documents per query that the MAP of early stopping reads


class LinearLearner(RestoresInPlace, ABC):
    """Learns f(q, d) = (U x_q)·(V x_d) + Σ_f s·D_f·z_f + b_d under a loss.

    Attributes:
        values: the parameters; ``steps`` changes them in place.
    """

    per_epoch: int

    def __init__(
        self,
        features: Features,
        train: TrainSettings,
        rng: np.random.Generator,
        values: Parameters | None = None,
    ) -> None:
        """Begin at the given parameters; by default at random ones."""
        self.features, self.train, self.rng = features, train, rng
        self.values = start(features, train, rng) if values is None else values

    @abstractmethod
    def prepare(self) -> None:
        """See Learner.prepare."""

    @abstractmethod
    def steps(self, done: float, share: float) -> Iterator[tuple[int, float]]:
        """See Learner.steps."""

    @abstractmethod
    def state(self) -> Arrays:
        """See Learner.state."""

    def parameters(self) -> Arrays:
        """Return U, V, D, bias and layers; an array that both sides share occurs once."""
        return dict(self.values.arrays())

    def measure(self, valid: Validation) -> float:
        """Return the MAP on validation; no model is compiled."""
        arrays = self.features.arrays
        release(*arrays)  # steps leave the pages that they read
        queries = scan_queries(self.features, self.values, valid.rows)
        documents = scan_blocks(self.features, self.values)
        found = float(valid.measure_blocks(documents, queries, depth=_DEPTH)["map"].mean)
        release(*arrays)
        return found
