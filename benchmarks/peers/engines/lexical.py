"""Engines that match words inside this process: bm25s, tantivy and SQLite FTS5.

All stem English words, as the documentation of each shows. A query means any of its words.
"""

from __future__ import annotations

import re
import sqlite3
import weakref
from collections.abc import Mapping, Sequence
from importlib import import_module

from benchmarks.peers.engines.engine import Engine

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

    return Engine(name, search, {"method": index.method, "k1": index.k1, "b": index.b})


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

    return Engine("tantivy", search, {"tokenizer": "en_stem"})


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
    return Engine("SQLite FTS5", search, {"tokenize": "porter unicode61"})
