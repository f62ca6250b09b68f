"""Ask logged queries again: where clicked documents rank, whether anything is found, how long it takes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.bundle import Bundle
from fullrank.encoding import Float64, Int64
from trainer.clicks import Propensities, Votes

DEPTH = 100
_BATCH = 512
_MIN_PROPENSITY = 0.1
_ROUNDS = 3


@dataclass(frozen=True, eq=False)
class Clicks:
    """Clicks to replay; a row is a click.

    Attributes:
        queries, documents: Names.
        query, document: int64, places in them.
        person: int64, 0 to `people` − 1.
        weight: float64, 1/p of the place that was clicked, at most 10.
        people: Their number.
    """

    queries: Sequence[str]
    documents: Sequence[str]
    query: Int64
    document: Int64
    person: Int64
    weight: Float64
    people: int

    @staticmethod
    def of(votes: Votes, propensities: Propensities) -> Clicks:
        """Take the clicks of some votes."""
        clicked = votes.take(votes.clicked)
        people, person = np.unique(clicked.person, return_inverse=True)
        weight = 1 / np.maximum(propensities.of(clicked.place), _MIN_PROPENSITY)
        return Clicks(
            clicked.queries,
            clicked.documents,
            clicked.query,
            clicked.document,
            person.astype(np.int64),
            weight,
            len(people),
        )

    def __len__(self) -> int:
        return len(self.query)


@dataclass(frozen=True, eq=False)
class Replayed:
    """What a bundle answers.

    Attributes:
        reciprocal_rank: float64, of each click's document; 0 beyond `DEPTH`.
        empty: Share of the queries that find nothing.
    """

    reciprocal_rank: Float64
    empty: float


def replay(bundle: Bundle, clicks: Clicks) -> Replayed:
    """Rank the queries of clicks again."""
    asked, row_of = np.unique(clicks.query, return_inverse=True)
    wanted = [clicks.documents[d] for d in clicks.document.tolist()]
    clicked_of: list[list[int]] = [[] for _ in asked]
    for click, row in enumerate(row_of.tolist()):
        clicked_of[row].append(click)
    ranks, empty = np.zeros(len(clicks)), 0
    for start in range(0, len(asked), _BATCH):
        texts = [clicks.queries[q] for q in asked[start : start + _BATCH].tolist()]
        rankings = bundle.retriever.search(bundle.encode(texts), DEPTH)
        for i, (text, ranking) in enumerate(zip(texts, rankings, strict=True)):
            reordered = bundle.reorder(text, ranking)
            if reordered is not None:
                ranking = ranking.take(reordered.places(len(ranking.rows)))
            empty += not len(ranking.rows)
            place = {
                bundle.documents.ids[row]: rank for rank, row in enumerate(ranking.rows.tolist(), 1)
            }
            for click in clicked_of[start + i]:
                if wanted[click] in place:
                    ranks[click] = 1 / place[wanted[click]]
    return Replayed(ranks, empty / max(1, len(asked)))


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
