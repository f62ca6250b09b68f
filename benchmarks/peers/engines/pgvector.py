"""Vectors in PostgreSQL with pgvector, on a server of its own."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.harness.pgvector_server import pgvector_server
from benchmarks.peers.dense import Encode
from benchmarks.peers.engines.engine import Engine
from benchmarks.peers.engines.vectors import HNSW
from benchmarks.peers.ranking import Float32

_INDEX = """
CREATE INDEX ON d USING hnsw (v vector_ip_ops) WITH (m = {M}, ef_construction = {efConstruction})
"""
_STATEMENT = "SELECT id FROM d ORDER BY v <#> %b LIMIT %s"


@contextmanager
def pgvector_engine(encoder_name: str, encode: Encode, vectors: Float32) -> Iterator[Engine]:
    """Index the vectors of the documents in a graph, and answer as long as the context lasts.

    Args:
        encoder_name: in the table.
        encode: of queries.
        vectors: of the documents.
    """
    psycopg = import_module("psycopg")
    with pgvector_server() as address, psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
        _send_arrays_as_vectors(psycopg, connection)
        _fill(connection, vectors)
        connection.execute(f"SET hnsw.ef_search = {HNSW['efSearch']}")

        def search(text: str, limit: int) -> list[int]:
            with connection.cursor() as cursor:
                found = cursor.execute(_STATEMENT, (encode([text])[0], limit), prepare=True)
                return [row for (row,) in found.fetchall()]

        name = f"pgvector HNSW, {encoder_name}"
        yield Engine(name, search, HNSW, processes=(connection.info.backend_pid,))


def _send_arrays_as_vectors(psycopg: Any, connection: Any) -> None:
    """Send float32 arrays in the binary format of pgvector: the length, two bytes of zeros, and the values."""
    info = psycopg.types.TypeInfo.fetch(connection, "vector")
    info.register(connection)

    class Dumper(psycopg.adapt.Dumper):  # type: ignore[misc]  # imported only here
        format = psycopg.pq.Format.BINARY
        oid = info.oid

        def dump(self, values: Float32) -> bytes:
            return struct.pack(">HH", len(values), 0) + values.astype(">f4").tobytes()

    connection.adapters.register_dumper(np.ndarray, Dumper)


def _fill(connection: Any, vectors: Float32) -> None:
    """Write the vectors and make their graph."""
    connection.execute(f"CREATE TABLE d (id integer PRIMARY KEY, v vector({vectors.shape[1]}))")
    statement = "COPY d FROM STDIN WITH (FORMAT BINARY)"
    with connection.cursor() as cursor, cursor.copy(statement) as rows:
        rows.set_types(["integer", "vector"])
        for row, values in enumerate(vectors):
            rows.write_row((row, values))
    connection.execute("SET maintenance_work_mem = '3GB'")
    connection.execute("SET max_parallel_maintenance_workers = 0")
    connection.execute(_INDEX.format(**HNSW))
    connection.execute("VACUUM ANALYZE d")
