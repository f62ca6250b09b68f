"""Live documents: the time until a write can be searched, and the time of a search among many of them.

    python -m benchmarks.performance.live [--json] [--bundles FOLDER] [--added 0,1000,50000] [--out DIR]

Debian's 63,435 package descriptions with the default recipe (trained as in http.py, or from --bundles). The added
documents are the same descriptions under other ids, in an order drawn by --seed, so with all of them half of the hits
are live. Everything runs in one process, without HTTP and without the log:

by 256     documents applied to the view 256 at a time, like a worker that follows a bulk write
merge      then all merges of segments that are due, which a worker does on another thread
one        a document applied alone, 300 times
exact      an exact search for ten documents, by titles drawn with --seed; the encoding is timed separately
fast       the same in the fast mode
compacted  the same searches once the documents are in a bundle

Times are processor time of the one working thread, so waiting and other load on the machine do not count. Percentiles
are over calls. A search before any write is timed again beside each size, so that the two differ by the documents alone
and not by other load: the ratio is that of the medians.
"""

from __future__ import annotations

import ctypes
import gc
import gzip
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.harness.lab import Lab, basic_parser
from benchmarks.harness.report import Table, data_folder, machine
from benchmarks.performance.http import trained
from fullrank.bundle import Bundle, open_bundle
from fullrank.bundle.manifest import LogPosition
from fullrank.live import Operation, View
from fullrank_service.documents.compact import write_compacted

_PACKAGES = ("numpy", "scipy", "numba")
_BATCH, _SINGLES, _QUERIES = 256, 300, 300


@dataclass(eq=False)
class Source:
    """An endless sequence of numbered writes."""

    documents: Iterator[dict[str, Any]]
    seq: int = 0

    def writes(self, count: int) -> list[Operation]:
        """Return the next ``count`` writes."""
        found = []
        for fields in islice(self.documents, count):
            self.seq += 1
            found.append(Operation(self.seq, f"live/{self.seq}", fields))
        return found


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call and its processor time in milliseconds."""
    began = time.thread_time()
    return call(), 1000 * (time.thread_time() - began)


def grown(view: View, source: Source, count: int, batch: int) -> tuple[View, list[float]]:
    """Return the view with ``count`` more documents, and the time of each batch."""
    took = []
    for start in range(0, count, batch):
        operations = source.writes(min(batch, count - start))
        view, spent = timed(partial(view.apply, operations))
        took.append(spent)
    return view, took


@dataclass(frozen=True)
class Times:
    """Milliseconds of each query: encoding, searching in each mode, and searching the bundle alone, in turn."""

    encode: list[float]
    exact: list[float]
    fast: list[float]
    exact_alone: list[float]
    fast_alone: list[float]


def measured(view: View, queries: Sequence[str], alone: View) -> Times:
    """Time the searches of a view and of a bundle alone, in turn first: the second one finds more in the caches."""
    found = Times([], [], [], [], [])
    warm_up = queries[:20]
    for turn, text in enumerate([*warm_up, *queries]):
        query, encode = timed(partial(view.model.encode_queries, [text]))
        plain = alone.model.encode_queries([text])
        spent = []
        for mode in ("exact", "fast"):
            pair = [
                partial(of.search, asked, 10, mode=mode)
                for of, asked in ((view, query), (alone, plain))
            ]
            order = (0, 1) if turn % 2 == 0 else (1, 0)
            times = {place: timed(pair[place])[1] for place in order}
            spent += [times[0], times[1]]
        if turn >= len(warm_up):
            lists = (found.encode, found.exact, found.exact_alone, found.fast, found.fast_alone)
            for list_ms, time_ms in zip(lists, (encode, *spent), strict=True):
                list_ms.append(time_ms)
    return found


def resident_mb() -> float:
    """Return the private memory of this process in MB."""
    status = Path("/proc/self/status").read_text("ascii").splitlines()
    [anonymous] = [line.split()[1] for line in status if line.startswith("RssAnon:")]
    return int(anonymous) / 1024


def run(bundle: Bundle, source: Source, queries: Sequence[str], sizes: Sequence[int]) -> list[Any]:
    """Measure with each number of documents in turn."""
    alone, added, found = View.of(bundle), 0, []
    view = alone
    bundle.retriever.warm()
    measured(view, queries, alone)
    # Otherwise live documents would reuse memory that training has freed, and not be counted.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = resident_mb()
    for size in sizes:
        view, batches = grown(view, source, size - added, _BATCH)
        added = size
        view, merging = timed(view.settled)
        memory = resident_mb() - before
        spent = measured(view, queries, alone)
        again = compacted(view, queries, alone) if size else spent
        # On a discarded view, so that the next row starts from the same state.
        _, singles = grown(view, source, _SINGLES, 1)
        found.append(
            {
                "added": size,
                "segments": len(view.added),
                "exact_ms": percentiles(spent.exact, 50, 99),
                "exact_ratio": ratio(spent.exact, spent.exact_alone),
                "fast_ms": percentiles(spent.fast, 50, 99),
                "fast_ratio": ratio(spent.fast, spent.fast_alone),
                "exact_ratio_compacted": ratio(again.exact, again.exact_alone),
                "fast_ratio_compacted": ratio(again.fast, again.fast_alone),
                "encode_ms": percentiles(spent.encode, 50, 99),
                "one_ms": percentiles(singles, 50, 99),
                "batch_ms": percentiles(batches, 50, 100) if batches else None,
                "merge_ms": round(merging, 1),
                "memory_mb": round(memory, 1),
            }
        )
    return found


def compacted(view: View, queries: Sequence[str], alone: View) -> Times:
    """Time the searches of a bundle that has all documents of a view."""
    with TemporaryDirectory(prefix="fullrank-live-") as folder:
        position = LogPosition("0" * 32, view.seq)
        bundle = open_bundle(write_compacted(view, position, Path(folder)), verify=False)
        return measured(View.of(bundle), queries, alone)


def ratio(several: Sequence[float], alone: Sequence[float]) -> float:
    """Return the ratio of two medians."""
    return round(float(np.median(several) / np.median(alone)), 2)


def percentiles(values: Sequence[float], *wanted: float) -> list[float]:
    """Round to three digits."""
    return [float(f"{value:.3g}") for value in np.percentile(values, wanted).tolist()]


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return a row per size."""
    headings = ["live documents", "segments", "exact p50, p99 ms", "× alone", "compacted, × alone"]
    headings += ["fast p50, p99 ms", "× alone", "compacted, × alone", "encode p50 ms"]
    headings += ["one write p50, p99 ms", f"{_BATCH} writes p50, max ms", "merge ms", "MB"]
    lines = [
        [
            f"{row['added']:,}",
            str(row["segments"]),
            "{:.2f}, {:.2f}".format(*row["exact_ms"]),
            f"{row['exact_ratio']:.2f}",
            f"{row['exact_ratio_compacted']:.2f}",
            "{:.2f}, {:.2f}".format(*row["fast_ms"]),
            f"{row['fast_ratio']:.2f}",
            f"{row['fast_ratio_compacted']:.2f}",
            f"{row['encode_ms'][0]:.2f}",
            "{:.2f}, {:.2f}".format(*row["one_ms"]),
            "{:.0f}, {:.0f}".format(*row["batch_ms"]) if row["batch_ms"] else "–",
            f"{row['merge_ms']:.0f}",
            f"{row['memory_mb']:.0f}",
        ]
        for row in rows
    ]
    notes = ["MB: memory of the process beyond what it had without live documents"]
    return Table("Live documents beside debian", headings, lines, notes)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train or open a bundle, measure and report."""
    options = basic_parser(__doc__, 105)
    options.add_argument("--bundles", type=Path, help="folder of a bundle of debian already there")
    options.add_argument("--added", default="0,1000,50000", help="default 0,1000,50000")
    options.add_argument("--queries", type=int, default=_QUERIES, help=f"default {_QUERIES}")
    given = options.parse_args(arguments)
    with Lab("live", given) as lab:
        lab.machine = machine(_PACKAGES)
        bundle = open_bundle(trained(lab, given), verify=False)
        with gzip.open(data_folder() / "debian" / "corpus.jsonl.gz", "rt", encoding="utf-8") as f:
            documents = [json.loads(line) for line in f]
        draw = random.Random(given.seed)
        queries = [str(d["title"]) for d in draw.sample(documents, given.queries)]
        draw.shuffle(documents)
        fields = [{k: v for k, v in d.items() if k != "_id"} for d in documents]
        source = Source(cycle(fields))
        rows = run(bundle, source, queries, sorted(map(int, given.added.split(","))))
        lab.tell([table(rows)], rows=rows, bundle=bundle.version, documents=len(bundle.documents))


if __name__ == "__main__":
    main()
