"""What is particular to the log in PostgreSQL: its locks, its partitions, and a server that goes away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from fullrank.errors import FullrankError
from fullrank.partitions import PARTITIONS, partition_of
from fullrank_service.documents.log import LogError, Submission, Write
from fullrank_service.documents.postgreslog import PostgresLog
from fullrank_service.documents.sqlitelog import LogPlace
from tests.databases import NewDatabase, database_server
from tests.unit.service.documents.test_log import CAPS, everything, kept, put

pytestmark = pytest.mark.server


@pytest.fixture
def address(new_database: NewDatabase) -> str:
    return new_database()


def run(address: str, sql: str) -> list[tuple[object, ...]]:
    with psycopg.connect(address, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def test_readers_of_partitions_share_out_the_operations(address: str) -> None:
    ids = [f"d{number}" for number in range(200)]
    with closing(PostgresLog(address)) as log:
        log.commit([put(*ids[:150])], CAPS)
        log.commit([put(*ids[150:]), Submission("docs", [Write(ids[0], None)], bytes)], CAPS)
    found = []
    for run_of in (range(1000), range(1000, 1001), range(1001, PARTITIONS)):
        with closing(PostgresLog(address, run_of)) as log:
            own = everything(log)
            assert [seq for seq, _ in own] == sorted(seq for seq, _ in own)
            assert all(partition_of(id) in run_of for _, id in own)
            # There is nothing else up to the head, whatever other partitions have.
            assert log.after("docs", 0, 1_000)[1] == log.head() == 201
            found += own
    assert sorted(found) == sorted([*zip(range(2, 201), ids[1:], strict=True), (201, "d0")])


def test_commits_are_synced_where_the_database_does_not_ask_for_it(address: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(address)["dbname"]
    run(address, f"ALTER DATABASE {name} SET synchronous_commit = off")
    assert run(address, "SHOW synchronous_commit") == [("off",)]
    with closing(PostgresLog(address)) as log, log.snapshot():
        assert log._execute("SHOW synchronous_commit").fetchone() == ("on",)


def test_a_server_that_does_not_sync_is_refused() -> None:
    with database_server() as address:
        run(address, "ALTER SYSTEM SET fsync = off")
        run(address, "SELECT pg_reload_conf()")
        with pytest.raises(LogError, match="fsync = off"):
            PostgresLog(address)


@contextmanager
def held(address: str) -> Iterator[psycopg.Connection]:
    """Hold the lock of a writer."""
    with psycopg.connect(address, application_name="holder") as holder:
        holder.execute("SELECT head FROM fullrank.log FOR UPDATE")
        yield holder


def test_a_writer_waits_for_another_and_gives_up_after_a_while(address: str) -> None:
    with closing(PostgresLog(address)) as log:
        log.commit([put("a")], CAPS)
        with held(address):
            log._execute("SET lock_timeout = '100ms'")
            with pytest.raises(LogError, match="lock timeout"):
                log.commit([put("b")], CAPS)
            assert everything(log) == [(1, "a")]
        [outcome] = log.commit([put("b")], CAPS)
        assert kept(outcome).seq == 2


def test_a_writer_that_dies_with_the_lock_leaves_no_number(address: str) -> None:
    with closing(PostgresLog(address)) as log, closing(PostgresLog(address)) as other:
        log.commit([put("a")], CAPS)

        def dies(first: int) -> bytes:
            [(pid,)] = log._execute("SELECT pg_backend_pid()")
            run(address, f"SELECT pg_terminate_backend({pid})")
            return b""

        with pytest.raises(LogError):
            log.commit([Submission("docs", [Write("b", b"{}")], dies), put("c")], CAPS)
        [outcome] = other.commit([put("d")], CAPS)
        assert kept(outcome).seq == 2
        assert everything(other) == [(1, "a"), (2, "d")]


def test_a_log_that_was_removed_or_replaced_is_refused(address: str) -> None:
    place = LogPlace.of_database(address)
    with closing(place.open()) as log:
        log.commit([put("a")], CAPS)
        run(address, "DROP SCHEMA fullrank CASCADE")
        with pytest.raises(LogError):
            log.commit([put("b")], CAPS)
        for use in (place.open, place.existing):
            with pytest.raises(LogError, match="was removed; restart"):
                use()
        PostgresLog(address).close()
        for use in (place.open, place.existing):
            with pytest.raises(LogError, match="another log has replaced it; restart"):
                use()
        with pytest.raises(LogError, match="another log has replaced it; restart"):
            log.commit([put("b")], CAPS)
        with pytest.raises(LogError, match="another log has replaced it; restart"):
            log.head()


def test_a_log_of_another_release_is_refused(address: str) -> None:
    PostgresLog(address).close()
    run(address, "UPDATE fullrank.log SET schema = 99")
    with pytest.raises(LogError, match="has schema 99; this release reads schema 1"):
        PostgresLog(address)


def test_a_server_that_is_gone_is_an_error_without_the_password() -> None:
    address = "postgresql://user:secret@127.0.0.1:1/docs"
    place = LogPlace.of_database(address)
    for use in (place.open, place.existing):
        with pytest.raises(LogError, match=r"^PostgreSQL 127\.0\.0\.1/docs: ") as caught:
            use()
        assert "secret" not in str(caught.value)
    with pytest.raises(FullrankError, match="is not one of PostgreSQL") as refused:
        LogPlace.of_database("postgresql://user:secret@host/docs?nothing=1")
    assert "secret" not in str(refused.value)
