"""Two-fold cross validation of a system's settings, and a paired t-test between two systems.

A setting looks too good on the queries that selected it. So the queries are split into two halves, and each half is
measured with the setting that was best on the other. Every query counts once, and no query selects its own setting.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from fullrank.measures import Estimate, Float64, Int64, estimates

Setting = TypeVar("Setting", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Crossed(Generic[Setting]):
    """A system measured by two-fold cross validation.

    chosen     the setting that each half was measured with, so the best one of the other half
    per_query  measure → float64 (queries,), in the queries' own order
    """

    chosen: tuple[Setting, Setting]
    per_query: dict[str, Float64]

    @property
    def measures(self) -> dict[str, Estimate]:
        """Return mean and standard error of each measure."""
        return estimates(self.per_query)


def halves(queries: int, seed: int = 1) -> tuple[Int64, Int64]:
    """Split the rows into two halves, ascending; equal for every system with as many queries.

    An odd query goes to the second half. Raises ValueError below two queries.
    """
    if queries < 2:
        raise ValueError(f"{queries} queries cannot be cut in two")
    order = np.random.default_rng(seed).permutation(queries)
    return np.sort(order[: queries // 2]), np.sort(order[queries // 2 :])


def cross_validate(
    grid: Mapping[Setting, Mapping[str, Float64]], *, by: str = "ndcg@10", seed: int = 1
) -> Crossed[Setting]:
    """Measure each half of the queries with the setting that has the best mean of ``by`` on the other half.

    grid  setting → measure → float64 (queries,): every setting measured on all queries, in one order;
          of equal settings the first wins

    Raises ValueError for an empty grid, or settings that differ in measures or number of queries.
    """
    if not grid:
        raise ValueError("no setting to choose from")
    names = list(next(iter(grid.values())))
    shapes = {np.shape(values) for found in grid.values() for values in found.values()}
    if any(set(found) != set(names) for found in grid.values()) or len(shapes) != 1:
        raise ValueError("the settings were not measured alike")
    (shape,) = shapes
    first, second = halves(shape[0], seed)
    best_on = [max(grid, key=lambda s: float(grid[s][by][rows].mean())) for rows in (first, second)]
    chosen = (best_on[1], best_on[0])
    per_query = {name: np.empty(shape) for name in names}
    for rows, setting in zip((first, second), chosen, strict=True):
        for name in names:
            per_query[name][rows] = grid[setting][name][rows]
    return Crossed(chosen, per_query)


@dataclass(frozen=True)
class Paired:
    """The mean of a − b over the same queries, its standard error, and the two-sided p of Student's paired test."""

    difference: float
    standard_error: float
    t: float
    p: float

    @property
    def significant(self) -> bool:
        """Whether p < 0.05, the level of the papers."""
        return self.p < 0.05

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form, which has no infinity: t is null if every query differs by the same."""
        t = self.t if np.isfinite(self.t) else None
        return {**vars(self), "t": t, "significant": self.significant}


def paired_t_test(a: Float64, b: Float64) -> Paired:
    """Compare two systems on the same queries, in the same order. If equal everywhere: t = 0, p = 1.

    Raises ValueError when the lengths differ or there are fewer than two queries.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape or len(a) < 2:
        raise ValueError(f"no pairs to test: {a.shape} and {b.shape}")
    apart = a - b
    error = float(apart.std(ddof=1) / np.sqrt(len(apart)))
    if error == 0:
        # The ratio is 0 / 0, or infinite if every query differs by the same.
        same = bool(apart[0] == 0)
        t = 0.0 if same else float(np.copysign(np.inf, apart[0]))
        return Paired(float(apart.mean()), 0.0, t, 1.0 if same else 0.0)
    from scipy.stats import ttest_rel  # takes half a second

    found = ttest_rel(a, b)
    return Paired(float(apart.mean()), error, float(found.statistic), float(found.pvalue))
