"""The time that highlighting adds to a search, within one process.

    python -m benchmarks.performance.highlight BUNDLE [--queries 400] [--fields title,text]

Each query is searched without and with highlights, five times in turn, ten hits each, by the code that answers
/v1/search. The least time of each counts, because other programs only add to it. The queries are drawn from the
descriptions of debian, as in benchmarks.performance.http. The result has the median ms of a search, and the median and
the 90th percentile over the queries of what highlights add. Set OMP_NUM_THREADS=1 and
OPENBLAS_NUM_THREADS=1: a service asks with one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.harness.report import show
from benchmarks.performance.http import read_queries
from fullrank import open_bundle
from fullrank.highlight import Highlight
from fullrank.live import View
from fullrank_service.search.caching.bitmaps import Bitmaps
from fullrank_service.search.mode_policy import SearchModePolicy
from fullrank_service.search.ranking import rank_view
from fullrank_service.search.request import RankRequest
from fullrank_service.telemetry.stages import Stages

_WARM_UP, _TURNS = 20, 5


def main(arguments: Sequence[str] | None = None) -> None:
    """Time searches and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--queries", type=int, default=400)
    parser.add_argument("--fields", default="title,text")
    given = parser.parse_args(arguments)

    view = View.of(open_bundle(given.bundle))
    texts = read_queries(given.queries + _WARM_UP, seed=1)
    bitmaps, policy = Bitmaps(1 << 20), SearchModePolicy(1.0)

    def seconds(request: RankRequest) -> float:
        began = time.perf_counter()
        rank_view(view, request, "exact", None, bitmaps, policy, Stages())
        return time.perf_counter() - began

    asked = Highlight(given.fields.split(","))
    taken = []
    for text in texts:
        plain = RankRequest(text, 10)
        marked = replace(plain, highlight=asked)
        turns = [(seconds(plain), seconds(marked)) for _ in range(_TURNS)]
        taken.append(np.min(turns, axis=0))
    found = np.array(taken[_WARM_UP:]) * 1e3
    added = found[:, 1] - found[:, 0]
    show(
        {
            "documents": len(view),
            "search_ms": round(float(np.median(found[:, 0])), 3),
            "added_p50_ms": round(float(np.median(added)), 3),
            "added_p90_ms": round(float(np.quantile(added, 0.9)), 3),
        },
        True,
    )


if __name__ == "__main__":
    main()
