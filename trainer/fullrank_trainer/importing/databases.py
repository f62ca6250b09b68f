"""Read documents row by row from Parquet files and SQL databases; both need the extra ``fullrank[import]``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

from fullrank.cli.commands import needs
from fullrank.errors import FullrankError
from fullrank_trainer.importing.tables import Object, Table, open_table

EXTRA = "import"
_BATCH = 1_000  # rows in memory


def open_parquet(path: Path, mapping: Mapping[str, str | None]) -> Table:
    """Look at the first rows of a Parquet file. Raises FullrankError if it cannot be read."""
    with needs(EXTRA):
        import pyarrow
        import pyarrow.parquet

    def objects() -> Iterator[Object]:
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                number = count(1)
                for batch in file.iter_batches(_BATCH):
                    yield from ((f"{path}:{next(number)}", row) for row in batch.to_pylist())
        except (OSError, pyarrow.ArrowException) as error:
            raise FullrankError(f"{path}: cannot be read: {_line(error)}") from error

    return open_table(path, objects, mapping)


def open_sql(address: str, query: str, mapping: Mapping[str, str | None]) -> Table:
    """Look at the first rows that a query selects. Raises FullrankError if the database refuses it."""
    with needs(EXTRA):
        import sqlalchemy
        from sqlalchemy.exc import SQLAlchemyError

    try:
        url = sqlalchemy.make_url(address)
        shown = url.render_as_string(hide_password=True)
        engine = sqlalchemy.create_engine(url)
    except (SQLAlchemyError, ImportError, ValueError) as error:
        raise FullrankError(f"{address.partition(':')[0]}: {_line(error)}") from error

    def objects() -> Iterator[Object]:
        try:
            # The query goes to the database as it is: ":x" and "%" stand for no parameters.
            connected = engine.connect()
            with connected.execution_options(yield_per=_BATCH, no_parameters=True) as connection:
                result = connection.exec_driver_sql(query)
                if not result.returns_rows:
                    raise FullrankError(f"{shown}: the query selects nothing")
                for number, row in enumerate(result.mappings(), 1):
                    yield f"{shown} row {number}", dict(row)
        except SQLAlchemyError as error:
            raise FullrankError(f"{shown}: {_line(error)}") from error
        finally:
            engine.dispose()

    return open_table(shown, objects, mapping)


def _line(error: Exception) -> str:
    return str(error).split("\n", maxsplit=1)[0]
