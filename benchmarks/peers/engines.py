"""Engines that a user would install otherwise: bm25s, tantivy, SQLite FTS5, PostgreSQL, groonga, FAISS and LanceDB.

Those that match words stem English words, as the documentation of each shows; a query means any of its words. The
server of PostgreSQL listens on a socket in a temporary folder and ends with the benchmark; it does not run as root, so
root starts it as the user `postgres`, whom the package creates.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import faiss
import numpy as np

from benchmarks.peers.minilm import encoder, load_minilm, use_threads
from benchmarks.peers.protocol import Encode, Float32, unit_rows
from benchmarks.peers.static import distilled

Search = Callable[[str, int], Sequence[int]]
"""Text of a query and a limit → rows of documents, best first."""


@dataclass(frozen=True, eq=False)
class Engine:
    """A system with an index over all documents of a collection.

    Attributes:
        name: in the table.
        search: answers one query, from its text.
        processes: ids of servers whose processor time counts as well.
        ours: one of this project's systems.
    """

    name: str
    search: Search
    processes: Sequence[int] = ()
    ours: bool = False

    def cpu_seconds(self) -> float:
        """Return the processor time used so far by all threads of this process and of the servers."""
        return time.process_time() + sum(map(process_seconds, self.processes))


def process_seconds(process: int) -> float:
    """Return the processor time of all threads of a running process, in seconds.

    Linux numbers the processor clock of a process by its id, as clock_getcpuclockid(3) does.
    """
    return time.clock_gettime((~process << 3) | 2)


Fields = Sequence[Mapping[str, str]]
"""The text fields of each document, in row order."""

_WORD = re.compile(r"\w+")


def _words(text: str) -> list[str]:
    """Return the distinct words of a query, without the signs that mean something to a parser of queries."""
    return list(dict.fromkeys(_WORD.findall(text.lower())))


def bm25s_engine(texts: Sequence[str], name: str = "bm25s") -> Engine:
    """Index whole texts with bm25s: its compiled backend, English stop words, PyStemmer."""
    bm25s = import_module("bm25s")
    stemmer = import_module("Stemmer").Stemmer("english")
    tokenizer = bm25s.tokenization.Tokenizer(stopwords="en", stemmer=stemmer)
    tokens = tokenizer.tokenize(list(texts), return_as="tuple", show_progress=False)
    index = bm25s.BM25(backend="numba")
    index.index(tokens, show_progress=False)

    def search(text: str, limit: int) -> list[int]:
        asked = tokenizer.tokenize([text], update_vocab=False, show_progress=False)
        if not asked[0]:  # bm25s accepts no empty query
            return []
        rows, scores = index.retrieve(
            asked, k=min(limit, len(texts)), n_threads=1, show_progress=False, return_as="tuple"
        )
        return [int(row) for row in rows[0][scores[0] > 0]]

    return Engine(name, search)


def tantivy_engine(documents: Fields) -> Engine:
    """Index the fields with tantivy, in memory: BM25, English stems."""
    tantivy = import_module("tantivy")
    names = list(documents[0])
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("row", stored=True)
    for name in names:
        builder.add_text_field(name, tokenizer_name="en_stem")
    index = tantivy.Index(builder.build())
    writer = index.writer(num_threads=1)
    for row, document in enumerate(documents):
        writer.add_document(tantivy.Document(row=[row], **{n: [document[n]] for n in names}))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def search(text: str, limit: int) -> list[int]:
        query, _ = index.parse_query_lenient(" ".join(_words(text)), names)
        hits = searcher.search(query, limit, count=False).hits
        return [searcher.doc(address)["row"][0] for _, address in hits]

    return Engine("tantivy", search)


def sqlite_engine(documents: Fields) -> Engine:
    """Index the fields with SQLite FTS5, in memory: BM25 by its `rank` column, Porter's stems."""
    names = list(documents[0])
    columns = ", ".join(f'"{name}"' for name in names)
    database = sqlite3.connect(":memory:")
    database.execute(f"CREATE VIRTUAL TABLE d USING fts5({columns}, tokenize='porter unicode61')")
    marks = ", ".join("?" * len(names))
    database.executemany(
        f"INSERT INTO d(rowid, {columns}) VALUES (?, {marks})",
        ((row, *(document[n] for n in names)) for row, document in enumerate(documents)),
    )
    database.execute("INSERT INTO d(d) VALUES ('optimize')")
    database.commit()
    statement = "SELECT rowid FROM d WHERE d MATCH ? ORDER BY rank LIMIT ?"

    def search(text: str, limit: int) -> list[int]:
        words = _words(text)
        if not words:
            return []
        match = " OR ".join(f'"{word}"' for word in words)
        return [row for (row,) in database.execute(statement, (match, limit))]

    weakref.finalize(search, database.close)
    return Engine("SQLite FTS5", search)


_DEBIAN = Path("/usr/lib/postgresql")
_SERVER_OPTIONS = (
    "-c listen_addresses='' -c shared_buffers=256MB -c jit=off -c max_parallel_workers_per_gather=0"
)
_LENGTH = 1  # divide the rank by 1 + the logarithm of the document's length
_WEIGHTS = "ABCD"
_STATEMENT = """
SELECT id FROM d, (SELECT {query} AS query) AS asked
WHERE words @@ query ORDER BY ts_rank(words, query, {length}) DESC, id LIMIT %s
"""
_ANY_WORD = "replace(plainto_tsquery('english', %s)::text, '&', '|')::tsquery"
_ALL_WORDS = "websearch_to_tsquery('english', %s)"


@contextmanager
def postgres_engines(documents: Fields) -> Iterator[list[Engine]]:
    """Index the fields, title first, and answer as long as the context lasts.

    Raises FileNotFoundError if PostgreSQL is not installed.
    """
    with _server() as folder:
        psycopg = import_module("psycopg")
        with psycopg.connect(host=str(folder), dbname="postgres", user="postgres") as connection:
            connection.autocommit = True
            _fill(connection, documents)
            process = connection.info.backend_pid

            def engine(name: str, query: str) -> Engine:
                statement = _STATEMENT.format(query=query, length=_LENGTH)

                def search(text: str, limit: int) -> list[int]:
                    with connection.cursor() as cursor:
                        found = cursor.execute(statement, (text, limit), prepare=True)
                        return [row for (row,) in found.fetchall()]

                return Engine(name, search, processes=(process,))

            yield [
                engine("PostgreSQL, any word", _ANY_WORD),
                engine("PostgreSQL, all words", _ALL_WORDS),
            ]


def _fill(connection: Any, documents: Fields) -> None:
    """Write the weighted words of the documents and their GIN index."""
    names = list(documents[0])
    words = " || ".join(
        f"setweight(to_tsvector('english', %s), '{_WEIGHTS[min(place, 3)]}')"
        for place in range(len(names))
    )
    connection.execute("CREATE TABLE d (id integer PRIMARY KEY, words tsvector)")
    with connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO d VALUES (%s, {words})",
            [(row, *(document[n] for n in names)) for row, document in enumerate(documents)],
        )
    connection.execute("CREATE INDEX ON d USING gin (words)")
    connection.execute("VACUUM ANALYZE d")


def binary_folder() -> Path:
    """Return the folder of PostgreSQL's programs. Raises FileNotFoundError if there is none."""
    found = shutil.which("pg_ctl")
    if found:
        return Path(found).parent
    versions = sorted(_DEBIAN.glob("*/bin/pg_ctl"))
    if not versions:
        raise FileNotFoundError("no pg_ctl: apt-get install postgresql")
    return versions[-1].parent


@contextmanager
def _server() -> Iterator[Path]:
    """Run a server; yield the folder of its socket."""
    programs = binary_folder()
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="fullrank-postgres-") as scratch:
        folder = Path(scratch)
        if user:
            shutil.chown(folder, user)
        data = folder / "data"

        def run(*command: str | Path) -> None:
            # The server would keep a captured pipe open.
            subprocess.run(command, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL)

        run(programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
            "--locale=C.UTF-8", "--no-sync")  # fmt: skip
        options = f"{_SERVER_OPTIONS} -c unix_socket_directories='{folder}'"
        run(programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield folder
        finally:
            run(programs / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")


GROONGA_SCORERS = ("{}", "scorer_tf_idf({})", "scorer_tf_at_most({}, 1)")
"""Of groonga: occurrences, tf-idf, and one for a word that occurs."""


@dataclass(frozen=True, slots=True)
class Groonga:
    """How groonga searches.

    Attributes:
        indexed: fields that it matches, title first.
        stored: fields of an answer.
        scorer: of a field.
        title: weight of the title.
        all_words: every word must occur.
    """

    indexed: Sequence[str]
    stored: Sequence[str]
    scorer: str = GROONGA_SCORERS[-1]
    title: int = 1
    all_words: bool = False

    def __str__(self) -> str:
        words = "all words" if self.all_words else "any word"
        return f"{self.scorer.format('field')}, title * {self.title}, {words}"

    def path(self, text: str, limit: int) -> str:
        """Return the path of a search. A query of stop words alone keeps them."""
        found, stop = _words(text), import_module("bm25s.stopwords").STOPWORDS_EN
        found = [word for word in found if word not in stop] or found
        weights = (self.title, *[1] * (len(self.indexed) - 1))
        columns = zip(map(self.scorer.format, self.indexed), weights, strict=True)
        asked = {
            "table": "Documents",
            "match_columns": " || ".join(f"{column} * {weight}" for column, weight in columns),
            "query": (" " if self.all_words else " OR ").join(found),
            "match_escalation_threshold": "-1",
            "sort_keys": "-_score",
            "limit": str(limit),
            "output_columns": ",".join(("_key", "_score", *self.stored)),
        }
        return f"/d/select?{urlencode(asked)}"


def write_groonga(
    folder: Path, documents: Sequence[Mapping[str, str]], indexed: Sequence[str]
) -> None:
    """Write a groonga database ``folder/db`` of documents with ``_key`` and equal fields."""
    names = [name for name in documents[0] if name != "_key"]
    commands = [
        "plugin_register token_filters/stem",
        "table_create Documents TABLE_HASH_KEY ShortText",
        *(f"column_create Documents {name} COLUMN_SCALAR Text" for name in names),
        "table_create Words TABLE_PAT_KEY ShortText --default_tokenizer TokenBigram"
        " --normalizer NormalizerAuto --token_filters TokenFilterStem",
        "load --table Documents",
        json.dumps(documents),
        *(
            f"column_create Words of_{name} COLUMN_INDEX|WITH_POSITION Documents {name}"
            for name in indexed
        ),
    ]
    folder.mkdir()
    done = subprocess.run(
        ["groonga", "-n", folder / "db"], input="\n".join(commands), capture_output=True, text=True
    )
    results = done.stdout.splitlines()
    if done.returncode or any(not line.startswith("[[0,") for line in results if line):
        sys.exit(f"groonga: {done.stderr or done.stdout}")


@contextmanager
def groonga_engines(documents: Fields) -> Iterator[list[Engine]]:
    """Index the fields with groonga, title first, and answer as long as the context lasts, over a pipe.

    Raises FileNotFoundError if groonga is not installed.
    """
    names = list(documents[0])
    with tempfile.TemporaryDirectory(prefix="fullrank-groonga-") as scratch:
        folder = Path(scratch) / "data"
        write_groonga(folder, [{"_key": str(i), **d} for i, d in enumerate(documents)], names)
        command = ["groonga", "--log-path", f"{folder}/log", f"{folder}/db"]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("groonga has no pipes")
        asking, answers = process.stdin, process.stdout

        def engine(name: str, groonga: Groonga) -> Engine:
            def search(text: str, limit: int) -> list[int]:
                asking.write(groonga.path(text, limit) + "\n")
                reply = json.loads(answers.readline())
                return [int(hit[0]) for hit in reply[1][0][2:]]

            return Engine(name, search, processes=(process.pid,))

        try:
            yield [
                engine("groonga, any word", Groonga(names, ())),
                engine("groonga, all words", Groonga(names, (), all_words=True)),
            ]
        finally:
            process.communicate()


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


def faiss_engines(encoder_name: str, encode: Encode, vectors: Float32) -> list[Engine]:
    """Return FAISS over the vectors of all documents, and over a graph of them; ``encode`` encodes queries."""
    dimension = vectors.shape[1]
    flat = faiss.IndexFlatIP(dimension)
    flat.add(vectors)
    graph = faiss.IndexHNSWFlat(dimension, HNSW["M"], faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = HNSW["efConstruction"]
    graph.add(vectors)
    graph.hnsw.efSearch = HNSW["efSearch"]
    return [
        _faiss(f"FAISS flat, {encoder_name}", encode, flat),
        _faiss(f"FAISS HNSW, {encoder_name}", encode, graph),
    ]


def _faiss(name: str, encode: Encode, index: Any) -> Engine:
    def search(text: str, limit: int) -> list[int]:
        rows = index.search(encode([text]), min(limit, index.ntotal))[1][0]
        return [row for row in rows.tolist() if row >= 0]  # FAISS pads with -1

    return Engine(name, search)


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

    return Engine(f"LanceDB hybrid, {encoder_name}", search)
