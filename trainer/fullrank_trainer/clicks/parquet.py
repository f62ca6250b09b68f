"""Write the log as Parquet, for the tools of analysts. Columns have the names of User Behavior Insights 1.3.

    ubi_queries.parquet   a row a served list
    ubi_events.parquet    a row an event

What UBI does not name stands in `query_attributes` and `event_attributes`, as in the log; a `filter` is JSON text.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from pyarrow import parquet

from fullrank.errors import FullrankError
from fullrank.events.records import Event, ServedList
from fullrank.storage.files import sync_folder, temporary_name

QUERIES, EVENTS = "ubi_queries.parquet", "ubi_events.parquet"
_ROWS_AT_ONCE = 10_000

_text, _number, _flag = pa.string(), pa.int64(), pa.bool_()
_time = pa.timestamp("ms", tz="UTC")
_asker = {
    "client_id": _text,
    "session_id": _text,
    "user_id": _text,
    "application": _text,
}
_query_attributes = {
    "kind": _text,
    "offset": _number,
    "model": _text,
    "generation": _number,
    "candidate": _text,
    "teams": _text,
    "pair": _number,
    "swapped": _flag,
    "inserted": _number,
    "pinned": pa.list_(_number),
    "filter": _text,
    "page_url": _text,
    "is_bot": _flag,
}
_event_attributes = {
    "object": pa.struct({"object_id": _text}),
    "dwell_ms": pa.float64(),
    "is_bot": _flag,
}
SCHEMAS = {
    QUERIES: pa.schema(
        {
            "query_id": _text,
            "timestamp": _time,
            "user_query": _text,
            "query_response_hit_ids": pa.list_(_text),
            **_asker,
            "query_attributes": pa.struct(_query_attributes),
        }
    ),
    EVENTS: pa.schema(
        {
            "action_name": _text,
            "timestamp": _time,
            "query_id": _text,
            **_asker,
            "event_id": _text,
            "event_attributes": pa.struct(_event_attributes),
        }
    ),
}


def write_parquet(
    lists: Iterable[ServedList], events: Iterable[Event], folder: Path
) -> dict[str, int]:
    """Write lists and events. The folder appears when it is complete; a few thousand rows are in memory at a time.

    Args:
        lists, events: of the log, in any order.
        folder: to write; it must not exist.

    Returns:
        The number of lists and events.

    Raises:
        FullrankError: the folder exists.
        OSError: a file cannot be written.

    Example:
        >>> write_parquet(log.lists(), log.events(), Path("clicks"))
        {'lists': 60000, 'events': 21544}
    """
    if folder.exists():
        raise FullrankError(f"{folder}: exists already; choose another folder or delete it")
    temporary = temporary_name(folder)
    try:
        temporary.mkdir(parents=True)
        counts = {
            "lists": _write(temporary / QUERIES, lists),
            "events": _write(temporary / EVENTS, events),
        }
        temporary.rename(folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return counts


def _write(path: Path, records: Iterable[ServedList | Event]) -> int:
    """Write one file, a group of rows after the other; return the number of rows."""
    schema, rows, count = SCHEMAS[path.name], _rows(records), 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while batch := list(islice(rows, _ROWS_AT_ONCE)):
            writer.write_batch(pa.RecordBatch.from_pylist(batch, schema=schema))
            count += len(batch)
    return count


def _rows(records: Iterable[ServedList | Event]) -> Iterator[dict[str, Any]]:
    for record in records:
        row = orjson.loads(record.line())
        attributes = row.get("query_attributes", {})
        if "filter" in attributes:
            attributes["filter"] = orjson.dumps(attributes["filter"]).decode()
        yield row
