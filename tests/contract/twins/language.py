"""Language models from their stored parts: one probability at a time, θ found by EM over explicit posteriors.

log P(Q|D) is taken literally, with P(q|D) = λ₁ P(q|C) + (1 − λ₁) [λ₂ P_ml + (1 − λ₂) P_x], and what every document
would have without the query's words is taken off at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fullrank.models.contract import Parts
from fullrank.text.words import words

Float64 = npt.NDArray[np.float64]


class Twin:
    """A plain implementation of a language model."""

    def __init__(self, parts: Parts) -> None:
        self.config = parts.config
        self.row = {word: i for i, word in enumerate(parts.strings["words"])}
        self.background = np.asarray(parts.arrays["background"], np.float64)
        self.query = np.asarray(parts.arrays["query.topics"], np.float64)
        self.document = np.asarray(parts.arrays["document.topics"], np.float64)
        size = len(self.row)
        self.translation = np.zeros((size, size))
        for q in range(size):
            first, last = parts.arrays["translation.indptr"][q : q + 2].tolist()
            columns = parts.arrays["translation.indices"][first:last]
            self.translation[q, columns] = parts.arrays["translation.values"][first:last]

    def theta(self, text: Counter[str]) -> Float64:
        """Return the topics of a document by alternating E-steps and M-steps from uniform."""
        topics = self.document.shape[1]
        known = [
            (self.document[self.row[w]], n)
            for w, n in text.items()
            if w in self.row and self.document[self.row[w]].any()
        ]
        theta = np.full(topics, 1 / topics)
        for _ in range(self.config["iterations"] if known else 0):
            expected = np.full(topics, self.config["prior"])
            for phi, n in known:
                posterior = phi * theta
                expected += n * posterior / posterior.sum()
            theta = expected / expected.sum()
        return theta

    def count(self, n: int) -> float:
        """Return how often a word counts that a document has n times."""
        return 1 + float(np.log(n)) if self.config.get("damped") else n

    def probabilities(self, document: Counter[str]) -> tuple[Float64, Float64]:
        """P_ml and P_x of every word of the vocabulary."""
        counts = {word: self.count(n) for word, n in document.items()}
        p, mean = self.config.get("length", 1), self.config.get("mean_length", 1)
        own, size = np.zeros(len(self.row)), max(1, sum(counts.values())) ** p * mean ** (1 - p)
        for word, n in counts.items():
            if word in self.row:
                own[self.row[word]] = n / size
        if self.config["latent"] == "topics":
            return own, self.query @ self.theta(document)
        return own, self.translation @ own

    def scores(
        self, queries: Sequence[str], documents: Sequence[Mapping[str, str]]
    ) -> tuple[Float64, Float64]:
        """Return (dense, lexical): the part that P_x adds, and the score without it."""
        lambda1, lambda2 = self.config["lambda1"], self.config["lambda2"]
        nothing = np.log(lambda1 * self.background)
        dense = np.zeros((len(queries), len(documents)))
        lexical = np.zeros_like(dense)
        for j, fields in enumerate(documents):
            text = "\n".join(fields[name] for name in self.config["fields"] if name in fields)
            own, smoothed = self.probabilities(Counter(words(text)))
            kept = lambda1 * self.background + (1 - lambda1) * lambda2 * own
            whole = np.log(kept + (1 - lambda1) * (1 - lambda2) * smoothed) - nothing
            kept = np.log(kept) - nothing
            for i, query in enumerate(queries):
                for word, n in Counter(words(query)).items():
                    if word in self.row:
                        # Documents that store all their words by likelihood have one part.
                        first = whole if self.config.get("expanded") else kept
                        lexical[i, j] += n * first[self.row[word]]
                        dense[i, j] += n * (whole - first)[self.row[word]]
        return dense, lexical
