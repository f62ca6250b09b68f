"""Compare exact and fast search with FAISS and bm25s on one core, from 10,000 to a million documents.

    python -m benchmarks.performance.retrieval [--json] [--sizes debian,10000,63000,250000,1000000]
                                           [--queries 300] [--prepare]

The corpora are Debian's package descriptions and corpora resampled from their sentences (resample.py). The model is
the fielded recipe with N = 128, trained on Debian for --seconds, so the embeddings are real. Corpora, model, bundles
and the peers' indexes are stored in --out; --prepare makes the missing ones on all cores and exits. Every run
measures everything again in this one process, pinned to one core, with one thread for OpenMP, OpenBLAS and numba.

All systems (engines.py) are timed one query at a time, in rounds of 20 queries. A ratio is computed within a round; the
report gives its median and quartiles over the rounds (rounds.py). The time to encode a query or split it into words is
not counted. Every answer is compared with a float64 brute force over all documents (truth.py): recall@10 of all
systems, and equal rows and scores of exact. Queries are short and do not occur in the corpus (descriptions of titles,
first words of texts); Debian itself contains the documents that they come from.

The largest size also measures k of 10, 100 and 1,000, queries of 3 to 1,000 words (runs of held-out text), and filters
that match 0.01 % to 100 % of the documents (a uniform field below a bound, evaluated before the clock starts and timed
separately). Before this process maps a bundle, four worker processes open it and answer queries, and their
proportional set size is read (footprint.py). The physical limit is the number of bytes that an exact scan must read,
divided by the measured bandwidth.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import orjson

from benchmarks.harness.lab import Lab
from benchmarks.harness.report import machine
from benchmarks.performance.prepare import DEBIAN, Kept
from benchmarks.performance.resample import TERMS, Source, term_statistics
from benchmarks.performance.retrieval_bars import held, largest
from benchmarks.performance.retrieval_corpus import Measurement
from benchmarks.performance.retrieval_tables import plots, tables

SIZES = f"{DEBIAN},10000,63000,250000,1000000"
_PACKAGES = ("fullrank", "numpy", "scipy", "numba", "faiss-cpu", "bm25s")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def compared_terms(kept: Kept, source: Source, name: str) -> dict[str, Any]:
    """Compare words and lengths of the source with a resampled corpus; cache them in its folder."""
    path = kept.corpus(int(name)) / "statistics.json"
    if not path.is_file():
        path.write_text(json.dumps(term_statistics(kept.lines(name))), "utf-8")
    return {"source": term_statistics(source.kept), "corpus": orjson.loads(path.read_bytes())}


def _sizes(text: str) -> list[str]:
    found = text.split(",")
    for name in found:
        if name != DEBIAN and not (name.isdecimal() and int(name) >= 1000):
            raise argparse.ArgumentTypeError(
                f"{name!r} must be {DEBIAN} or a number of at least 1000"
            )
    return found


def parser() -> argparse.ArgumentParser:
    """Return the options of the command."""
    found = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    form = found.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--markdown", action="store_true", help="the tables as Markdown")
    found.add_argument("--sizes", type=_sizes, default=_sizes(SIZES), help=f"default {SIZES}")
    found.add_argument("--queries", type=int, default=300, help="short queries; default 300")
    found.add_argument("--seed", type=int, default=1)
    found.add_argument(
        "--terms", type=float, default=TERMS, help=f"distinct words a document; default {TERMS}"
    )
    found.add_argument("--seconds", type=float, default=60, help="of the fit; default 60")
    found.add_argument("--out", type=Path, help="folder of results; default out/retrieval")
    found.add_argument("--prepare", action="store_true", help="make what is missing and exit")
    return found


def on_one_core() -> None:
    """Restart on one core with one thread per library; libraries read the variables at import."""
    last = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {last})
    if any(os.environ.get(name) != "1" for name in _THREADS):
        environment = os.environ | dict.fromkeys(_THREADS, "1")
        command = [sys.executable, "-m", "benchmarks.performance.retrieval", *sys.argv[1:]]
        os.execve(sys.executable, command, environment)


def main() -> None:
    """Prepare, measure and report; exit 1 if a bar is missed."""
    given = parser().parse_args()
    if not given.prepare:
        on_one_core()
    given.set, given.fresh, given.systems = [], False, None
    with Lab("retrieval", given) as lab:
        lab.machine = machine(_PACKAGES)
        kept = Kept(lab.store.folder, given.seed, given.terms, given.seconds, lab.report)
        for name in given.sizes:
            kept.bundle(name)
            kept.hnsw(name)
            kept.bm25s(name, "numba")
        if given.prepare:
            return
        run = Measurement(lab, kept, given.queries)
        most = largest(given.sizes)
        corpora = {name: run.corpus(name, curves=name == most) for name in given.sizes}
        terms = None if most == DEBIAN else compared_terms(kept, run.source, most)
        bars = held(corpora)
        lab.tell(
            tables(corpora, bars, terms),
            [],
            plots(corpora, lab.store.folder),
            bandwidth=run.gigabytes_a_second,
            corpora=corpora,
            term_statistics=terms,
            held=bars,
        )
    sys.exit(0 if bars["all"] else 1)


if __name__ == "__main__":
    main()
