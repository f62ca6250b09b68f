"""Read click logs of other programs: UBI, Algolia's events, plain tables.

ubi      JSON lines of User Behavior Insights, events and queries mixed or not; also the documents of an index,
         {"_source": {…}}
algolia  events as they are sent to Algolia, JSON lines or one JSON file; they name lists by queryID, so the lists
         must be in the log
table    CSV or TSV with a header, one row a click, or a document that was shown: see ``read_table``
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any

from fullrank.errors import FullrankError
from fullrank.events.records import (
    Event,
    EventRefused,
    ServedList,
    parse_event,
    parse_insight,
    parse_reported,
)
from fullrank.storage.strict_json import JsonError, parse_items
from fullrank_trainer.clicks.tables import read_table
from fullrank_trainer.collection.lines import open_bytes

Record = ServedList | Event
FORMATS = ("ubi", "algolia", "table")

_MAX_AGE_S = float("inf")  # a log may be as old as it likes


def format_of(path: Path) -> str:
    """Return the format of a file by its name and first characters.

    Raises:
        FullrankError: the file cannot be read or is of another format.
    """
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".csv", ".tsv")):
        return "table"
    try:
        with open_bytes(path) as file:
            head = file.read(1 << 16).decode("utf-8", "replace")
    except OSError as error:
        raise FullrankError(f"{path}: {error.strerror or error}") from error
    if '"eventType"' in head:
        return "algolia"
    if '"action_name"' in head or '"user_query"' in head:
        return "ubi"
    raise FullrankError(
        f"{path}: neither UBI nor Algolia's events nor a table (.csv, .tsv); name the format with --format"
    )


def read_records(
    path: Path, form: str, now: float, refused: Counter[str], first_position: int = 1
) -> Iterator[Record]:
    """Read the lists and events of a file.

    Args:
        path: plain or .gz.
        form: one of FORMATS.
        now: in seconds since 1970; records without a time get it, and those from later are refused.
        refused: counts what cannot be read, by reason.
        first_position: of tables, the position of the first document: 0 or 1.

    Raises:
        FullrankError: the file cannot be read, or its header lacks a column.
    """
    if form == "table":
        yield from read_table(path, now, refused, first_position)
        return
    for given in _objects(path, refused):
        if not isinstance(given, dict):
            refused[str(given) if isinstance(given, JsonError) else "no object"] += 1
            continue
        try:
            if form == "ubi":
                yield _ubi(given, now)
            else:
                yield from parse_insight(given, now, _MAX_AGE_S)[0]
        except EventRefused as error:
            refused[str(error)] += 1


def _objects(path: Path, refused: Counter[str]) -> Iterator[Any]:
    """Read JSON lines, or a whole file that is an array or an object with "events"; JsonErrors among them."""
    with open_bytes(path) as file, TextIOWrapper(file, "utf-8-sig", "replace") as text:
        first = text.read(1)
        while first.isspace():
            first = text.read(1)
        if first == "[":
            yield from _parse(first + text.read(), refused) or ()
            return
        lines: Iterable[str] = chain([first + text.readline()], text)
        if first == "{":
            lines = _unfolded(lines)
        for line in lines:
            value = _parse(line, refused) if line.strip() else None
            if isinstance(value, dict):
                events = value.get("events")
                yield from events if isinstance(events, list) else [value.get("_source", value)]
            elif value is not None:
                yield value


def _unfolded(lines: Iterable[str]) -> Iterable[str]:
    """Return a file that is one object over several lines as one line; any other as it is."""
    given = iter(lines)
    first = next(given)
    if _is_json(first):
        return chain([first], given)
    rest = list(given)
    whole = first + "".join(rest)
    return [whole] if _is_json(whole) else [first, *rest]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _parse(text: str, refused: Counter[str]) -> Any:
    try:
        return parse_items(text, "events")
    except JsonError as error:
        refused["no JSON" if error.reason.startswith("is not JSON") else str(error)] += 1
        return None


def _ubi(given: Mapping[str, Any], now: float) -> Record:
    """Read an event, or a query: a list that only the client knows of."""
    if "action_name" in given:
        return parse_event(given, now, _MAX_AGE_S)
    return parse_reported(given, now, _MAX_AGE_S)[0]
