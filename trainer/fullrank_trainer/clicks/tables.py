"""Read tables of clicks: CSV or TSV with a header.

    query      required: what was asked for
    document   required: id
    position   of the document in its list; absent: the first
    user       who; absent: every list is by a person of its own
    time       ISO 8601 or a number of seconds or milliseconds since 1970; absent: now
    query_id   of the list; rows with the same one are one list
    clicked    0 or 1, where rows are documents that were shown; absent: every row is a click
    shown      ids of the whole list, separated by "|"; then the position is not used

Other columns are left out. A row that is not part of a list with others is a list of one document at its position. A
list without `shown` and `clicked` has only what was clicked.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from io import TextIOWrapper
from itertools import groupby
from pathlib import Path

from fullrank.errors import FullrankError
from fullrank.events.records import Event, ServedList
from fullrank_trainer.collection.lines import open_bytes

MAX_POSITION = 10_000
"""People do not look further down, and training keeps an array as long as the longest list."""
_MILLISECONDS = 1e11  # seconds since 1970 are below it until the year 5138

Row = Mapping[str, str]


def read_table(
    path: Path, now: float, refused: Counter[str], first_position: int = 1
) -> Iterator[ServedList | Event]:
    """Read the lists and clicks of a table. Rows of one list must follow each other.

    Args:
        path: .csv or .tsv, plain or .gz.
        now: time of rows without one, in seconds since 1970.
        refused: counts rows that cannot be read, by reason.
        first_position: position of the first document: 0 or 1.

    Raises:
        FullrankError: the file cannot be read, or its header lacks a column.
    """
    separator = "\t" if ".tsv" in path.suffixes else ","
    try:
        with open_bytes(path) as file, TextIOWrapper(file, "utf-8-sig", newline="") as text:
            rows = csv.DictReader(text, delimiter=separator, restval="")
            names = rows.fieldnames or []
            for name in ("query", "document"):
                if name not in names:
                    raise FullrankError(
                        f"{path}: no column {name!r}; there are: {', '.join(names) or 'none'}"
                    )
            yield from _records(path, rows, now, refused, first_position)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
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
    """Make a list of each run of neighbouring places, and its clicks."""
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
    """Read a time. Raises ValueError."""
    if not text:
        return now
    try:
        number = float(text)
    except ValueError:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    if not 0 <= number < 1e14:
        raise ValueError(text)
    return number / 1000 if number >= _MILLISECONDS else number
