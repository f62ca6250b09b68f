"""PostgreSQL's full text search, on a server of its own in a temporary folder.

The server listens on a socket in that folder and ends with the benchmark. It does not run as root, so root starts it
as the user ``postgres``, whom the package creates.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.peers.engines.engine import Engine
from benchmarks.peers.engines.lexical import Fields

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

                return Engine(name, search, {"ts_rank": _LENGTH}, processes=(process,))

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
