"""The cost of a bundle against the number of its documents, from ten thousand to ten million.

    python -m benchmarks.performance.sizes [--sizes 10000,100000,1000000,10000000] [--work DIR]
                                           [--queries 300] [--swap SIZE] [--compact SIZE] [--prepare]

Corpora, model and queries are those of retrieval.py, in --work; what is missing is made first (--prepare stops there).
A corpus of ten million takes 8 GB and its bundle 24 GB; `fullrank index` needs 11 GB more meanwhile. Bundles are built
by the command in a process of its own, on all cores that this one may use. Everything else runs on one core:

exact, fast    a search for ten documents; recall is of the exact answers, which are certified
filter 1 %     the same in the fast mode (exact where there is none), the evaluation of the filter included
live write     a document applied alone beside the bundle and 256 live documents
two workers    forked as those of the service are, after 300 queries in each mode: their proportional set size

Times are processor time of the one thread, so other load on the machine counts only by what it takes from the caches.
The exponent of a line is the slope of a line of least squares through the logarithms: 1 is proportional to the size.

--swap and --compact serve the bundle of a size with two workers, while two clients search again and again: first
undisturbed, then during a swap to a second version of the same files, or during the writes of 1,000 live documents and
their compaction (sizes_serving.py). A failure is any answer but 200.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.lab import Lab, basic_parser
from benchmarks.harness.report import NOTHING, Table
from benchmarks.performance.footprint import workers
from benchmarks.performance.live import Source, grown, percentiles, timed
from benchmarks.performance.resample import TERMS, short_queries
from benchmarks.performance.retrieval import on_one_core
from benchmarks.performance.retrieval_inputs import Kept
from benchmarks.performance.retrieval_systems import ready
from benchmarks.performance.sizes_serving import WORKERS, served
from fullrank.bundle import open_bundle
from fullrank.filters.query import matching, parse_filter
from fullrank.live import View
from fullrank.retrieval.tune import recall

SIZES = "10000,100000,1000000,10000000"
SINGLES, _WARM_UP = 300, 20
_FILTER = {"draw": {"lt": 0.01}}


def measured(kept: Kept, size: int, count: int, lab: Lab) -> dict[str, Any]:
    """Measure one size in this process, and its memory in workers."""
    path, source = kept.bundle(str(size)), kept.source()
    texts = short_queries(source, count, 10 * kept.seed)
    lab.report.log("measuring", documents=size)
    memory = workers(path, texts, lab.scratch, WORKERS)
    bundle = open_bundle(path, verify=False)
    retriever = bundle.retriever
    retriever.warm()
    warm_up = short_queries(source, _WARM_UP, 10 * kept.seed + 1, tuning=True)
    times: dict[str, list[float]] = {"exact": [], "fast": [], "filter": []}
    recalls, certified = [], 0

    def filtered(query: Any) -> Any:
        fits = matching(parse_filter(_FILTER), bundle.columns)
        return retriever.search(query, 10, deleted=~fits, mode=retriever.modes[-1])[0]

    for turn, query in enumerate(ready(bundle.model, [*warm_up, *texts])):
        found = {}
        for mode in retriever.modes:
            search = partial(retriever.search, query.encoded, 10, mode=mode)
            [found[mode]], spent = timed(search)
            times[mode].append(spent)
        times["filter"].append(timed(partial(filtered, query.encoded))[1])
        if turn >= _WARM_UP:
            certified += found["exact"].certified
            recalls.append(recall(found[retriever.modes[-1]], found["exact"]))
    written = (
        {"title": d["title"], "text": d["text"]} for d in source.documents(kept.seed + 1, 1.0)
    )
    writes = Source(written)
    view, _ = grown(View.of(bundle), writes, 256, 256)
    _, singles = grown(view, writes, SINGLES, 1)
    return {
        "documents": size,
        "bytes": sum(file.stat().st_size for file in path.rglob("*") if file.is_file()),
        "built": kept.built(str(size)),
        **{
            f"{name}_ms": percentiles(spent[_WARM_UP:], 50, 99)
            for name, spent in times.items()
            if spent
        },
        "write_ms": percentiles(singles, 50, 99),
        "recall_at_10": float(np.mean(recalls)) if "fast" in retriever.modes else None,
        "certified_share": certified / count,
        "pss_gib": _gib(memory["proportional_set_gb"]),
    }


def _gib(gigabytes: float) -> float:
    return gigabytes * 1e9 / 2**30


Line = Callable[[dict[str, Any]], float | None]
LINES: dict[str, Line] = {
    "bytes on disk, GB": lambda found: found["bytes"] / 1e9,
    "build, s": lambda found: found["built"]["seconds"],
    "build, processor s": lambda found: found["built"]["processor_s"],
    "build, documents a second": lambda found: found["documents"] / found["built"]["seconds"],
    "build, peak anonymous GiB": lambda found: _gib(found["built"]["peak_anonymous_gb"]),
    "build, peak with mapped files GiB": lambda found: _gib(found["built"]["peak_resident_gb"]),
    "exact p50 ms": lambda found: found["exact_ms"][0],
    "exact p99 ms": lambda found: found["exact_ms"][1],
    "fast p50 ms": lambda found: found.get("fast_ms", [None])[0],
    "fast p99 ms": lambda found: found.get("fast_ms", [None, None])[1],
    "recall@10 of fast": lambda found: found["recall_at_10"],
    "filter 1 % p50 ms": lambda found: found["filter_ms"][0],
    "live write p50 ms": lambda found: found["write_ms"][0],
    "live write p99 ms": lambda found: found["write_ms"][1],
    "two workers, proportional set GiB": lambda found: found["pss_gib"],
}


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of a line of least squares through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return a line per cost and a column per size."""
    lines = []
    for name, of in LINES.items():
        values = {row["documents"]: value for row in rows if (value := of(row)) is not None}
        shown = [
            f"{values[row['documents']]:.4g}" if row["documents"] in values else NOTHING
            for row in rows
        ]
        slope = f"{exponent([*values], [*values.values()]):.2f}" if len(values) > 1 else NOTHING
        lines.append([name, *shown, slope])
    headings = ["", *(f"{row['documents']:,}" for row in rows), "exponent"]
    certified = min(row["certified_share"] for row in rows)
    cores = ", ".join(str(row["built"]["cores"]) for row in rows)
    return Table(
        "Cost against the number of documents", headings, lines,
        [f"at least {certified:.0%} of exact answers certified; cores of the builds: {cores}"],
    )  # fmt: skip


def kept_in(lab: Lab, given: argparse.Namespace) -> Kept:
    """Return the inputs of retrieval.py, in --work."""
    work = given.work or lab.store.folder.parent / "retrieval"
    return Kept(work, given.seed, TERMS, given.seconds, lab.report)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make what is missing, measure and report."""
    options = basic_parser(__doc__, 60)
    options.add_argument("--sizes", default=SIZES, help=f"default {SIZES}")
    options.add_argument(
        "--work", type=Path, help="folder of corpora and bundles; default that of retrieval.py"
    )
    options.add_argument("--queries", type=int, default=300, help="default 300")
    options.add_argument("--swap", type=int, help="size to serve during a swap")
    options.add_argument("--compact", type=int, help="size to serve during a compaction")
    options.add_argument("--prepare", action="store_true", help="make what is missing and exit")
    given = options.parse_args(arguments)
    sizes = [int(size) for size in given.sizes.split(",") if size]
    with Lab("sizes", given) as lab:
        kept = kept_in(lab, given)
        for size in sizes:
            kept.bundle(str(size))
    if given.prepare:
        return
    on_one_core("benchmarks.performance.sizes")
    with Lab("sizes", given) as lab:
        kept = kept_in(lab, given)
        rows = [measured(kept, size, given.queries, lab) for size in sizes]
        asked = {"swap": given.swap, "compact": given.compact}
        found = {what: served(kept, size, what, lab) for what, size in asked.items() if size}
        lab.tell([table(rows)] if rows else [], sizes=rows, served=found)


if __name__ == "__main__":
    main()
