"""Word pairs in plain loops: each pair of words of the two texts, one weight of W at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fullrank.models.contract import Parts
from fullrank.text.words import words

Float64 = npt.NDArray[np.float64]


class Twin:
    """A plain implementation of a word-pair model."""

    def __init__(self, parts: Parts) -> None:
        self.config = parts.config
        self.words = list(parts.strings["words"])
        self.idf = np.asarray(parts.arrays["idf"], np.float64)
        self.W = self._table(parts) if self.config["table"] else self._rows(parts)

    def _table(self, parts: Parts) -> Float64:
        table, hashing = parts.arrays["W.table"], self.config["table"]
        W = np.zeros((len(self.words), len(self.words)))
        for i in range(len(W)):
            for j in range(len(W)):
                W[i, j] = table[(i * hashing["prime"] + j) % len(table)]
        return W + hashing["alpha"] * np.eye(len(W))

    def _rows(self, parts: Parts) -> Float64:
        W = np.zeros((len(self.words), len(self.words)))
        starts = parts.arrays["W.indptr"]
        for i in range(len(W)):
            for place in range(starts[i], starts[i + 1]):
                W[i, parts.arrays["W.indices"][place]] = parts.arrays["W.values"][place]
        return W

    def phi(self, text: str) -> Float64:
        """Return the unit tf-idf vector of the top words."""
        counts = Counter(words(text))
        tf = np.array([counts.get(word, 0) for word in self.words], np.float64)
        x = np.where(tf > 0, 1 + np.log(np.maximum(tf, 1)), 0) * self.idf[: len(self.words)]
        x /= np.linalg.norm(x) or 1.0
        if self.config["terms"]:
            # Ties, as float32 sees them, go to the vocabulary's order.
            weakest = np.argsort(-x.astype(np.float32), kind="stable")[self.config["terms"] :]
            x[weakest] = 0
        return np.asarray(x / (np.linalg.norm(x) or 1.0))

    def scores(
        self, queries: Sequence[str], documents: Sequence[Mapping[str, str]]
    ) -> tuple[Float64, Float64]:
        """(0, qᵀWd), each (queries, documents); s = Wᵀq cut to its top words if the model does."""
        [[_, sources]] = self.config["fields"]
        texts = ["\n".join(d[name] for name in sources if name in d) for d in documents]
        d = np.array([self.phi(text) for text in texts])
        s = np.array([self.phi(text) for text in queries]) @ self.W
        if self.config["match_terms"]:
            order = np.argsort(-np.abs(s.astype(np.float32)), axis=1, kind="stable")
            np.put_along_axis(s, order[:, self.config["match_terms"] :], 0, axis=1)
        return np.zeros((len(queries), len(documents))), s @ d.T
