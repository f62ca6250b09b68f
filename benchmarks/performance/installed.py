"""Time engines that a user would install otherwise beside ours, on the corpora of benchmarks.performance.retrieval.

    engines/bin/python -m benchmarks.performance.installed --out DIR [--json] [--size 63000] [--queries 200]
                                                           [--rounds 10] [--without "PostgreSQL"]

DIR is the --out of benchmarks.performance.retrieval, after its --prepare. The engines are those of
benchmarks.peers.engines, in the environment of docs/results/frontier.md. Every system indexes the same documents and
answers the same short queries, one after another, from the text of the query: encoding it or splitting it into words
is part of its time. FAISS, pgvector and LanceDB search the dense parts of our documents, and our model encodes their
queries. The corpora have no judgements, so this measures no quality.

cpu_ms          processor time of a query that asks for ten documents, on all threads and in servers: the median over
                rounds; in a round every system answers the same queries, in alternating order
cpu_ms_rounds   lower quartile, median and upper quartile over the rounds
over_fast       cpu_ms over that of our fast mode
build_cpu_s     processor time to index the texts or vectors; null if an earlier command made the index
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.report import machine, show
from benchmarks.peers.engines.engine import Engine, process_seconds
from benchmarks.peers.engines.lexical import bm25s_engine, sqlite_engine, tantivy_engine
from benchmarks.peers.engines.pgvector import pgvector_engine
from benchmarks.peers.engines.postgres import postgres_engines
from benchmarks.peers.engines.vectors import faiss_engines, lancedb_engine
from benchmarks.peers.ranking import Float32
from benchmarks.performance.frontier import Contender, timed
from benchmarks.performance.prepare import Kept
from benchmarks.performance.resample import TERMS, short_queries
from fullrank.bundle import Bundle, open_bundle
from fullrank.models.contract import field_text
from fullrank.progress import Reporter

FIELDS = ("title", "text")
VECTORS = "own vectors"
_PACKAGES = (
    "fullrank",
    "numpy",
    "numba",
    "bm25s",
    "tantivy",
    "lancedb",
    "psycopg",
    "faiss-cpu",
)


def ours(bundle: Bundle, mode: str) -> Engine:
    """Return a mode of our search."""

    def search(text: str, limit: int) -> list[int]:
        query = bundle.model.encode_queries([text])
        return [int(row) for row in bundle.retriever.search(query, limit, mode=mode)[0].rows]

    return Engine(f"Fullrank {mode}", search, ours=True)


def open_engines(
    kept: Kept, name: str, without: Sequence[str], stack: ExitStack
) -> tuple[list[Engine], dict[str, float | None]]:
    """Index a corpus with every system whose name does not start with one of ``without``.

    Returns:
        The systems, and the processor time in seconds that the index of each took.
    """
    bundle = open_bundle(kept.bundle(name), verify=False)
    bundle.retriever.warm()
    fields = [{field: line[field] for field in FIELDS} for line in kept.lines(name)]
    texts = [field_text(line, FIELDS) for line in fields]
    vectors = np.ascontiguousarray(bundle.encoded.whole().dense)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fullrank-lancedb-")))

    def encode(asked: Sequence[str]) -> Float32:
        return np.ascontiguousarray(bundle.model.encode_queries(asked).dense)

    makers: dict[str, Callable[[], Sequence[Engine]]] = {
        "bm25s": lambda: [bm25s_engine(texts)],
        "tantivy": lambda: [tantivy_engine(fields)],
        "SQLite FTS5": lambda: [sqlite_engine(fields)],
        "PostgreSQL": lambda: stack.enter_context(postgres_engines(fields)),
        "FAISS": partial(faiss_engines, VECTORS, encode, vectors, kept.hnsw(name)),
        "pgvector": lambda: [stack.enter_context(pgvector_engine(VECTORS, encode, vectors))],
        "LanceDB": lambda: [lancedb_engine(folder, VECTORS, encode, texts, vectors)],
    }
    engines = [ours(bundle, mode) for mode in bundle.retriever.modes]
    built: dict[str, float | None] = {engine.name: None for engine in engines}
    for system, make in makers.items():
        if system in without:
            continue
        print(f"{name}: {system}", file=sys.stderr, flush=True)
        began = time.process_time()
        made = [engine for engine in make() if engine.name not in without]
        servers = {process for engine in made for process in engine.processes}
        seconds = time.process_time() - began + sum(map(process_seconds, servers))
        engines += made
        built |= {engine.name: None if system == "FAISS" else round(seconds, 1) for engine in made}
    return engines, built


def measure(kept: Kept, name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of all systems on one corpus."""
    texts = short_queries(kept.source(), given.queries, 10 * kept.seed)
    with ExitStack() as stack:
        engines, built = open_engines(kept, name, given.without, stack)
        contenders = [Contender(engine, texts) for engine in engines]
        times = timed(contenders, range(len(texts)), given.rounds)
    fast = times.get("Fullrank fast")
    return {
        system: {
            "cpu_ms": round(spent.cpu_ms, 4),
            "cpu_ms_rounds": [round(value, 4) for value in spent.cpu_ms_rounds],
            "over_fast": round(spent.cpu_ms / fast.cpu_ms, 2) if fast else None,
            "queries_per_core_second": round(1e3 / spent.cpu_ms, 1),
            "build_cpu_s": built[system],
        }
        for system, spent in times.items()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Index, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the corpora")
    parser.add_argument("--size", type=int, default=63000, help="documents; default 63000")
    parser.add_argument("--queries", type=int, default=200, help="default 200")
    parser.add_argument("--rounds", type=int, default=10, help="default 10")
    parser.add_argument("--without", action="append", default=[], help="a system to leave out")
    parser.add_argument("--terms", type=float, default=TERMS, help="as for the corpora")
    parser.add_argument("--seconds", type=float, default=60, help="of the fit, as for the corpora")
    parser.add_argument("--seed", type=int, default=1, help="as for the corpora; default 1")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    given = parser.parse_args(arguments)
    # A command that is ended must also end its PostgreSQL server.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with Reporter() as report:
        kept = Kept(given.out, given.seed, given.terms, given.seconds, report)
        systems = measure(kept, str(given.size), given)
    result = {
        "benchmark": "installed",
        "machine": machine(_PACKAGES),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "documents": given.size,
        "queries": given.queries,
        "rounds": given.rounds,
        "systems": systems,
    }
    show(result, given.json)


if __name__ == "__main__":
    main()
