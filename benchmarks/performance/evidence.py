"""What evidence costs: searches with and without a floor, by the code of any release.

    PYTHONPATH=CHECKOUT python -P benchmarks/performance/evidence.py BUNDLE

Run it in turn with this checkout and with an earlier one (`git worktree add`), and compare. The queries are 400 runs of
one to five words of random documents, drawn by a fixed seed. It prints, as means in µs of processor time:

exact, fast               the ten best documents in that mode
exact_floor, fast_floor   the ten best documents that have the evidence that the bundle asks for
count                     how many documents have it, up to 10,000
exact_counted             exact_floor and count: of one scan in releases that can

and recall, the share of the hits of `exact_floor` that `fast_floor` has; changed, the share of the queries that have a
document without evidence among their first ten; and exact_after_fast, the share of the searches of `fast_floor` that
went on as exact ones. It imports nothing but fullrank and numpy, so that it runs with any release that has
floors. Set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from fullrank.bundle import Bundle, open_bundle
from fullrank.encoding import Encoded
from fullrank.retrieval import Ranking

_QUERIES, _WARM_UP, _REPEATS = 400, 20, 3
_WORDS, _SEED = 5, 4
_COUNTED = 10_000

Asked = tuple[Encoded, Any]
"""An encoded query and its floor."""


def queries_of(bundle: Bundle) -> list[str]:
    """Draw runs of words from the text fields of documents."""
    rng = np.random.default_rng(_SEED)
    rows = rng.choice(len(bundle.documents), min(_QUERIES, len(bundle.documents)), replace=False)
    found = []
    for row in rows.tolist():
        fields = bundle.documents.fields(row)
        words = " ".join(v for v in fields.values() if isinstance(v, str)).split()
        first = int(rng.integers(max(1, len(words) - _WORDS)))
        found.append(" ".join(words[first : first + int(rng.integers(1, _WORDS + 1))]))
    return [text for text in found if text]


def mean_us(work: Callable[[Asked], Any], asked: list[Asked]) -> tuple[float, list[Any]]:
    """Return the mean processor time of a query, the least of some repetitions, and the results."""
    for one in asked[:_WARM_UP]:
        work(one)
    least, results = np.inf, []
    for _ in range(_REPEATS):
        began = time.process_time()
        results = [work(one) for one in asked]
        least = min(least, time.process_time() - began)
    return round(least / len(asked) * 1e6), results


def measured(bundle: Bundle) -> dict[str, Any]:
    """Return what a bundle shows."""
    search, found = bundle.retriever.search, {}
    alone: dict[str, list[Any]] = {}

    def plain(mode: str, one: Asked) -> Ranking:
        return search(one[0], 10, mode=mode)[0]

    def with_floor(mode: str, one: Asked) -> Ranking:
        return search(one[0], 10, mode=mode, floor=one[1])[0]

    def count(one: Asked) -> int:
        return bundle.retriever.count(one[0], one[1], _COUNTED)

    def counted(one: Asked) -> Ranking:
        if "counted" in signature(search).parameters:
            return search(one[0], 10, floor=one[1], counted=_COUNTED)[0]
        count(one)
        return with_floor("exact", one)

    asked = [(bundle.encode(text), bundle.floor_of(text)) for text in queries_of(bundle)]
    times: dict[str, Any] = {"queries": len(asked), "documents": len(bundle.documents)}
    for mode in bundle.retriever.modes:
        times[mode], alone[mode] = mean_us(partial(plain, mode), asked)
        times[f"{mode}_floor"], found[mode] = mean_us(partial(with_floor, mode), asked)
    times["count"], _ = mean_us(count, asked)
    times["exact_counted"], _ = mean_us(counted, asked)
    pairs = zip(alone["exact"], found["exact"], strict=True)
    changed = [not np.array_equal(one.rows, other.rows) for one, other in pairs]
    times["changed"] = round(float(np.mean(changed)), 3)
    if "fast" in found:
        shares = [
            np.isin(exact.rows, fast.rows).mean()
            for exact, fast in zip(found["exact"], found["fast"], strict=True)
            if len(exact.rows)
        ]
        times["recall"] = round(float(np.mean(shares)), 4)
        certified = [one.certified for one in found["fast"]]
        times["exact_after_fast"] = round(float(np.mean(certified)), 3)
    return times


def main() -> None:
    """Time queries and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    given = parser.parse_args()
    bundle = open_bundle(given.bundle, verify=False)
    if bundle.floor is None:
        raise SystemExit(f"{bundle.version} has no floors")
    print(json.dumps(measured(bundle)))


if __name__ == "__main__":
    main()
