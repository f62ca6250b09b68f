"""The time of a query in one bundle, by the code of any release.

    PYTHONPATH=CHECKOUT python -P benchmarks/performance/query_alone.py BUNDLE QUERIES

QUERIES is queries.jsonl or queries.jsonl.gz. Run it in turn with this checkout and with one of an earlier release
(`git worktree add`), and compare. It prints the median µs of encoding, of the exact search of ten documents,
and of both. It imports nothing but fullrank and numpy, so that it runs with any release. Set OMP_NUM_THREADS=1 and
OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from pathlib import Path

import numpy as np

from fullrank.bundle import open_bundle

_QUERIES, _WARM_UP = 400, 20


def main() -> None:
    """Time queries and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("queries", type=Path)
    given = parser.parse_args()
    bundle = open_bundle(given.bundle)
    content = given.queries.read_bytes()
    lines = (gzip.decompress(content) if given.queries.suffix == ".gz" else content).splitlines()
    places = np.linspace(0, len(lines) - 1, min(_QUERIES + _WARM_UP, len(lines))).astype(int)
    taken = []
    for place in places.tolist():
        text = json.loads(lines[place])["text"]
        began = time.perf_counter()
        query = bundle.model.encode_queries([text])
        encoded = time.perf_counter()
        bundle.retriever.search(query, 10)
        taken.append((encoded - began, time.perf_counter() - encoded, time.perf_counter() - began))
    encode, search, both = np.median(taken[_WARM_UP:], axis=0) * 1e6
    print(json.dumps({"encode": round(encode), "search": round(search), "both": round(both)}))


if __name__ == "__main__":
    main()
