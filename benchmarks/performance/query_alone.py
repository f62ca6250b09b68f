"""The time of a query in one bundle, and the memory of the process, by the code of any release.

    PYTHONPATH=CHECKOUT python -P benchmarks/performance/query_alone.py BUNDLE QUERIES

QUERIES is queries.jsonl or queries.jsonl.gz. Run it in turn with this checkout and with one of an earlier release
(`git worktree add`), and compare. It prints the median µs of encoding, of the exact search of ten documents, and of
both; the ms of processor time to open the bundle (verified before) and to encode the first query; and the MB of memory
of its own that the process has more after the queries were encoded. It imports nothing but fullrank and numpy, so that
it runs with any release. Set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import gc
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
    before, began = _own_memory(), time.process_time()
    bundle = open_bundle(given.bundle, verify=False)
    opened = time.process_time() - began
    content = given.queries.read_bytes()
    lines = (gzip.decompress(content) if given.queries.suffix == ".gz" else content).splitlines()
    places = np.linspace(0, len(lines) - 1, min(_QUERIES + _WARM_UP, len(lines))).astype(int)
    asked = [json.loads(lines[place])["text"] for place in places.tolist()]
    began = time.process_time()
    bundle.model.encode_queries(asked[:1])
    first = time.process_time() - began
    for text in asked:
        bundle.model.encode_queries([text])
    gc.collect()
    own = _own_memory() - before
    taken = []
    for text in asked:
        began = time.perf_counter()
        query = bundle.model.encode_queries([text])
        encoded = time.perf_counter()
        bundle.retriever.search(query, 10)
        taken.append((encoded - began, time.perf_counter() - encoded, time.perf_counter() - began))
    encode, search, both = np.median(taken[_WARM_UP:], axis=0) * 1e6
    times = {"encode": round(encode), "search": round(search), "both": round(both)}
    start = {"open_ms": round(opened * 1e3, 1), "first_ms": round(first * 1e3, 1)}
    print(json.dumps({**times, **start, "own_mb": round(own / 1e6, 1)}))


def _own_memory() -> int:
    """Return the bytes of this process that no other has and no file holds."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("Pss_Anon:")]
    return 1024 * int(line.split()[1])


if __name__ == "__main__":
    main()
