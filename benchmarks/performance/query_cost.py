"""The time of a query in two bundles of one collection, encoding and exact search of ten documents.

    python -m benchmarks.performance.query_cost BUNDLE OTHER --collection DIR [--queries 400]

Each query of the test split is asked of both bundles in turn, so that a busy moment hits both. The result has the
median µs of each part and the median over the queries of the ratio of their times. Set OMP_NUM_THREADS=1 and
OPENBLAS_NUM_THREADS=1: a service asks with one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.harness.report import show
from fullrank import open_bundle
from fullrank.bundle import Bundle
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import evenly_spread, judge, query_texts

_WARM_UP = 20


def ask(bundle: Bundle, text: str) -> tuple[float, float]:
    """Return the seconds that encoding and searching take."""
    began = time.perf_counter()
    query = bundle.model.encode_queries([text])
    encoded = time.perf_counter()
    bundle.retriever.search(query, 10)
    return encoded - began, time.perf_counter() - encoded


def main(arguments: Sequence[str] | None = None) -> None:
    """Time queries and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("other", type=Path)
    parser.add_argument("--collection", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=400)
    given = parser.parse_args(arguments)

    collection = read_collection(given.collection)
    judgements, _ = judge(collection, "test")
    bundles = [open_bundle(given.bundle), open_bundle(given.other)]
    chosen = evenly_spread(len(judgements), given.queries).tolist()
    asked = query_texts(collection, bundles[0].model, [judgements[i].query for i in chosen])
    for text in asked[:_WARM_UP]:
        for bundle in bundles:
            ask(bundle, text)
    taken = np.array([[ask(bundle, text) for bundle in bundles] for text in asked])
    median = np.median(taken, axis=0) * 1e6
    whole = taken.sum(axis=2)
    show(
        {
            "encode": round(float(median[0, 0]), 1),
            "search": round(float(median[0, 1]), 1),
            "other_encode": round(float(median[1, 0]), 1),
            "other_search": round(float(median[1, 1]), 1),
            "ratio": round(float(np.median(whole[:, 0] / whole[:, 1])), 3),
        },
        True,
    )


if __name__ == "__main__":
    main()
