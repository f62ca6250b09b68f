"""Read click logs of other programs: UBI, Algolia's events, plain tables.

ubi      JSON lines of User Behavior Insights, events and queries mixed or not; also the documents of an index,
         {"_source": {…}}
algolia  events as they are sent to Algolia, JSON lines or one JSON file; they name lists by queryID, so the lists
         must be in the log
table    CSV or TSV with a header, one row a click, or a document that was shown: see ``read_table``
"""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from io import TextIOWrapper
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from fullrank.errors import FullrankError
from fullrank.events.log import EVENTS, LISTS, Pseudonyms
from fullrank.events.records import (
    Event,
    EventRefused,
    ServedList,
    parse_event,
    parse_insight,
    parse_reported,
)
from fullrank.events.segments import (
    imported_name,
    imported_remark,
    remove_sealed,
    size_of,
    write_sealed,
)
from fullrank.storage.strict_json import JsonError, parse_items, parse_time
from fullrank_trainer.importing.tables import opened, separator_of, undecoded
from fullrank_trainer.lines import open_bytes

# Read tables of clicks: CSV or TSV with a header.
#
#     query      required: what was asked for
#     document   required: id; if the table has no such column, the first of sku, product_id, item_id, doc_id, docno
#     position   of the document in its list; absent: the first
#     user       who; absent: every list is by a person of its own
#     time       ISO 8601 or a number of seconds or milliseconds since 1970; absent: now
#     query_id   of the list; rows with the same one are one list
#     clicked    0 or 1, where rows are documents that were shown; absent: every row is a click
#     shown      ids of the whole list, separated by "|"; then the position is not used
#
# Other columns are left out. A row that is not part of a list with others is a list of one document at its position.
# A list without `shown` and `clicked` has only what was clicked.

_IDS = ("sku", "product_id", "item_id", "doc_id", "docno")
MAX_POSITION = 10_000
"""People do not look further down, and training keeps an array as long as the longest list."""
_MILLISECONDS = 1e11  # seconds since 1970 are below it until the year 5138

Row = Mapping[str, str]


def read_table(
    path: Path,
    now: float,
    refused: Counter[str],
    first_position: int = 1,
    encoding: str | None = None,
    ids: str = "document",
) -> Iterator[ServedList | Event]:
    """Read the lists and clicks of a table. Rows of one list must follow each other.

    Args:
        now: time of rows without one, in seconds since 1970.
        ids: column of the documents if there is none named "document"; then the usual ones.

    Raises:
        FullrankError: the file cannot be read, or its header lacks a column.
    """
    try:
        with opened(path, encoding) as text:
            head = text.readline()
            separator = separator_of(path, head)
            names = next(csv.reader([head], delimiter=separator), [])
            ids = next((name for name in ("document", ids, *_IDS) if name in names), "document")
            for name in ("query", ids):
                if name not in names:
                    raise FullrankError(
                        f"{path}: no column {name!r}; there are: {', '.join(names) or 'none'}"
                    )
            names = ["document" if name == ids else name for name in names]
            rows = csv.DictReader(text, names, delimiter=separator, restval="")
            yield from _records(path, rows, now, refused, first_position)
    except csv.Error as error:
        raise FullrankError(f"{path}: cannot be read: {error}") from error


def _records(
    path: Path, rows: Iterable[Row], now: float, refused: Counter[str], first_position: int
) -> Iterator[ServedList | Event]:
    numbered = enumerate(rows)

    def key(item: tuple[int, Row]) -> str:
        # Without an id, each row is a list. The name keeps the lists of several files apart.
        return item[1].get("query_id") or f"{path.name}:{item[0]}"

    for query_id, group in groupby(numbered, key):
        placed: dict[int, tuple[str, bool]] = {}
        asked: Row = {}
        only_clicked = True
        at = now
        for _, row in group:
            try:
                place = int(row.get("position") or first_position) - first_position
                at = _time(row.get("time"), now)
            except (ValueError, OverflowError):
                refused["position or time is no number"] += 1
                continue
            if undecoded(row["query"]) or undecoded(row["document"]):
                refused["not in this encoding; name it with --encoding"] += 1
                continue
            shown = [id for id in (row.get("shown") or "").split("|") if id]
            is_placed = 0 <= place < MAX_POSITION and len(shown) <= MAX_POSITION
            is_possible = is_placed and 0 <= at <= now
            if not row["query"].strip() or not row["document"] or not is_possible:
                refused["no query or document, or an impossible position or time"] += 1
                continue
            asked = asked or row
            only_clicked &= not (shown or row.get("clicked"))
            for i, id in enumerate(shown):
                placed.setdefault(i, (id, False))
            if shown:
                if row["document"] not in shown:
                    refused["document is not in shown"] += 1
                    continue
                place = shown.index(row["document"])
            clicked = (row.get("clicked") or "1").strip().lower() not in ("0", "false", "no")
            placed[place] = (row["document"], clicked or placed.get(place, ("", False))[1])
        if placed:
            yield from _list(query_id, at, asked, placed, only_clicked)


def _list(
    query_id: str,
    at: float,
    asked: Row,
    placed: Mapping[int, tuple[str, bool]],
    only_clicked: bool,
) -> Iterator[ServedList | Event]:
    user = asked.get("user")
    texts = {"user_id": user} if user else {}
    runs = groupby(enumerate(sorted(placed)), lambda item: item[1] - item[0])
    for n, (_, run) in enumerate(runs):
        places = [place for _, place in run]
        name = f"{query_id}/{n}" if n else query_id
        ids = [placed[place][0] for place in places]
        yield ServedList(
            name,
            at,
            asked["query"],
            ids,
            "reported",
            places[0],
            texts=texts,
            only_clicked=only_clicked,
        )
        for place in places:
            if placed[place][1]:
                yield Event("click", at, {"query_id": name, **texts}, placed[place][0])


def _time(text: str | None, now: float) -> float:
    if not text:
        return now
    try:
        number = float(text)
    except ValueError:
        return parse_time(text)
    if not 0 <= number < 1e14:
        raise ValueError(text)
    return number / 1000 if number >= _MILLISECONDS else number


_DAY_S = 86_400


def store(
    records: Iterable[ServedList | Event],
    folder: Path,
    people: Pseudonyms,
    now: float,
    max_bytes: float,
) -> dict[str, int]:
    """Write records into segments of a log, with pseudonyms for people; return the number of lists and events.

    Importing the same twice changes no vote: lists count by their id, clicks by person, query, document and day.

    Args:
        records: in any order; their lines are in memory until all are read.
        now: in seconds since 1970; their retention begins.

    Raises:
        FullrankError: the log would be larger; nothing was stored.
        OSError: a segment cannot be written.
    """
    lines: defaultdict[tuple[str, int], list[bytes]] = defaultdict(list)
    counts = {LISTS: 0, EVENTS: 0}
    for record in records:
        kind = LISTS if isinstance(record, ServedList) else EVENTS
        record = replace(record, texts=people.replace(record.texts))
        lines[kind, int(record.at // _DAY_S)].append(record.line())
        counts[kind] += 1
    folder.mkdir(0o700, parents=True, exist_ok=True)
    written = []
    for (kind, day), found in sorted(lines.items()):
        path = folder / imported_name(kind, day * _DAY_S)
        write_sealed(path, (line + b"\n" for line in found), imported_remark(now))
        written.append(path)
    if (size := size_of(folder)) > max_bytes:
        for path in written:
            remove_sealed(path)
        raise FullrankError(
            f"{folder}: would have {size / 2**20:,.1f} MB, and the service removes the oldest records beyond "
            f"{max_bytes / 2**20:,.1f}; raise FULLRANK_EVENTS_MB, here and for the service"
        )
    return counts


Record = ServedList | Event

_MAX_AGE_S = float("inf")  # a log may be as old as it likes


def format_of(path: Path) -> str:
    """Return the format of a file by its name and first characters. Raises FullrankError."""
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
        f"{path}: neither UBI nor Algolia's events nor a table (.csv, .tsv);"
        " name the format with --format of `fullrank events import`"
    )


def read_records(
    path: Path,
    form: str,
    now: float,
    refused: Counter[str],
    first_position: int = 1,
    encoding: str | None = None,
    ids: str = "document",
) -> Iterator[Record]:
    """Read the lists and events of a file.

    Args:
        now: in seconds since 1970; records without a time get it, and those from later are refused.

    Raises:
        FullrankError: the file cannot be read, or its header lacks a column.
    """
    if form == "table":
        yield from read_table(path, now, refused, first_position, encoding, ids)
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
