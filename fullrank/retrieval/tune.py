"""How hard the fast mode has to look, chosen for each bundle by measuring it.

recall@k of a query is the part of its exact top-k that the fast mode returns. On one half of the queries the first
rung of a ladder is looked for whose mean reaches AIMED, and then each of its numbers is lowered as far as the mean
stays there. The mean over the other half is what is reported: it had no part in that choice. Should it be below
PROMISED, the further rungs are tried as they are until one keeps it on both halves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from fullrank.encoding import Encoded
from fullrank.index import Effort
from fullrank.progress import Progress, silent
from fullrank.retrieval.ranking import Ranking
from fullrank.retrieval.retriever import Retriever

DEPTH = 10
_SEED = 1
PROMISED = 0.99
# What a choice is made by looks better than it is, and the other half differs a little.
AIMED = 0.994
# Part of the cells that are looked at, then what Effort has: dense, words, depth, sparse, exact, floor, margin.
_LADDER = (
    (1 / 256, 100, 16, 1024, 100, 48, 0.3, 0.06),
    (1 / 128, 200, 16, 2048, 200, 64, 0.2, 0.06),
    (1 / 128, 400, 16, 4096, 300, 96, 0.2, 0.08),
    (1 / 128, 400, 16, 4096, 400, 128, 0.15, 0.1),
    (1 / 128, 600, 16, 4096, 600, 128, 0.1, 0.13),
    (1 / 64, 800, 16, 8192, 800, 192, 0.1, 0.16),
    (1 / 32, 1000, 24, 8192, 1200, 256, 0.1, 0.2),
    (1 / 8, 1600, 32, 8192, 3200, 512, 0.05, 0.3),
    (1 / 2, 3200, 64, 8192, 6400, 1024, 0.02, 0.5),
    (1.0, 6400, 128, 8192, 12800, 2048, 0.0, 0.0),
)
# What is lowered, what saves the most first, and to which parts of what it was; the floor is raised.
_LOWERED = ("margin", "exact", "sparse", "dense", "nprobe", "depth")
_PARTS = (0.5, 0.7, 0.85)
_FLOORS = (0.3, 0.2, 0.15, 0.1)


def efforts(cells: int) -> list[Effort]:
    """From little to much, for an index of so many cells."""
    return [
        Effort(max(1, round(share * cells)), dense, words, depth, sparse, exact, floor, margin)
        for share, dense, words, depth, sparse, exact, floor, margin in _LADDER
    ]


def recall(found: Ranking, truth: Ranking) -> float:
    """Part of the true rows that were found; 1 where there are none. Documents that tie are as good as each other."""
    if not len(truth.rows):
        return 1.0
    return float(np.count_nonzero(found.scores >= truth.scores[-1])) / len(truth.rows)


def tune(
    retriever: Retriever, queries: Encoded, progress: Progress = silent
) -> tuple[Effort | None, dict[str, Any]]:
    """The effort to serve with, and what it was measured to do (JSON), over the retriever's index.

    None where no effort keeps PROMISED: then there is no fast mode.
    """
    truths = [retriever.search(queries.slice(i, i + 1), DEPTH)[0] for i in range(len(queries))]
    # Not every other one as they come: files have their own order, two kinds of query in turn for instance.
    drawn = np.random.default_rng(_SEED).permutation(len(queries)).tolist()

    def measured(effort: Effort, first: int) -> float:
        found = [
            recall(
                retriever.search(queries.slice(i, i + 1), DEPTH, mode="fast", effort=effort)[0],
                truths[i],
            )
            for i in drawn[first::2]
        ]
        # One query alone chooses and leaves none to measure by: what is not measured is not promised.
        return float(np.mean(found)) if found else 0.0

    index = retriever.index
    ladder = efforts(0 if index is None or index.cells is None else index.cells.count)
    steps = len(ladder) + len(_LOWERED) + 2
    rung = 0
    while rung < len(ladder) - 1 and measured(ladder[rung], 0) < AIMED:
        progress("fast mode", rung, steps)
        rung += 1
    chosen = ladder[rung]
    for place, name in enumerate(("floor", *_LOWERED)):
        progress("fast mode", len(ladder) + place, steps)
        for less in _lowered(chosen, name):
            if measured(less, 0) >= AIMED:
                chosen = less
                break
    reached = measured(chosen, 1)
    for effort in ladder[rung:]:
        if reached >= PROMISED:
            break
        if measured(effort, 0) >= PROMISED:
            chosen, reached = effort, measured(effort, 1)
    progress("fast mode", steps, steps)
    facts = {"recall_at_10": round(reached, 4), "queries": len(range(1, len(queries), 2))}
    return (chosen if reached >= PROMISED else None), facts


def _lowered(effort: Effort, name: str) -> Iterator[Effort]:
    """The effort with less of one thing, least first."""
    if name == "floor":
        yield from (replace(effort, floor=floor) for floor in _FLOORS if floor > effort.floor)
        return
    if name == "margin":
        yield from (replace(effort, margin=round(part * effort.margin, 4)) for part in _PARTS)
        return
    now = int(asdict(effort)[name])
    for part in _PARTS:
        if max(1, round(part * now)) < now:
            yield replace(effort, **{name: max(1, round(part * now))})
