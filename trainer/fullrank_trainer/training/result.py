"""One line of the table that a training prints and stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fullrank.measures import Estimate

BASELINES = ("tfidf", "bm25")
"""Recipes that the table shows beside the model."""


@dataclass(frozen=True)
class ResultRow:
    """One line of the table that every training prints and stores.

    Attributes:
        system: the recipe.
        split: on which it was measured.
        queries: their number.
        measures: mean and standard error of each measure.
    """

    system: str
    split: str
    queries: int
    measures: Mapping[str, Estimate]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form: system, split, queries, each measure, and ``<measure>_se``."""
        line: dict[str, Any] = {
            "system": self.system, "split": self.split, "queries": self.queries
        }  # fmt: skip
        for name, estimate in self.measures.items():
            line[name] = estimate.mean
            line[f"{name}_se"] = estimate.as_dict()["standard_error"]
        return line
