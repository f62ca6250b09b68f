"""Expanded queries from the stored parts: two searches of the linear twin, the second with a longer query.

The documents given are the collection: what is added to a query is chosen among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.contract.twins import linear

Float64 = npt.NDArray[np.float64]


class Twin(linear.Twin):
    """The diagonal of the linear twin as the documents' vectors, of which some are added to the query."""

    def scores(
        self, queries: Sequence[str], documents: Sequence[Mapping[str, Any]]
    ) -> tuple[Float64, Float64]:
        """Return (the contribution of the added documents, that of the query's own words)."""
        _, lexical = super().scores(queries, documents)
        t = np.zeros((len(documents), len(self.strings["sparse.words"])))
        for f, (_, names) in enumerate(self.config["fields"]):
            for row, document in zip(t, documents, strict=True):
                text = "\n".join(document[name] for name in names if name in document)
                for word, weight in self.field_weights(text, f).items():
                    row[word] += self.arrays["sparse.D"][f, word] * weight
        dense = np.zeros_like(lexical)
        for i, first in enumerate(lexical):
            # Equal documents are equal to float32 precision only; use the first of them.
            order = np.lexsort((np.arange(len(first)), -np.round(first, 6)))
            best = [row for row in order[: self.config["feedback"]] if first[row] > 0]
            if best:
                dense[i] = self.config["beta"] * t @ t[best].mean(axis=0)
        return dense, lexical
