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
from fullrank.retrieval.ranking import Ranking
from fullrank.retrieval.retriever import Retriever

DEPTH = 10
PROMISED = 0.99
# The other half differs a little.
AIMED = 0.995
EFFORTS = (
    Effort(nprobe=4, dense=64, sparse=200, words=16, exact=48),
    Effort(nprobe=8, dense=100, sparse=400, words=16, exact=64),
    Effort(nprobe=12, dense=150, sparse=600, words=24, exact=96),
    Effort(nprobe=16, dense=200, sparse=800, words=32, exact=128),
    Effort(nprobe=32, dense=400, sparse=1600, words=32, exact=256),
    Effort(nprobe=64, dense=800, sparse=3200, words=48, exact=512),
    Effort(nprobe=128, dense=1600, sparse=6400, words=64, exact=1024),
)


def recall(found: Ranking, truth: Ranking) -> float:
    """Part of the true rows that were found; 1 where there are none. Documents that tie are as good as each other."""
    if not len(truth.rows):
        return 1.0
    return float(np.count_nonzero(found.scores >= truth.scores[-1])) / len(truth.rows)


def tune(retriever: Retriever, queries: Encoded) -> tuple[Effort | None, dict[str, Any]]:
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

    chosen = EFFORTS[-1]
    for effort in EFFORTS:
        if measured(effort, 0) >= AIMED:
            chosen = effort
            break
    reached = measured(chosen, 1)
    facts = {"recall_at_10": round(reached, 4), "queries": len(range(1, len(queries), 2))}
    return (chosen if reached >= PROMISED else None), facts
