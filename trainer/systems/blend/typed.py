"""The weights of a blend for typed text, where documents are the queries that judgements are about.

Typed text and documents meet the same document side, so they share the biases B = Σ_m w_m b_m of the blend of
documents:

    typed text   Σ_m w'_m f_m + γ B        a document   γ (Σ_m w_m f_m + B)

The parts f_m are without biases here. γ is chosen with w'; scaling a document's scores does not change their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fullrank.measures import Float64
from fullrank.models.mixed import Lift
from trainer.systems.blend.scores import PartScores
from trainer.systems.blend.weights import Scored, choose
from trainer.training.context import TrainingContext
from trainer.training.fitted import FittedModel
from trainer.training.typed import typed_queries

# γ B spreads so little beside the typed scores where biases do not help; without biases it could not be a divisor.
_LEAST_SPREAD = 0.001


@dataclass(eq=False)
class Typed:
    """Typed queries, and the scores of the parts for them.

    Attributes:
        scores: of the parts without biases, and of the biases as one more part.
        biases: float64 (parts, documents).
        kinds: number of queries of each kind.
        bias_weight: γ.
    """

    scores: PartScores
    biases: Float64
    kinds: Mapping[str, int]
    bias_weight: float = 1.0

    @staticmethod
    def empty(context: TrainingContext, parts: int) -> Typed | None:
        """Make typed queries and room for the scores of the parts; None if there are too few queries."""
        valid, kinds = typed_queries(context.corpus)
        if valid is None:
            return None
        unjudged = context.corpus.unjudged
        scores = PartScores.empty(valid, parts + 1, unjudged, context.files)
        return Typed(scores, np.zeros((parts, len(unjudged))), kinds)

    def score(self, part: int, fitted: FittedModel) -> None:
        """Set the scores of one part."""
        self.biases[part] = fitted.documents.bias
        bare = replace(fitted.documents, bias=np.zeros_like(fitted.documents.bias))
        self.scores.score(part, replace(fitted, documents=bare))

    def choose(self, weights: Float64, lift: Lift) -> tuple[Float64, float]:
        """Choose w' and γ: the first part alone, unless the best is better by more than a standard error.

        Args:
            weights: w of documents as queries.
            lift: of unjudged documents, without a factor.
        """
        self.scores.parts[-1] = weights @ self.biases + lift.added * self.scores.unjudged
        found = choose(Scored(self.scores, None, 0.0))
        spread = float(np.std(self.scores.parts[-1, 0]))
        least = _LEAST_SPREAD * self.scores.spread(found) / spread if spread else 1.0
        self.bias_weight = max(float(found[-1]), least)
        return found[:-1], self.bias_weight
