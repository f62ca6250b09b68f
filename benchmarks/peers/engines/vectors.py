"""Vectors of borrowed encoders, searched by FAISS or LanceDB."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from benchmarks.peers.dense import Encode, unit_rows
from benchmarks.peers.engines.engine import Engine
from benchmarks.peers.minilm_model import encoder, load_minilm, use_threads
from benchmarks.peers.ranking import Float32
from benchmarks.peers.static import distilled

HNSW = {"M": 32, "efConstruction": 200, "efSearch": 128}
"""Settings of a graph: links of a vector, and candidates while it is made and searched."""


def minilm_encoder() -> Encode:
    """Return all-MiniLM-L6-v2 on one thread."""
    use_threads(1)
    return encoder(load_minilm())


def static_encoder(work: Path) -> Encode:
    """Return MiniLM distilled to one vector per token (model2vec)."""
    model = distilled(work)

    def encode(texts: Sequence[str]) -> Float32:
        return unit_rows(np.asarray(model.encode(list(texts)), np.float32))

    return encode


def stored_vectors(file: Path, encode: Encode, texts: Sequence[str]) -> Float32:
    """Return the vectors of the documents (documents, N), from the file if an earlier run wrote it."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part.npy")
        np.save(part, encode(texts))
        part.replace(file)
    vectors: Float32 = np.load(file)
    return vectors


def faiss_engines(
    encoder_name: str, encode: Encode, vectors: Float32, graph: Any | None = None
) -> list[Engine]:
    """Return FAISS over all vectors, and over a graph of them.

    Args:
        encoder_name: in the table.
        encode: of queries.
        vectors: of the documents.
        graph: an HNSW index that holds the vectors already; default: make one.
    """
    dimension = vectors.shape[1]
    flat = faiss.IndexFlatIP(dimension)
    flat.add(vectors)
    if graph is None:
        graph = faiss.IndexHNSWFlat(dimension, HNSW["M"], faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = HNSW["efConstruction"]
        graph.add(vectors)
    graph.hnsw.efSearch = HNSW["efSearch"]
    return [
        _faiss(f"FAISS flat, {encoder_name}", encode, flat, {}),
        _faiss(f"FAISS HNSW, {encoder_name}", encode, graph, HNSW),
    ]


def _faiss(name: str, encode: Encode, index: Any, settings: dict[str, int]) -> Engine:
    def search(text: str, limit: int) -> list[int]:
        rows = index.search(encode([text]), min(limit, index.ntotal))[1][0]
        return [row for row in rows.tolist() if row >= 0]  # FAISS pads with -1

    return Engine(name, search, settings)


def lancedb_engine(
    folder: Path, encoder_name: str, encode: Encode, texts: Sequence[str], vectors: Float32
) -> Engine:
    """Return LanceDB's hybrid search: its full text index and all vectors, fused by reciprocal rank.

    Args:
        folder: empty, for its files.
        encoder_name: in the table.
        encode: of queries.
        texts: of the documents.
        vectors: of the documents.
    """
    os.environ.setdefault("LANCEDB_LOG", "error")  # else it warns twice a query
    arrow = import_module("pyarrow")
    reranker = import_module("lancedb.rerankers").RRFReranker()
    flat = arrow.array(vectors.reshape(-1))
    data = arrow.table(
        {
            "row": np.arange(len(texts)),
            "text": list(texts),
            "vector": arrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        }
    )
    table = import_module("lancedb").connect(str(folder)).create_table("d", data)
    table.create_fts_index("text")

    def search(text: str, limit: int) -> list[int]:
        asked = table.search(query_type="hybrid").vector(encode([text])[0]).text(text)
        found = asked.distance_type("cosine").rerank(reranker).select(["row"]).limit(limit)
        return [int(row) for row in found.to_arrow()["row"].to_pylist()]

    return Engine(f"LanceDB hybrid, {encoder_name}", search, {"reranker": "RRF"})
