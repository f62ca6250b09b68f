"""One SQLite file that workers share: created when it is needed, unchanged after an error."""

from __future__ import annotations

import operator
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from fullrank.errors import FullrankError
from fullrank_service.base.sqlite import SqliteFile

TABLES = "CREATE TABLE IF NOT EXISTS numbers (value INTEGER UNIQUE)"


class NumbersError(FullrankError):
    """The error of the file in these tests."""


def numbers(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as file:
        return [value for (value,) in file.execute("SELECT value FROM numbers ORDER BY value")]


def insert(file: SqliteFile, *values: int | None) -> None:
    """Insert numbers in one transaction. Raises TypeError for None."""
    with file.changing() as connection:
        for value in values:
            connection.execute("INSERT INTO numbers VALUES (?)", (operator.index(value),))  # type: ignore[arg-type]


def test_an_exception_of_any_kind_leaves_the_file_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "numbers.sqlite"
    file = SqliteFile(path, TABLES, NumbersError)
    assert not path.exists()
    insert(file, 1)
    with pytest.raises(TypeError):
        insert(file, 2, None)
    with pytest.raises(NumbersError, match=r"numbers\.sqlite: UNIQUE"):
        insert(file, 3, 1)
    assert numbers(path) == [1]
    with file.changing() as connection:
        connection.execute("INSERT INTO numbers VALUES (4)")
        assert connection.execute("PRAGMA synchronous").fetchone() == (1,)
    file.close()
    assert numbers(path) == [1, 4]


def test_a_connection_opens_again_once_the_file_can_be_used(tmp_path: Path) -> None:
    path = tmp_path / "later" / "numbers.sqlite"
    file = SqliteFile(path, TABLES, NumbersError)
    with pytest.raises(NumbersError, match="unable to open"):
        insert(file, 1)
    path.parent.mkdir()
    insert(file, 2)
    assert numbers(path) == [2]
    file.close()


def test_connections_that_create_the_file_at_once_wait_for_each_other(tmp_path: Path) -> None:
    """Without a wait, one round in eight fails."""

    def write(path: Path, start: threading.Barrier, value: int) -> None:
        file = SqliteFile(path, TABLES, NumbersError)
        start.wait()
        insert(file, value)
        file.close()

    with ThreadPoolExecutor(8) as pool:
        for turn in range(40):
            path, start = tmp_path / f"{turn}.sqlite", threading.Barrier(8)
            list(pool.map(partial(write, path, start), range(8)))
            assert sorted(numbers(path)) == [*range(8)]
