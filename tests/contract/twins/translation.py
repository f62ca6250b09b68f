"""Word translation from its stored parts: expected counts of the documents' words, then the linear twin."""

from __future__ import annotations

from collections import Counter

import numpy as np

from fullrank.models.contract import Parts
from fullrank.text.words import words
from tests.contract.twins import linear

_INNER = "translated."


class Twin(linear.Twin):
    """The linear twin of the model after the table, with expected counts of a query. It has no dense part."""

    def __init__(self, parts: Parts) -> None:
        arrays = {k[len(_INNER) :]: v for k, v in parts.arrays.items() if k.startswith(_INNER)}
        strings = {k[len(_INNER) :]: v for k, v in parts.strings.items() if k.startswith(_INNER)}
        super().__init__(Parts(parts.config["translated"], arrays, strings))
        assert self.n_dense == 0
        starts, targets = parts.arrays["table.indptr"].tolist(), list(parts.strings["targets"])
        self.translations: dict[str, dict[str, float]] = {}
        for row, word in enumerate(parts.strings["words"]):
            entries = range(starts[row], starts[row + 1])
            self.translations[word] = {
                targets[parts.arrays["table.indices"][i]]: float(parts.arrays["table.values"][i])
                for i in entries
            }

    def query_weights(self, text: str) -> dict[int, float]:
        """s over words, from expected counts; a count below 1 is not damped."""
        expected: Counter[str] = Counter()
        for word, times in Counter(words(text)).items():
            for target, chance in self.translations.get(word, {}).items():
                expected[target] += times * chance  # type: ignore[assignment]
        counts = {self.place["sparse.words"][w]: float(n) for w, n in expected.items()}
        if self.config["sparse"]["scheme"] == "bm25":
            return {w: self._saturated(n) for w, n in counts.items()}
        idf = self.arrays["sparse.idf"]
        raw = {w: (n if n < 1 else 1 + np.log(n)) * idf[w] for w, n in counts.items()}
        norm = np.sqrt(sum(v * v for v in raw.values())) or 1.0
        return {w: v / norm for w, v in raw.items()}
