"""A table of PostgreSQL with pgvector, and the statement that searches it.

    <name>_<bundle id>     the table: row, id, fields jsonb, dense vector(N + 1), terms sparsevec(F)
    <name>                 a view of the newest version

An export is one transaction, so an unfinished one leaves nothing, and readers see the old version until the commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fullrank.bundle.bundle import Bundle
from fullrank.engines.source import Entry, Source, as_json, outdated
from fullrank.errors import ExportError
from fullrank.progress import Reporter
from fullrank.storage.encoding import Float32, Int32

if TYPE_CHECKING:
    from psycopg import Connection

# Limits of pgvector's types `vector` and `sparsevec`.
MAX_DIMENSIONS, MAX_ENTRIES = 16_000, 16_000
# A tuple of up to this many bytes keeps its vectors in the page of the table. Reading them from the TOAST table, where
# PostgreSQL moves large values by default, makes a search 2.5 times as slow.
_INLINE_BYTES = 8160
_MARK = "fullrank: "


class Statement(NamedTuple):
    """A statement for a cursor's `execute`; its rows are (id, score, fields)."""

    sql: str
    parameters: dict[str, Any]


class Queries:
    """Turns query texts into statements over the exported version of a bundle.

    Example:
        >>> queries = Queries(open_bundle(path))
        >>> for id, score, fields in connection.execute(*queries.statement("red apple", limit=5)):
        ...     print(id, score)
    """

    def __init__(self, bundle: Bundle, name: str | None = None) -> None:
        self._source = Source.of(bundle, name)

    @property
    def table(self) -> str:
        """The table of exactly this bundle, which exists once the export is complete."""
        return self._source.versioned

    def statement(
        self,
        text: str,
        limit: int = 10,
        *,
        offset: int = 0,
        filter: Mapping[str, Any] | None = None,
    ) -> Statement:
        """Return a SELECT of (id, score, fields), best first, ties by id.

        It reads every row that the filter leaves: exact, and linear in their number.

        Args:
            filter: What the stored fields must contain, as jsonb's @> compares it; an index supports it.
        """
        query = self._source.encode(text)
        where = "" if filter is None else "WHERE fields @> %(filter)s::jsonb "
        sql = (
            "SELECT id, -((dense <#> %(dense)s::vector) + (terms <#> %(terms)s::sparsevec)) AS score, "
            f'fields FROM "{self.table}" {where}'
            "ORDER BY score DESC, row LIMIT %(limit)s OFFSET %(offset)s"
        )
        parameters = {
            "dense": as_json(query.dense),
            "terms": sparsevec(query.features, query.weights, self._source.n_terms),
            "limit": limit,
            "offset": offset,
        }
        return Statement(sql, parameters | ({} if filter is None else {"filter": as_json(filter)}))


def export_table(source: Source, connection: Connection[Any], report: Reporter) -> bool:
    """Write a table of all documents and point the view at it, inside the connection's transaction.

    Args:
        connection: Not in autocommit mode; the caller commits.

    Returns:
        Whether it was written; False: the database had this version.

    Raises:
        ExportError: The documents exceed a limit of pgvector, or the name belongs to something else.
    """
    _check_limits(source)
    run = connection.execute
    # Two exports of one name would each replace the view; the lock ends with the transaction.
    run("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (_MARK + source.name,))
    previous = _viewed(source.name, connection)
    is_new = _exists(source.versioned, connection) is None
    if is_new:
        _write(source, connection, report)
    run(f'DROP VIEW IF EXISTS "{source.name}"')
    run(f'CREATE VIEW "{source.name}" AS SELECT * FROM "{source.versioned}"')
    run(f"COMMENT ON VIEW \"{source.name}\" IS '{_MARK}{source.versioned}'")
    tables = run(
        "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND "
        "obj_description(format('%%I.%%I', schemaname, tablename)::regclass, 'pg_class') LIKE %s",
        (f"{_MARK}%",),
    )
    for table in outdated(source, previous, [name for (name,) in tables]):
        run(f'DROP TABLE "{table}"')
    return is_new


def sparsevec(features: Int32, weights: Float32, width: int) -> str:
    """Format a sparse vector as pgvector reads it: "{1:0.5,3:2}/width", counted from one."""
    values = as_json(weights)[1:-1].split(",") if len(weights) else []
    entries = ",".join(f"{f}:{w}" for f, w in zip((features + 1).tolist(), values, strict=True))
    return f"{{{entries}}}/{max(width, 1)}"


def _check_limits(source: Source) -> None:
    indptr = source.bundle.encoded.indptr
    most = int((indptr[1:] - indptr[:-1]).max(initial=0))
    if source.n_dense > MAX_DIMENSIONS:
        raise ExportError(
            f"{source.bundle.version}: its {source.n_dense - 1} dense dimensions exceed those of "
            f"pgvector ({MAX_DIMENSIONS - 1})"
        )
    if most > MAX_ENTRIES:
        raise ExportError(
            f"{source.bundle.version}: a document with {most} sparse features exceeds the "
            f"{MAX_ENTRIES} of a pgvector sparsevec"
        )


def _exists(name: str, connection: Connection[Any]) -> tuple[str, str | None] | None:
    found = connection.execute(
        "SELECT relkind::text, obj_description(oid, 'pg_class') FROM pg_class WHERE oid = to_regclass(%s)",
        (f'"{name}"',),
    ).fetchone()
    return None if found is None else (found[0], found[1])


def _viewed(name: str, connection: Connection[Any]) -> str | None:
    """Return the table that the view shows; None without a view."""
    found = _exists(name, connection)
    if found is None:
        return None
    kind, comment = found
    if kind != "v" or comment is None or not comment.startswith(_MARK):
        raise ExportError(
            f"{name}: the database has a relation of this name that is no export; choose another with --name"
        )
    return comment.removeprefix(_MARK)


def _write(source: Source, connection: Connection[Any], report: Reporter) -> None:
    run, table = connection.execute, source.versioned
    run("CREATE EXTENSION IF NOT EXISTS vector")
    run(
        f'CREATE TABLE "{table}" (row integer PRIMARY KEY, id text NOT NULL UNIQUE, '
        f"fields jsonb NOT NULL, dense vector({source.n_dense}) NOT NULL, "
        f"terms sparsevec({max(source.n_terms, 1)}) NOT NULL) "
        f"WITH (toast_tuple_target = {_INLINE_BYTES})"
    )
    for column in ("dense", "terms"):
        run(f'ALTER TABLE "{table}" ALTER {column} SET STORAGE EXTERNAL')
    with connection.cursor().copy(f'COPY "{table}" FROM STDIN') as copy:
        for entries in source.batches(report):
            for entry in entries:
                copy.write_row(_line(source, entry))
    run(f'CREATE INDEX ON "{table}" USING gin (fields jsonb_path_ops)')
    run(f'ANALYZE "{table}"')
    run(f"COMMENT ON TABLE \"{table}\" IS '{_MARK}{source.bundle.version}'")


def _line(source: Source, entry: Entry) -> tuple[object, ...]:
    terms = sparsevec(entry.features, entry.weights, source.n_terms)
    return entry.row, entry.id, entry.fields, as_json(entry.dense), terms
