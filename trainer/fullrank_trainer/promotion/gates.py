"""Conditions that a candidate must meet before people see it.

Logged clicks favour what was shown, so they cannot prove that a candidate is better: here it only has to be no worse.
Whether it is better, people decide (fullrank.experiment).

    clicks   weighted MRR of the newest clicks: its change is at least −2 % (lower 95 % bound, people resampled)
    valid    MRR on the validation queries of a judged collection: at most one standard error lower
    empty    at most half a percent more of the logged queries find nothing, or one more
    speed    the 99th percentile of a search is at most 1.25 times as long, or at most 5 ms: a learned model takes
             longer than BM25, and nobody notices so little
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fullrank.bundle import Bundle
from fullrank_trainer.collection import Collection
from fullrank_trainer.evaluation.evaluate import evaluate, evenly_chosen
from fullrank_trainer.promotion.mix import with_documents
from fullrank_trainer.promotion.replay import Clicks, Replayed, empty_share, slowest

MAX_LOSS = 0.02
MAX_EMPTY = 0.005
MAX_SLOWNESS = 1.25
UNNOTICED_S = 0.005
_RESAMPLES = 2000
_QUANTILE = 0.05
_TIMED_QUERIES = 300
ASKED = 2000
"""Number of logged queries that are searched again to count empty answers."""
MIN_PEOPLE = 10
"""Fewest people for a bound that means something."""


@dataclass(frozen=True)
class Gate:
    """One condition.

    Attributes:
        name: clicks, valid, empty or speed.
        passed: Whether the candidate meets it.
        value: What was measured; seconds of speed.
        limit: What it is compared with.
        reason: Both, in words.
    """

    name: str
    passed: bool
    value: float
    limit: float
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def common_gates(
    active: Bundle, candidate: Bundle, asked: Sequence[str], judged: Collection | None
) -> list[Gate]:
    """Compare a candidate with the active bundle in what does not depend on clicks.

    Args:
        active, candidate: Open bundles.
        asked: Logged queries, with clicks or without.
        judged: A collection whose split `valid` counts, too.
    """
    # A version of an earlier release has no floor and finds everything; then the floor of the candidate does not count.
    with_floor = active.floor is not None
    some = evenly_chosen(asked, ASKED)
    gates = [
        _empty_gate(
            empty_share(active, some),
            empty_share(candidate, some, with_floor=with_floor),
            max(MAX_EMPTY, 1 / max(1, len(some))),
        )
    ]
    if judged is not None:
        gates.append(_valid_gate(active, candidate, judged))
    if asked:
        gates.append(_speed_gate(*slowest(active, candidate, evenly_chosen(asked, _TIMED_QUERIES))))
    return gates


def weighted_mrr(replayed: Replayed, clicks: Clicks) -> float:
    """Return the mean reciprocal rank of clicked documents, each click weighed by 1/p of its place."""
    if not len(clicks):
        return 0.0
    return float(np.average(replayed.reciprocal_rank, weights=clicks.weight))


def clicks_gate(before: Replayed, after: Replayed, clicks: Clicks, seed: int) -> Gate:
    """Test that the weighted MRR is not worse, by resampling people."""
    if clicks.people < MIN_PEOPLE:
        reason = (
            f"{clicks.people} people judge it by the newest clicks, at least {MIN_PEOPLE} must; where two candidates "
            f"are compared, half of the people choose between these, so {2 * MIN_PEOPLE} must have clicked; clicks on "
            "the only document of a list do not count"
        )
        return Gate("clicks", False, 0.0, -MAX_LOSS, reason)
    sums = [
        np.bincount(clicks.person, clicks.weight * found, clicks.people)
        for found in (before.reciprocal_rank, after.reciprocal_rank)
    ]
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(clicks.people, np.full(clicks.people, 1 / clicks.people), _RESAMPLES)
    old, new = draws @ sums[0], draws @ sums[1]
    change = np.divide(new - old, old, out=np.zeros_like(old), where=old > 0)
    bound = float(np.quantile(change, _QUANTILE))
    mrr = [weighted_mrr(found, clicks) for found in (before, after)]
    reason = (
        f"weighted MRR of {len(clicks)} clicks by {clicks.people} people {mrr[0]:.4f} -> {mrr[1]:.4f}, "
        f"lower 95 % bound of the change {bound:+.1%}"
    )
    if alone := int(np.count_nonzero(~clicks.is_listed)):
        reason += (
            f"; {alone} clicks do not say what else was shown, and are ranked among all documents"
        )
    return Gate("clicks", bound >= -MAX_LOSS, bound, -MAX_LOSS, reason)


def _empty_gate(before: float, after: float, tolerance: float) -> Gate:
    reason = f"{after:.2%} of the queries find nothing, {before:.2%} before"
    limit = before + tolerance + 1e-9  # 4/6 + 1/6 < 5/6
    return Gate("empty", after <= limit, after, limit, reason)


def _speed_gate(before_s: float, after_s: float) -> Gate:
    limit = max(MAX_SLOWNESS * before_s, UNNOTICED_S)
    reason = f"99th percentile of a search {1000 * before_s:.2f} ms -> {1000 * after_s:.2f} ms"
    return Gate("speed", after_s <= limit, after_s, limit, reason)


def _valid_gate(active: Bundle, candidate: Bundle, judged: Collection) -> Gate:
    known = with_documents(judged, frozenset(active.documents.ids))
    # Clicks repeat those of training; links shall be further ones.
    excluded = () if "valid" in known.weights else ("train",)
    ranks = [
        evaluate(bundle, known, "valid", excluded).per_query["mrr"]
        for bundle in (active, candidate)
    ]
    change = ranks[1] - ranks[0]
    error = float(change.std(ddof=1) / len(change) ** 0.5) if len(change) > 1 else 0.0
    found = float(change.mean())
    reason = f"MRR of {len(change)} validation queries changes by {found:+.4f} (± {error:.4f})"
    return Gate("valid", found >= -error, found, -error, reason)


def passed(gates: Sequence[Gate]) -> bool:
    """Return whether all gates are passed."""
    return all(gate.passed for gate in gates)
