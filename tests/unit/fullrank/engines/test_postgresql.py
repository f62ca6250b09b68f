"""Tables with pgvector, on a real server of PostgreSQL that this process starts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from fullrank import Bundle
from fullrank.engines import postgresql
from fullrank.engines.postgresql import Queries, export_table, sparsevec
from fullrank.engines.source import Source
from fullrank.engines.target import export
from fullrank.errors import ExportError
from fullrank.progress import Reporter
from tests.databases import database_server
from tests.unit.fullrank.engines.killed import export_killed
from tests.unit.fullrank.engines.truth import QUERIES, assert_is_top

pytestmark = pytest.mark.server

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server with pgvector."""
    with database_server() as address:
        yield address


@pytest.fixture
def address(server: str) -> str:
    """The address of an empty database."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS shop WITH (FORCE)")
        connection.execute("CREATE DATABASE shop")
    return server.replace("/postgres?", "/shop?")


@pytest.fixture
def connection(address: str) -> Iterator[Connection]:
    with psycopg.connect(address) as opened:
        yield opened


def relations(connection: Connection) -> dict[str, str]:
    """Return the kinds of our tables and views by name."""
    rows = connection.execute(
        "SELECT relname, relkind::text FROM pg_class WHERE relkind IN ('r', 'v') "
        "AND relnamespace = 'public'::regnamespace"
    )
    return dict(rows.fetchall())


def test_statements_find_the_best_documents(
    bundle: Bundle, connection: Connection, report: Reporter
) -> None:
    assert export_table(Source.of(bundle), connection, report)
    queries = Queries(bundle)
    for text in QUERIES:
        rows = connection.execute(*queries.statement(text)).fetchall()
        assert_is_top(bundle, text, [(id, score) for id, score, _ in rows])
        for id, _, fields in rows:
            assert fields == bundle.documents.fields(bundle.documents.row(id))
    page = connection.execute(*queries.statement(QUERIES[0], 7, offset=20)).fetchall()
    assert_is_top(bundle, QUERIES[0], [(id, score) for id, score, _ in page], 7, 20)


def test_a_model_without_a_dense_part_is_exported(
    words_only: Bundle, connection: Connection, report: Reporter
) -> None:
    export_table(Source.of(words_only), connection, report)
    for text in QUERIES:
        rows = connection.execute(*Queries(words_only).statement(text)).fetchall()
        assert_is_top(words_only, text, [(id, score) for id, score, _ in rows])


def test_a_filter_reads_the_stored_fields(
    bundle: Bundle, connection: Connection, report: Reporter
) -> None:
    export_table(Source.of(bundle), connection, report)
    statement = Queries(bundle).statement("olddoor", 60, filter={"section": 2, "tags": ["new"]})
    rows = [bundle.documents.row(id) for id, _, _ in connection.execute(*statement)]
    expected = [row for row in range(2, 60, 3) if "new" in bundle.documents.fields(row)["tags"]]
    assert sorted(rows) == expected


def test_the_view_moves_and_older_versions_are_dropped(
    bundle: Bundle, later: list[Bundle], connection: Connection, report: Reporter
) -> None:
    names = []
    for version in (bundle, *later):
        assert export_table(Source.of(version), connection, report)
        names.append(Queries(version).table)
        [seen] = connection.execute("SELECT id FROM my_shop ORDER BY row LIMIT 1").fetchall()
        assert seen == (version.documents.ids[0],)
    assert relations(connection) == dict.fromkeys(names[-2:], "r") | {"my_shop": "v"}
    assert not export_table(Source.of(later[-2]), connection, report)
    assert relations(connection) == dict.fromkeys(names[-2:], "r") | {"my_shop": "v"}
    [definition] = connection.execute("SELECT pg_get_viewdef('my_shop')").fetchall()
    assert names[-2] in definition[0]


def test_readers_see_the_old_version_until_the_commit(
    bundle: Bundle, later: list[Bundle], address: str, report: Reporter
) -> None:
    with psycopg.connect(address) as writer:
        export_table(Source.of(bundle), writer, report)
    with psycopg.connect(address) as writer, psycopg.connect(address, autocommit=True) as reader:
        postgresql._write(Source.of(later[0]), writer, report)
        assert relations(reader).keys() == {"my_shop", Queries(bundle).table}
        writer.rollback()
    with psycopg.connect(address) as reader:
        assert relations(reader).keys() == {"my_shop", Queries(bundle).table}


def test_a_killed_export_leaves_nothing(bundle: Bundle, address: str, report: Reporter) -> None:
    export_killed(bundle, address)
    with psycopg.connect(address) as reader:
        assert relations(reader) == {}
    assert export(bundle, address, None, report).is_new


def test_two_exports_of_one_name_wait_for_each_other(
    bundle: Bundle, later: list[Bundle], address: str
) -> None:
    failed: list[BaseException] = []

    def run(version: Bundle) -> None:
        try:
            with Reporter(quiet=True) as report:
                export(version, address, None, report)
        except BaseException as error:
            failed.append(error)

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    threads = [threading.Thread(target=run, args=[version]) for version in (bundle, later[0])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with psycopg.connect(address) as reader:
        tables = [Queries(version).table for version in (bundle, later[0])]
        assert relations(reader) == dict.fromkeys(tables, "r") | {"my_shop": "v"}


def test_the_table_of_the_address_is_the_name(
    bundle: Bundle, address: str, report: Reporter
) -> None:
    done = export(bundle, f"{address}&table=Search", None, report)
    assert done.name == Queries(bundle, "Search").table == f"search_{bundle.bundle_id[:12]}"
    with psycopg.connect(address) as reader:
        assert relations(reader) == {"search": "v", done.name: "r"}


def test_a_table_of_this_name_is_not_replaced(
    bundle: Bundle, address: str, report: Reporter
) -> None:
    with psycopg.connect(address) as connection:
        connection.execute("CREATE TABLE my_shop (price integer)")
    with pytest.raises(ExportError, match="my_shop: the database has a relation"):
        export(bundle, address, None, report)
    with psycopg.connect(address) as reader:
        assert relations(reader) == {"my_shop": "r"}


def test_an_unreachable_server_is_one_error(bundle: Bundle, report: Reporter) -> None:
    with pytest.raises(ExportError, match=r"^127.0.0.1: connection failed"):
        export(bundle, "postgresql://127.0.0.1:1/shop", None, report)


def test_the_limits_of_pgvector_are_checked(
    bundle: Bundle, connection: Connection, report: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source.of(bundle)
    monkeypatch.setattr(postgresql, "MAX_DIMENSIONS", 5)
    with pytest.raises(ExportError, match="5 dense dimensions exceed those of pgvector"):
        export_table(source, connection, report)
    monkeypatch.setattr(postgresql, "MAX_DIMENSIONS", 6)
    monkeypatch.setattr(postgresql, "MAX_ENTRIES", 3)
    with pytest.raises(ExportError, match="sparse features exceeds the 3"):
        export_table(source, connection, report)


def test_sparse_vectors_count_from_one(bundle: Bundle) -> None:
    query = Source.of(bundle).encode("unknown")
    assert sparsevec(query.features, query.weights, 24) == "{}/24"
    some = Source.of(bundle).encode("redapple")
    assert sparsevec(some.features, some.weights, 24).startswith(f"{{{some.features[0] + 1}:")
