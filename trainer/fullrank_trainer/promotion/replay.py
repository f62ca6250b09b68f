"""Ask logged queries again: where clicked documents rank in their lists, what finds nothing, how long it takes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fullrank.bundle import Bundle
from fullrank.encoding import Float64, Int64
from fullrank_trainer.clicks import Propensities, Votes

_MIN_PROPENSITY = 0.1
_ROUNDS = 3


@dataclass(frozen=True, eq=False)
class Clicks:
    """Clicks to replay; a row is a click.

    Attributes:
        queries, documents: Names.
        query: int64, places in `queries`.
        shown: Of each click, the places in `documents` of the list, the clicked one first.
        person: int64, 0 to `people` − 1.
        weight: float64, 1/p of the place that was clicked, at most 10; 1 without what was shown.
        is_listed: bool, whether the click says what else was shown.
        people: Their number.
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


@dataclass(frozen=True, eq=False)
class Replayed:
    """What a bundle answers.

    Attributes:
        reciprocal_rank: float64, of each click's document among those of its list, or among all without what was shown.
    """

    reciprocal_rank: Float64


def replay(bundle: Bundle, clicks: Clicks) -> Replayed:
    """Order the lists of clicks anew.

    The clicked document is ranked among the documents of its list: ranked among all, the model that made the list would
    win, because nobody clicks what is not shown. Without what was shown it is ranked among all. A second stage is left
    out.

    Args:
        bundle: An open bundle. A document that it lacks ranks last.
        clicks: To replay.
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
    return Replayed(ranks)


def empty_share(bundle: Bundle, texts: Sequence[str], *, with_floor: bool = True) -> float:
    """Return the share of queries for which nothing is found; without floors every document is."""
    empty = 0
    for text in texts:
        query = bundle.encode(text)
        floor = bundle.floor_of(text) if with_floor else None
        [found] = bundle.retriever.search(query, 1, floor=floor)
        empty += len(found.rows) == 0
    return empty / max(1, len(texts))


def slowest(active: Bundle, candidate: Bundle, texts: Sequence[str]) -> tuple[float, float]:
    """Return the 99th percentile of a search with the active bundle and with the candidate, in seconds.

    Both answer each query in turn, in three rounds; of each query the fastest answer counts, because whatever else the
    machine does only ever adds time.
    """
    best = np.full((2, len(texts)), np.inf)
    for _ in range(_ROUNDS):
        for i, text in enumerate(texts):
            for side, bundle in enumerate((active, candidate)):
                began = time.perf_counter()
                bundle.search(text, 10)
                best[side, i] = min(best[side, i], time.perf_counter() - began)
    before, after = np.quantile(best, 0.99, axis=1).tolist()
    return before, after
