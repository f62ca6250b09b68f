"""Quality against speed, beside the engines that a user would install otherwise.

    python -m benchmarks.performance.frontier --work DIR --prepare      train what is missing, encode documents
    python -m benchmarks.performance.frontier --work DIR [--json] [--picture FILE] [--only COLLECTION] [--join FILE]

Every system indexes the same documents and answers the same test queries, each on one thread and from the text of the
query: splitting it into words or encoding it is part of its time. The engines are those of benchmarks.peers.engines,
in an environment of their own (docs/results/peers.md); ours are bundles of DIR/bundles, trained with the recipes
that RECIPES names. Those of `benchmarks.performance.quality --cost --out DIR/bundles` (the default recipe and
`clicked`) are used if they are there.

value           MRR or MAP over an even sample of the test queries, without links of train and valid, all documents as
                candidates, the first thousand places (HNSW returns fewer)
cpu_ms          processor time of a query that asks for ten documents, on all threads and in servers: the median over
                rounds; in a round every system answers the same queries, in alternating order
cpu_ms_rounds   lower quartile, median and upper quartile over the rounds
queries_per_core_second     1000 / cpu_ms
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.lab import collection_folder
from benchmarks.harness.plots import Frontier, frontier
from benchmarks.harness.report import machine, show
from benchmarks.peers.engines import (
    Engine,
    bm25s_engine,
    faiss_engines,
    groonga_engines,
    lancedb_engine,
    minilm_encoder,
    postgres_engines,
    sqlite_engine,
    static_encoder,
    stored_vectors,
    tantivy_engine,
)
from benchmarks.peers.protocol import Asked, Encode, PeerData, read_peer_data
from fullrank import open_bundle
from fullrank.measures import Float64, average_precision, estimate, reciprocal_rank
from fullrank_trainer.evaluation.evaluate import DEPTH, evenly_spread, query_texts, ranked_grades
from fullrank_trainer.features.corpus import text_fields

PACKAGES = (
    "fullrank", "numpy", "numba", "bm25s", "tantivy", "lancedb", "psycopg", "faiss-cpu",
    "sentence-transformers", "model2vec",
)  # fmt: skip
RECIPES = {
    "tldr/en": ("bm25", "word-translation", "clicked", "auto"),
    "wikispeedia": ("bm25", "clicked", "auto"),
}
METRICS = {"tldr/en": "mrr", "wikispeedia": "map"}
ENCODERS = ("MiniLM", "static")
"""Of the vectors of FAISS and LanceDB: MiniLM takes minutes for the documents of a collection."""
TOP = 10
"""Documents that a timed query asks for."""
_WARM_UP = 20
_REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, eq=False)
class Contender:
    """An engine and the texts that it is asked, in the order of the judgements."""

    engine: Engine
    texts: Sequence[str]


def quality(
    contender: Contender, asked: Asked, metric: str, places: Sequence[int], depth: int = DEPTH
) -> Float64:
    """Return the measure over ``depth`` places of each chosen query, float64 (len(places),)."""
    values = np.zeros(len(places))
    for i, place in enumerate(places):
        judgement = asked.judgements[place]
        found = contender.engine.search(contender.texts[place], depth + len(judgement.excluded))
        rows = np.array(found, np.int64)
        grades = ranked_grades(rows[~np.isin(rows, judgement.excluded)][:depth], judgement)
        if metric == "mrr":
            values[i] = reciprocal_rank(grades)
        else:
            values[i] = average_precision(grades, len(judgement.relevant))
    return values


def timed(
    contenders: Sequence[Contender], places: Sequence[int], rounds: int
) -> dict[str, list[float]]:
    """Time queries for ten documents in rounds; each round asks its share of the places of every system.

    Returns quartiles over the rounds of the processor time of a query of each system, ms.
    """
    for contender in contenders:
        for place in places[:_WARM_UP]:
            contender.engine.search(contender.texts[place], TOP)
    cpu: dict[str, list[float]] = {c.engine.name: [] for c in contenders}
    for number, share in enumerate(np.array_split(np.array(places), rounds)):
        for contender in contenders if number % 2 == 0 else contenders[::-1]:
            engine = contender.engine
            used = engine.cpu_seconds()
            for place in share:
                engine.search(contender.texts[place], TOP)
            cpu[engine.name].append((engine.cpu_seconds() - used) * 1e3 / len(share))
    return {name: np.quantile(ms, [0.25, 0.5, 0.75]).tolist() for name, ms in cpu.items()}


def our_bundle(name: str, recipe: str, work: Path) -> Path:
    """Return the folder of a bundle's versions, named as benchmarks.performance.quality does."""
    suffix = {"auto": "", "clicked": "-one"}.get(recipe, f"-{recipe}")
    return work / "bundles" / f"{name.replace('/', '-')}{suffix}"


def trained_bundle(name: str, recipe: str, data: PeerData, work: Path) -> Path:
    """Return the folder of a bundle's versions; train the bundle if it is missing."""
    folder = our_bundle(name, recipe, work)
    if not folder.is_dir():
        command = [sys.executable, "-m", "fullrank", "train", str(data.collection.path)]
        options = ["--out", str(folder.parent), "--name", folder.name, "--recipe", recipe]
        options += (
            ["--set", "spelling=0", "--set", "title=1", "--set", "title_forms=false"]
            if recipe == "bm25"
            else []
        )
        subprocess.run([*command, *options], cwd=_REPOSITORY, check=True)
    return folder


def ours(name: str, recipe: str, data: PeerData, asked: Asked, work: Path) -> Contender:
    """Return a bundle of this project, searched exactly."""
    bundle = open_bundle(our_bundle(name, recipe, work))
    if list(bundle.documents.ids) != [document.id for document in data.collection.documents]:
        sys.exit(f"{bundle.path}: holds other documents than {name}")
    texts = query_texts(data.collection, bundle.model, [j.query for j in asked.judgements])

    def search(text: str, limit: int) -> list[int]:
        found = bundle.retriever.search(bundle.model.encode_queries([text]), limit)
        return [int(row) for row in found[0].rows]

    engine = Engine(f"Fullrank {recipe}", search, ours=True)
    return Contender(engine, texts)


def prepare(name: str, data: PeerData, work: Path, encoders: Sequence[str]) -> None:
    """Train the bundles that are missing and encode the documents."""
    for recipe in RECIPES[name]:
        trained_bundle(name, recipe, data, work)
    for encoder_name in encoders:
        vectors = _vector_file(name, encoder_name, work)
        stored_vectors(vectors, _encoder(encoder_name, work), data.documents)


def _encoder(name: str, work: Path) -> Encode:
    return minilm_encoder() if name == "MiniLM" else static_encoder(work)


def _vector_file(name: str, encoder_name: str, work: Path) -> Path:
    return work / "vectors" / f"{name.replace('/', '-')}-{encoder_name}.npy"


def open_engines(
    name: str,
    data: PeerData,
    asked: Asked,
    work: Path,
    encoders: Sequence[str],
    stack: ExitStack,
) -> list[Contender]:
    """Return all systems; servers and files live as long as the stack."""
    names = text_fields(data.collection)
    fields = [document.texts(names) for document in data.collection.documents]
    engines = [bm25s_engine(data.documents)]
    if data.collection.queries is not None:
        engines.append(bm25s_engine(data.clicked, "bm25s, clicked text"))
    engines += [tantivy_engine(fields), sqlite_engine(fields)]
    engines += stack.enter_context(postgres_engines(fields))
    engines += stack.enter_context(groonga_engines(fields))
    for encoder_name in encoders:
        encode = _encoder(encoder_name, work)
        vectors = stored_vectors(_vector_file(name, encoder_name, work), encode, data.documents)
        engines += faiss_engines(encoder_name, encode, vectors)
        folder = work / "lancedb" / f"{name.replace('/', '-')}-{encoder_name}"
        shutil.rmtree(folder, ignore_errors=True)
        engines.append(lancedb_engine(folder, encoder_name, encode, data.documents, vectors))
    return [
        *(ours(name, recipe, data, asked, work) for recipe in RECIPES[name]),
        *(Contender(engine, asked.texts) for engine in engines),
    ]


def measure(name: str, data: PeerData, given: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of all systems on one collection."""
    asked = data.asked("test")
    metric = METRICS[name]
    judged = evenly_spread(len(asked.judgements), given.queries).tolist()
    with ExitStack() as stack:
        contenders = open_engines(name, data, asked, given.work, given.encoders, stack)
        contenders = [c for c in contenders if c.engine.name not in given.without]
        chosen = [judged[i] for i in evenly_spread(len(judged), given.timed).tolist()]
        times = timed(contenders, chosen, given.rounds)
        systems: dict[str, Any] = {}
        for contender in contenders:
            engine = contender.engine
            found = estimate(quality(contender, asked, metric, judged))
            spent = times[engine.name]
            systems[engine.name] = {
                "value": round(found.mean, 4),
                "standard_error": round(found.standard_error, 4),
                "queries_per_core_second": round(1e3 / spent[1], 1),
                "cpu_ms": round(spent[1], 4),
                "cpu_ms_rounds": [round(value, 4) for value in spent],
                "ours": engine.ours,
            }
    return {
        "metric": metric,
        "documents": len(data.documents),
        "queries": len(judged),
        "timed_queries": len(chosen),
        "systems": systems,
    }


def picture(result: dict[str, Any], file: Path, x: str = "queries a second on one core") -> Path:
    """Draw one panel for each collection; a line joins our systems that no other of ours beats in both."""
    panels = {
        f"{name}, {found['documents']:,} documents": Frontier(
            found["metric"].upper() if "@" not in found["metric"] else found["metric"],
            {
                system: (line["queries_per_core_second"], line["value"], line["ours"])
                for system, line in found["systems"].items()
            },
        )
        for name, found in result["collections"].items()
    }
    return frontier(file, panels, x=x)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prepare, or measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder of bundles and vectors")
    parser.add_argument("--prepare", action="store_true", help="only write what DIR lacks")
    parser.add_argument("--only", default=",".join(RECIPES), help="collections, comma-separated")
    parser.add_argument(
        "--encoders", nargs="*", choices=ENCODERS, default=ENCODERS, help="of texts; default all"
    )
    parser.add_argument("--without", action="append", default=[], help="a system to leave out")
    parser.add_argument("--queries", type=int, default=500, help="judged queries; default 500")
    parser.add_argument("--timed", type=int, default=200, help="timed queries; default 200")
    parser.add_argument("--rounds", type=int, default=10, help="default 10")
    parser.add_argument("--join", type=Path, help="JSON of an earlier run: its collections too")
    parser.add_argument("--picture", type=Path, help="SVG file to draw")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    given = parser.parse_args(arguments)

    for name in given.only.split(","):
        if name not in RECIPES:
            sys.exit(f"no collection {name!r}; there are: {', '.join(RECIPES)}")
    collections = {n: read_peer_data(collection_folder(n)) for n in given.only.split(",")}
    if given.prepare:
        for name, data in collections.items():
            prepare(name, data, given.work, given.encoders)
        return
    # A command that is ended must also end its PostgreSQL server.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    earlier = json.loads(given.join.read_text())["collections"] if given.join else {}
    result = {
        "benchmark": "frontier",
        "machine": machine(PACKAGES if given.encoders else PACKAGES[:-2]),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "rounds": given.rounds,
        "collections": {
            **earlier,
            **{name: measure(name, data, given) for name, data in collections.items()},
        },
    }
    show(result, given.json)
    if given.picture:
        picture(result, given.picture)


if __name__ == "__main__":
    main()
