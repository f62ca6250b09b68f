"""How hard the fast mode has to look, chosen for each bundle by measuring it.

recall@k of a query is the part of its exact top-k that the fast mode returns. The least effort whose mean over one
half of the queries reaches AIMED is taken; what is reported is the mean over the other half, which had no part in the
choice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fullrank.encoding import Encoded
from fullrank.index import Effort
from fullrank.progress import Progress, silent
from fullrank.retrieval.ranking import Ranking
from fullrank.retrieval.retriever import Retriever

DEPTH = 10
PROMISED = 0.99
# The other half differs a little.
AIMED = 0.993
# Part of the cells that are looked at, then what Effort has: dense, sparse, words, postings, exact.
_LADDER = (
    (1 / 64, 100, 200, 16, 5_000, 48),
    (1 / 32, 200, 300, 16, 10_000, 64),
    (1 / 16, 300, 400, 16, 20_000, 96),
    (1 / 8, 400, 400, 16, 20_000, 128),
    (1 / 8, 400, 600, 16, 20_000, 256),
    (1 / 8, 600, 800, 16, 20_000, 512),
    (1 / 8, 1000, 800, 16, 20_000, 768),
    (1 / 4, 1000, 1600, 24, 50_000, 768),
    (1 / 2, 1600, 3200, 32, 300_000, 1024),
    (1.0, 3200, 6400, 64, 1_000_000, 2048),
)


def efforts(cells: int) -> list[Effort]:
    """From little to much, for an index of so many cells."""
    return [Effort(max(1, round(share * cells)), *rest) for share, *rest in _LADDER]


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

    def measured(effort: Effort, first: int) -> float:
        found = [
            recall(
                retriever.search(queries.slice(i, i + 1), DEPTH, mode="fast", effort=effort)[0],
                truths[i],
            )
            for i in range(first, len(queries), 2)
        ]
        return float(np.mean(found)) if found else 1.0

    index = retriever.index
    ladder = efforts(0 if index is None or index.cells is None else index.cells.count)
    chosen = ladder[-1]
    for place, effort in enumerate(ladder):
        progress("fast mode", place, len(ladder))
        if measured(effort, 0) >= AIMED:
            chosen = effort
            break
    reached = measured(chosen, 1)
    facts = {"recall_at_10": round(reached, 4), "queries": len(range(1, len(queries), 2))}
    return (chosen if reached >= PROMISED else None), facts
