"""Conditions that a candidate must meet before people see it.

Logged clicks favour what was shown, so they cannot prove that a candidate is better: here it only has to be no worse.
Whether it is better, people decide (fullrank.events.decisions).

    clicks   weighted MRR of the newest clicks: its change is at least −2 % (lower 95 % bound, people resampled)
    valid    MRR on the validation queries of a judged collection: at most one standard error lower
    empty    at most half a percent more of the logged queries find nothing, or one more
    speed    the 99th percentile of a search is at most 1.25 times as long, or at most 5 ms: a learned model takes
             longer than BM25, and nobody notices so little
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fullrank.bundle import Bundle
from fullrank.storage.encoding import Float64, Int64
from fullrank_trainer.clicks import Propensities, Votes
from fullrank_trainer.collection import Collection
from fullrank_trainer.evaluation.evaluate import evaluate, evenly_chosen

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
        value: What was measured; seconds of speed.
    """

    name: str
    passed: bool
    value: float
    limit: float
    reason: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def common_gates(
    active: Bundle, candidate: Bundle, asked: Sequence[str], judged: Collection | None
) -> list[Gate]:
    """Compare a candidate with the active bundle in what does not depend on clicks."""
    # A version of an earlier release has no floor and finds everything; then the floor of the candidate does not count.
    with_floor = active.floor is not None
    some = evenly_chosen(asked, ASKED)
    before, after = empty_share(active, some), empty_share(candidate, some, with_floor=with_floor)
    limit = before + max(MAX_EMPTY, 1 / max(1, len(some))) + 1e-9  # 4/6 + 1/6 < 5/6
    reason = f"{after:.2%} of the queries find nothing, {before:.2%} before"
    gates = [Gate("empty", after <= limit, after, limit, reason)]
    # Clicks of valid are learned when all choices are made, so they measure nothing afterwards.
    if judged is not None and "valid" in judged.splits and "valid" not in judged.weights:
        gates.append(_valid_gate(active, candidate, judged))
    if asked:
        before, after = slowest(active, candidate, evenly_chosen(asked, _TIMED_QUERIES))
        limit = max(MAX_SLOWNESS * before, UNNOTICED_S)
        reason = f"99th percentile of a search {1000 * before:.2f} ms -> {1000 * after:.2f} ms"
        gates.append(Gate("speed", after <= limit, after, limit, reason))
    return gates


def weighted_mrr(ranks: Float64, clicks: Clicks) -> float:
    """Return the mean reciprocal rank of clicked documents, each click weighed by 1/p of its place."""
    return float(np.average(ranks, weights=clicks.weight)) if len(clicks) else 0.0


def clicks_gate(before: Float64, after: Float64, clicks: Clicks, seed: int) -> Gate:
    """Test that the weighted MRR is not worse, by resampling people."""
    if clicks.people < MIN_PEOPLE:
        reason = (
            f"{clicks.people} people judge it by the newest clicks, at least {MIN_PEOPLE} must; where two candidates "
            f"are compared, half of the people choose between these, so {2 * MIN_PEOPLE} must have clicked; clicks on "
            "the only document of a list do not count"
        )
        return Gate("clicks", False, 0.0, -MAX_LOSS, reason)
    sums = [
        np.bincount(clicks.person, clicks.weight * ranks, clicks.people)
        for ranks in (before, after)
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


def _valid_gate(active: Bundle, candidate: Bundle, judged: Collection) -> Gate:
    known = with_documents(judged, frozenset(active.documents.ids))
    ranks = [
        evaluate(bundle, known, "valid", ("train",)).per_query["mrr"]
        for bundle in (active, candidate)
    ]
    change = ranks[1] - ranks[0]
    error = float(change.std(ddof=1) / len(change) ** 0.5) if len(change) > 1 else 0.0
    found = float(change.mean())
    reason = f"MRR of {len(change)} validation queries changes by {found:+.4f} (± {error:.4f})"
    return Gate("valid", found >= -error, found, -error, reason)


def with_documents(judged: Collection, documents: frozenset[str]) -> Collection:
    """Return a collection without its judgements of documents that do not exist."""
    exists = np.array([id in documents for id in judged.document_ids], np.bool_)
    judgements = {
        split: pairs.where(exists[pairs.entries]) for split, pairs in judged.judgements.items()
    }
    return replace(judged, judgements=judgements)


def passed(gates: Sequence[Gate]) -> bool:
    return all(gate.passed for gate in gates)


_MIN_PROPENSITY = 0.1
_ROUNDS = 3


@dataclass(frozen=True, eq=False)
class Clicks:
    """Clicks to replay; a row is a click.

    Attributes:
        shown: Of each click, the places in `documents` of the list, the clicked one first.
        weight: float64, 1/p of the place that was clicked, at most 10; 1 without what was shown.
        is_listed: bool, whether the click says what else was shown.
    """

    queries: Sequence[str]
    documents: Sequence[str]
    query: Int64
    shown: Sequence[Int64]
    person: Int64
    weight: Float64
    is_listed: npt.NDArray[np.bool_]
    people: int

    @staticmethod
    def of(votes: Votes, propensities: Propensities) -> Clicks:
        """Take the clicks of some votes, each with the list that it was on.

        A click on the only document of a list says nothing about a ranking, and is left out.
        """
        order = np.argsort(votes.shown, kind="stable")
        sizes = np.bincount(votes.shown, minlength=1)[votes.shown]
        rows = np.flatnonzero(votes.clicked & ((sizes > 1) | ~votes.is_listed))
        starts = np.searchsorted(votes.shown[order], votes.shown[rows])
        ends = np.searchsorted(votes.shown[order], votes.shown[rows], "right")
        shown = []
        for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
            others = order[start:end]
            shown.append(votes.document[np.concatenate([[row], others[others != row]])])
        people, person = np.unique(votes.person[rows], return_inverse=True)
        return Clicks(
            votes.queries,
            votes.documents,
            votes.query[rows],
            shown,
            person.astype(np.int64),
            np.where(
                votes.is_listed[rows],
                1 / np.maximum(propensities.of(votes.place[rows]), _MIN_PROPENSITY),
                1.0,
            ),
            votes.is_listed[rows],
            len(people),
        )

    def __len__(self) -> int:
        return len(self.query)


def replay(bundle: Bundle, clicks: Clicks) -> Float64:
    """Order the lists of clicks anew; return the reciprocal rank of each clicked document, float64.

    The clicked document is ranked among the documents of its list: ranked among all, the model that made the list would
    win, because nobody clicks what is not shown. Without what was shown it is ranked among all. A second stage is left
    out.
    """
    asked, query_of = np.unique(clicks.query, return_inverse=True)
    rows = {id: row for row, id in enumerate(bundle.documents.ids)}
    row_of = np.array([rows.get(id, -1) for id in clicks.documents] or [-1], np.int64)
    clicks_of: list[list[int]] = [[] for _ in asked]
    for click, query in enumerate(query_of.tolist()):
        clicks_of[query].append(click)
    ranks = np.zeros(len(clicks))
    for query, found in enumerate(clicks_of):
        encoded = bundle.encode(clicks.queries[asked[query]])
        listed = np.unique(np.concatenate([row_of[clicks.shown[click]] for click in found]))
        known = listed[listed >= 0]
        dense, lexical, bias = bundle.retriever.score_parts(encoded, known)
        scores = dict(zip(known.tolist(), (dense + lexical + bias).tolist(), strict=True))
        every = None if clicks.is_listed[found].all() else bundle.retriever.scores(encoded)[0]
        for click in found:
            if every is not None and not clicks.is_listed[click]:
                row = row_of[clicks.shown[click][0]]
                ranks[click] = 1 / np.count_nonzero(every >= every[row]) if row >= 0 else 0.0
                continue
            own, *others = (
                scores.get(row, -np.inf) for row in row_of[clicks.shown[click]].tolist()
            )
            if own > -np.inf:
                ranks[click] = 1 / (1 + sum(other >= own for other in others))
    return ranks


def empty_share(bundle: Bundle, texts: Sequence[str], *, with_floor: bool = True) -> float:
    """Return the share of queries for which nothing is found; without floors every document is."""
    empty = 0
    for text in texts:
        query = bundle.encode(text)
        floor = bundle.analyzer.query(text).floor if with_floor else None
        [found] = bundle.retriever.search(query, 1, floor=floor)
        empty += len(found.rows) == 0
    return empty / max(1, len(texts))


def slowest(active: Bundle, candidate: Bundle, texts: Sequence[str]) -> tuple[float, float]:
    """Return the 99th percentile of a search with the active bundle and with the candidate, in seconds.

    Both answer each query in turn, in three rounds; of each query the fastest answer counts, because whatever else the
    machine does only ever adds time.
    """
    best = np.full((2, len(texts)), np.inf)
    for number in range(_ROUNDS):
        for i, text in enumerate(texts):
            # Another text with the same words, because a bundle remembers what it has analysed.
            text += " " * number
            for side, bundle in enumerate((active, candidate)):
                began = time.perf_counter()
                bundle.search(text, 10)
                best[side, i] = min(best[side, i], time.perf_counter() - began)
    before, after = np.quantile(best, 0.99, axis=1).tolist()
    return before, after
