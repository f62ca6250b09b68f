"""Choose the effort of the fast mode for a bundle by measuring its recall.

recall@k of a query is the share of its exact top k that the fast mode returns. On one half of the queries, take the
first step of a ladder of efforts whose mean recall reaches AIMED_RECALL, then lower each of its numbers as far as the
mean stays there. Report the mean over the other half, which had no part in the choice. If that is below
PROMISED_RECALL, try the further steps unlowered until one reaches it on both halves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from fullrank.progress import Progress, silent
from fullrank.retrieval.index import Effort
from fullrank.retrieval.index.build import MAX_LIST_LENGTH, list_length
from fullrank.retrieval.ranking import Ranking
from fullrank.retrieval.retriever import Retriever
from fullrank.storage.encoding import Encoded

DEPTH = 10
_SEED = 1
PROMISED_RECALL = 0.99
# Above the promise, because recall on the queries that chose an effort overstates its recall on others.
AIMED_RECALL = 0.996
# The share of the cells to search, then the fields of Effort: words, depth, sparse, rescored, floor, margin.
_LADDER = (
    (1 / 256, 16, 2048, 100, 48, 0.2, 0.4),
    (1 / 256, 16, 4096, 200, 64, 0.15, 0.5),
    (1 / 256, 16, 4096, 200, 64, 0.15, 0.6),
    (1 / 256, 16, 4096, 200, 96, 0.1, 0.65),
    (1 / 256, 16, 4096, 200, 128, 0.1, 0.7),
    (1 / 256, 16, 4096, 300, 128, 0.1, 0.85),
    (1 / 128, 16, 8192, 400, 192, 0.05, 1.0),
    (1 / 64, 24, 8192, 800, 256, 0.05, 1.3),
    (1 / 16, 32, 8192, 3200, 512, 0.02, 2.0),
    (1 / 2, 64, 8192, 6400, 1024, 0.02, 3.2),
    (1.0, 128, 8192, 12800, 2048, 0.0, 0.0),
)
# The numbers to lower, in the order of the time they save, and to which shares; the floor is raised.
_LOWERED = ("margin", "rescored", "sparse", "nprobe", "depth")
_SHARES = (0.5, 0.7, 0.85)
_FLOORS = (0.3, 0.2, 0.15, 0.1)


def efforts(cells: int, documents: int) -> list[Effort]:
    """Return the ladder of efforts, least first, for an index of so many cells and documents.

    Where lists grow with the documents (`list_length`), they are read whole, but down to twice the floor, and twice as
    many candidates are rescored.
    """
    longest = list_length(documents)
    is_longer = longest > MAX_LIST_LENGTH
    more = 2 if is_longer else 1
    return [
        Effort(
            max(1, round(share * cells)), words, longest if is_longer else depth, sparse,
            more * rescored, more * floor, margin,
        )
        for share, words, depth, sparse, rescored, floor, margin in _LADDER
    ]  # fmt: skip


def recall(found: Ranking, truth: Ranking) -> float:
    """Return the share of the true rows that were found, 1 for none; tied documents are interchangeable."""
    if not len(truth.rows):
        return 1.0
    return float(np.count_nonzero(found.scores >= truth.scores[-1])) / len(truth.rows)


def tune(
    retriever: Retriever, queries: Encoded, progress: Progress = silent
) -> tuple[Effort | None, dict[str, Any]]:
    """Choose the effort for a retriever's index.

    Returns:
        The effort and its measured recall as JSON. The effort is missing (None) if no step reaches PROMISED_RECALL;
        the bundle then has no fast mode.
    """
    truths = [retriever.search(queries.slice(i, i + 1), DEPTH)[0] for i in range(len(queries))]
    # Random halves: a file may alternate two kinds of query.
    drawn = np.random.default_rng(_SEED).permutation(len(queries)).tolist()

    halves = (drawn[0::2], drawn[1::2])
    last = (np.ones(len(halves[0])), np.ones(len(halves[1])))

    def measured(effort: Effort, half: int, least: float = 0.0) -> float:
        """Return the mean recall; if it is below `least`, a bound that is too.

        The queries that the effort before this one lost most on come first, so a low recall shows after a few.
        """
        found = np.ones(len(halves[half]))
        for place in np.argsort(last[half], kind="stable").tolist():
            query = halves[half][place]
            ranking = retriever.search(
                queries.slice(query, query + 1), DEPTH, mode="fast", effort=effort
            )[0]
            last[half][place] = found[place] = recall(ranking, truths[query])
            if found.mean() < least:
                break
        # A single query is used to choose and leaves no other to measure: unmeasured recall counts as zero.
        return float(found.mean()) if len(found) else 0.0

    index = retriever.index
    ladder = efforts(0 if index is None else index.cells.n_cells, len(retriever.documents))
    steps = len(ladder) + len(_LOWERED) + 2
    step = 0
    while step < len(ladder) - 1 and measured(ladder[step], 0, AIMED_RECALL) < AIMED_RECALL:
        progress("fast mode", step, steps)
        step += 1
    chosen = ladder[step]
    for place, name in enumerate(("floor", *_LOWERED)):
        progress("fast mode", len(ladder) + place, steps)
        for lower in _lowered(chosen, name):
            if measured(lower, 0, AIMED_RECALL) >= AIMED_RECALL:
                chosen = lower
                break
    reached = measured(chosen, 1)
    for effort in ladder[step:]:
        if reached >= PROMISED_RECALL:
            break
        if measured(effort, 0, PROMISED_RECALL) >= PROMISED_RECALL:
            chosen, reached = effort, measured(effort, 1)
    progress("fast mode", steps, steps)
    facts = {"recall_at_10": round(reached, 4), "queries": len(range(1, len(queries), 2))}
    return (chosen if reached >= PROMISED_RECALL else None), facts


def _lowered(effort: Effort, name: str) -> Iterator[Effort]:
    if name == "floor":
        yield from (replace(effort, floor=floor) for floor in _FLOORS if floor > effort.floor)
        return
    if name == "margin":
        yield from (replace(effort, margin=round(share * effort.margin, 4)) for share in _SHARES)
        return
    now = int(asdict(effort)[name])
    for share in _SHARES:
        if max(1, round(share * now)) < now:
            yield replace(effort, **{name: max(1, round(share * now))})
