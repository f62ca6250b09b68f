"""Engines of vectors over the encoded documents and queries of one of our bundles, on one thread.

    python -m benchmarks.performance.vectors --work DIR [--only tldr/en,debian] [--json] [--picture FILE]

Our score is u·v + s·t + b. Engines of sparse vectors search s·t, engines of dense vectors u·v + b (b is one more
dimension of v), each at three efforts. kANNolo also searches the whole score, with u and b as further features of a
sparse vector, where there are at most 65,536 features. Queries are encoded, and brought into the form that an engine
takes, before the clock starts. In a round every system answers the same queries, in an order that rotates.

value         recall@10: the share of the ten best documents by the whole score that are among its ten hits
part_recall   the same of the ten best by the part that the engine searches
query_us      processor time of a query, all threads: quartiles over rounds
over_ours     this time over that of our fast mode, or of the exact one where the bundle has no other, within rounds
build_s       processor time of building the index

An engine that is not installed, or refuses these vectors, is listed under `missing` with its reason. PISA is asked for
a round at once because its interface takes tables; its weights and those of BMP are rounded to integers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.harness.lab import collection_folder
from benchmarks.harness.report import machine, show
from benchmarks.peers.protocol import read_peer_data
from benchmarks.performance.frontier import TOP, picture, trained_bundle
from benchmarks.performance.http import read_queries
from benchmarks.performance.retrieval_systems import in_rounds
from benchmarks.performance.truth import brute_force, mean_recall
from fullrank import open_bundle
from fullrank.measures import Int64
from fullrank.storage.encoding import Encoded, Float32, Rows
from fullrank_trainer.evaluation.evaluate import evenly_chosen

Ask = Callable[[Sequence[int]], list[Any]]
"""Places of queries → the rows of ten documents for each, best first."""
Points = Iterator[tuple[str, Ask]]
PACKAGES = (
    "fullrank", "numpy", "numba", "pyseismic-lsr", "bmp", "pyterrier-pisa", "kannolo", "usearch", "scann",
)  # fmt: skip
_ROUND = 20
_EFFORTS = (32, 128, 512)
_LINKS, _CANDIDATES = 32, 200
"""Links of a document in a graph over dense vectors, and candidates while the graph is built."""
_LEVELS = 255
"""Steps of a weight, for engines that take integers."""


def points(name: str, efforts: Iterable[Any], search: Callable[[int, Any], Any]) -> Points:
    """Yield a system for each effort; ``search`` answers one query."""
    for effort in efforts:
        label = effort if isinstance(effort, str | int | float) else " ".join(map(str, effort))

        def ask(places: Sequence[int], effort: Any = effort) -> list[Any]:
            return [search(place, effort) for place in places]

        yield f"{name} {label}", ask


def lines(rows: Rows) -> list[tuple[Int64, Float32]]:
    """Return features and weights of each row."""
    cuts = rows.indptr[1:-1]
    return list(zip(np.split(rows.indices, cuts), np.split(rows.values, cuts), strict=True))


def named(rows: Rows, scale: float = 1.0) -> list[dict[str, float]]:
    """Return the weights of each row by the name of the feature."""
    return [
        dict(zip(map(str, words), (weights * scale).tolist(), strict=True))
        for words, weights in lines(rows)
    ]


def dense(part: Encoded, bias: Float32) -> Float32:
    """Return the dense vectors with the bias as one more dimension."""
    return np.ascontiguousarray(np.column_stack([part.dense, bias]), np.float32)


def whole(part: Encoded, bias: Float32) -> Rows:
    """Return sparse vectors whose first features are the dense part and the bias."""
    first = sp.csr_array(dense(part, bias))
    return Rows.from_csr(sp.csr_array(sp.hstack([first, part.sparse.csr()])))


def seismic(documents: Rows, queries: Rows) -> Points:
    """Seismic: posting lists in blocks with summaries; effort: words of the query, how sure a block must be."""
    library = import_module("seismic")
    data = library.SeismicDatasetLV(documents.width)
    ids = [str(row) for row in range(len(documents))]
    indices, indptr = documents.indices.astype(np.int64), documents.indptr.astype(np.int64)
    data.add_documents_by_id(ids, indices, documents.values, indptr)
    index = library.SeismicIndexLV.build_from_dataset(data, num_threads=1)
    kind = library.get_seismic_string()
    asked = [(np.array(words.astype(str), kind), weights) for words, weights in lines(queries)]

    def search(place: int, effort: tuple[int, float]) -> list[int]:
        cut, factor = effort
        found = index.search("", *asked[place], k=TOP, query_cut=cut, heap_factor=factor)
        return [int(hit[2]) for hit in found]

    return points("Seismic", ((5, 0.9), (15, 0.8), (50, 0.6)), search)


def kannolo_sparse(documents: Rows, queries: Rows, name: str) -> Points:
    """kANNolo: a graph over sparse vectors; effort: candidates."""
    index = import_module("kannolo").SparsePlainHNSW.build_from_arrays(
        documents.indices.astype(np.int32), documents.values, documents.indptr.astype(np.int64),
        m=16, ef_construction=100,
    )  # fmt: skip
    asked = [(words.astype(np.int32), weights) for words, weights in lines(queries)]
    return points(name, _EFFORTS, lambda place, effort: index.search(*asked[place], TOP, effort)[1])


def bmp(documents: Rows, queries: Rows) -> Points:
    """BMP: blocks of documents by their largest weights; effort: how sure a block must be, 1 is exact."""
    library = import_module("bmp")
    with tempfile.TemporaryDirectory(prefix="fullrank-bmp-") as folder:
        indexer = library.Indexer(f"{folder}/index", 32, True)
        for row, weights in enumerate(named(documents, _LEVELS / float(documents.values.max()))):
            levels = {word: max(1, round(weight)) for word, weight in weights.items()}
            indexer.add_document(str(row), levels)
        indexer.finish()
        searcher = library.Searcher(f"{folder}/index")
    asked = named(queries)

    def search(place: int, alpha: float) -> list[int]:
        return [int(row) for row in searcher.search(asked[place], TOP, alpha, 1.0)[0]]

    return points("BMP", (0.6, 0.8, 1.0), search)


def pisa(documents: Rows, queries: Rows) -> Points:
    """PISA: posting lists with upper bounds; its algorithms are exact, over rounded weights."""
    library, table = import_module("pyterrier_pisa"), import_module("pandas").DataFrame
    folder = tempfile.mkdtemp(prefix="fullrank-pisa-")
    index = library.PisaIndex(folder, threads=1, stemmer="none")
    index.toks_indexer(scale=_LEVELS / float(documents.values.max()), mode="overwrite").index(
        {"docno": str(row), "toks": weights} for row, weights in enumerate(named(documents))
    )
    asked = named(queries)
    for algorithm in ("wand", "block_max_wand", "maxscore"):
        retrieve = index.quantized(num_results=TOP, threads=1, query_algorithm=algorithm)

        def search(places: Sequence[int], retrieve: Any = retrieve) -> list[list[int]]:
            found: dict[str, list[int]] = {str(place): [] for place in places}
            frame = table({"qid": list(found), "query_toks": [asked[place] for place in places]})
            hits = retrieve.transform(frame)
            for query, row in zip(hits["qid"], hits["docno"], strict=True):
                found[query].append(int(row))
            return list(found.values())

        yield f"PISA {algorithm}", search
    shutil.rmtree(folder)  # mapped by then


def kannolo_dense(documents: Float32, queries: Float32) -> Points:
    """kANNolo: a graph over dense vectors; effort: candidates."""
    index = import_module("kannolo").DensePlainHNSW.build_from_array(
        documents.ravel(), documents.shape[1],
        m=_LINKS, ef_construction=_CANDIDATES, metric="dotproduct",
    )  # fmt: skip
    return points(
        "kANNolo dense", _EFFORTS, lambda p, effort: index.search(queries[p], TOP, effort)[1]
    )


def usearch(documents: Float32, queries: Float32) -> Points:
    """USearch: a graph over dense vectors; effort: candidates."""
    index = import_module("usearch.index").Index(
        ndim=documents.shape[1], metric="ip", dtype="f32",
        connectivity=_LINKS, expansion_add=_CANDIDATES,
    )  # fmt: skip
    index.add(np.arange(len(documents)), documents, threads=1)

    def search(place: int, effort: int) -> Any:
        index.expansion_search = effort
        return index.search(queries[place], TOP, threads=1).keys

    return points("USearch", _EFFORTS, search)


def scann(documents: Float32, queries: Float32) -> Points:
    """ScaNN: clusters of quantised vectors, the best 100 scored again; effort: clusters."""
    leaves = round(len(documents) ** 0.5)
    builder = import_module("scann").scann_ops_pybind.builder(documents, TOP, "dot_product")
    builder = builder.set_n_training_threads(1).tree(
        num_leaves=leaves, num_leaves_to_search=leaves, training_sample_size=len(documents)
    )
    index = builder.score_ah(2, anisotropic_quantization_threshold=0.2).reorder(100).build()
    efforts = [round(share * leaves) for share in (0.05, 0.2, 0.8)]
    return points("ScaNN", efforts, lambda p, n: index.search(queries[p], leaves_to_search=n)[0])


def measure(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of all systems on one collection."""
    data = read_peer_data(collection_folder(name))
    bundle = open_bundle(trained_bundle(name, "auto", data, given.work))
    judged = data.collection.queries is not None
    asked = data.asked("test").texts if judged else read_queries(5_000, 1)
    texts = evenly_chosen(list(dict.fromkeys(asked)), given.queries)
    d, q = bundle.encoded.whole(), bundle.model.encode_queries(texts)
    wide, ones = dense(d, d.bias), np.ones(len(texts), np.float32)
    asked_wide = dense(q, ones)

    def without_words(vectors: Float32) -> Encoded:
        return Encoded.from_rows(
            Rows.from_csr(sp.csr_array(np.zeros((len(vectors), 1), np.float32))), vectors
        )

    truths = {
        "whole": brute_force(d, q, TOP),
        "sparse": brute_force(Encoded.from_rows(d.sparse), Encoded.from_rows(q.sparse), TOP),
        "dense": brute_force(without_words(wide), without_words(asked_wide), TOP),
    }
    alone = [q.slice(place, place + 1) for place in range(len(texts))]

    def ours(place: int, mode: str) -> Int64:
        return bundle.retriever.search(alone[place], TOP, mode=mode)[0].rows

    modes = bundle.retriever.modes
    engines: dict[str, tuple[str, Callable[[], Points]]] = {
        "Fullrank": ("whole", lambda: points("Fullrank", modes, ours)),
        "Seismic": ("sparse", lambda: seismic(d.sparse, q.sparse)),
        "BMP": ("sparse", lambda: bmp(d.sparse, q.sparse)),
        "PISA": ("sparse", lambda: pisa(d.sparse, q.sparse)),
        "kANNolo sparse": ("sparse", lambda: kannolo_sparse(d.sparse, q.sparse, "kANNolo sparse")),
        "kANNolo whole": (
            "whole",
            lambda: kannolo_sparse(whole(d, d.bias), whole(q, ones), "kANNolo whole"),
        ),
        "kANNolo dense": ("dense", lambda: kannolo_dense(wide, asked_wide)),
        "USearch": ("dense", lambda: usearch(wide, asked_wide)),
        "ScaNN": ("dense", lambda: scann(wide, asked_wide)),
    }
    systems, facts, missing = dict[str, Ask](), dict[str, tuple[str, float]](), dict[str, str]()
    for engine, (part, build) in engines.items():
        if engine in given.without:
            continue
        began = time.process_time()
        try:
            made = dict(build())
        except (ImportError, ValueError) as error:
            missing[engine] = str(error)
            continue
        systems |= made
        facts |= dict.fromkeys(made, (part, round(time.process_time() - began, 1)))
    batches = [range(i, min(i + _ROUND, len(texts))) for i in range(0, len(texts), _ROUND)]
    timed = in_rounds(systems, batches, batches[:2], size=1, clock=time.process_time)
    base = f"Fullrank {'fast' if 'fast' in modes else 'exact'}"
    found: dict[str, Any] = {}
    for point, (part, build_s) in facts.items():
        rows = [np.asarray(row) for answer in timed.answers[point] for row in answer]
        us = timed.seconds[point] * 1e6 / [len(batch) for batch in batches]
        low, median, high = np.percentile(us, (25, 50, 75)).round(1).tolist()
        found[point] = {
            "part": part,
            "value": mean_recall(rows, truths["whole"], TOP),
            "part_recall": mean_recall(rows, truths[part], TOP),
            "query_us": [low, median, high],
            "over_ours": timed.ratio(point, base),
            "build_s": build_s,
            "queries_per_core_second": round(1e6 / median, 1),
            "ours": point.startswith("Fullrank"),
        }
    return {
        "metric": "recall@10",
        "documents": len(d),
        "features": d.sparse.width,
        "dimensions": d.n_dense,
        "queries": len(texts),
        "systems": found,
        "missing": missing,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder of bundles")
    parser.add_argument("--only", default="tldr/en,debian", help="collections, comma-separated")
    parser.add_argument("--queries", type=int, default=400, help="default 400")
    parser.add_argument("--without", action="append", default=[], help="an engine to leave out")
    parser.add_argument("--picture", type=Path, help="SVG file to draw")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    given = parser.parse_args(arguments)
    os.environ["RAYON_NUM_THREADS"] = "1"  # before the engines that read it are imported
    out = os.dup(1)
    os.dup2(2, 1)  # some engines print their progress
    collections = {name: measure(name, given) for name in given.only.split(",")}
    sys.stdout.flush()
    os.dup2(out, 1)
    installed = {found.name.replace("_", "-") for found in distributions()}
    packages = [name for name in PACKAGES if name in installed]
    result = {"benchmark": "vectors", "machine": machine(packages), "collections": collections}
    show(result, given.json)
    if given.picture:
        picture(result, given.picture, x="queries a second on one core, encoded")


if __name__ == "__main__":
    main()
