"""How many bytes one click takes in the gzipped log of events, with the list that it belongs to.

    python -m benchmarks.fleet.click_bytes BUNDLE [--lists 20000] [--json]

Writes lists and clicks as the service does (lines of ``ServedList`` and ``Event``, sealed by ``SegmentWriter``), and
divides the bytes of the sealed segments by their number. A list has the first ten documents of BUNDLE for the title of
a document; titles repeat by Zipf's law, 2,000 of them, and each list has one click on one of its documents. A list has
a random id of 32 digits, and each of 5,000 users and their sessions has a pseudonym. If a search has fewer clicks than
one, more lists go with each click: add ``bytes_a_list`` for each.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness.report import show
from benchmarks.performance.http import zipf
from fullrank import open_bundle
from fullrank.bundle import Bundle
from fullrank.events.lists import ServedList
from fullrank.events.people import Pseudonyms
from fullrank.events.records import Event
from fullrank.events.segments import SegmentWriter

_START, _SECONDS_BETWEEN = 1_790_000_000.0, 0.05
_QUERIES, _USERS = 2_000, 5_000


def first_documents(bundle: Bundle, count: int, seed: int = 1) -> list[tuple[str, list[str]]]:
    """Search for titles; return different ones, each with the ids of its first ten documents."""
    rows = random.Random(seed).sample(range(len(bundle.documents)), len(bundle.documents))
    found: dict[str, list[str]] = {}
    for row in rows:
        title = bundle.documents.fields(row).get("title")
        if isinstance(title, str) and title.strip() and title not in found:
            found[title] = [hit.id for hit in bundle.search(title, limit=10)]
        if len(found) == count:
            break
    return list(found.items())


def write_log(
    answers: Sequence[tuple[str, Sequence[str]]], lists: int, folder: Path, seed: int = 1
) -> dict[str, float]:
    """Write lists with one click each; return the gzipped bytes of a list, of a click, and of both.

    Args:
        answers: Texts of queries with the ids of their documents, the most frequent query first.
        lists: How many.
        folder: For the segments.
        seed: Of queries, users and clicks.
    """
    draw = random.Random(seed)
    people = Pseudonyms(draw.randbytes(32))
    served, clicked = [], []
    for number, query in enumerate(zipf(len(answers), lists, seed)):
        text, ids = answers[query]
        user = draw.randrange(_USERS)
        who = people.replace({"user_id": f"u{user}", "session_id": f"s{user}-{number % 7}"})
        at, id = _START + number * _SECONDS_BETWEEN, f"{draw.getrandbits(128):032x}"
        served.append(ServedList(id, at, text, ids, model="shop-20260101t000000z", texts=who))
        if ids:
            event = Event(
                "click", at + 20 * draw.random(), {"query_id": id, **who}, draw.choice(ids)
            )
            clicked.append(event)
    list_bytes = _sealed_bytes(folder, "lists", (own.line() for own in served)) / len(served)
    click_bytes = _sealed_bytes(folder, "events", (own.line() for own in clicked)) / len(clicked)
    return {
        "bytes_a_list": round(list_bytes, 1),
        "bytes_an_event": round(click_bytes, 1),
        "click_bytes": round(list_bytes + click_bytes),
    }


def _sealed_bytes(folder: Path, kind: str, lines: Iterable[bytes]) -> int:
    writer = SegmentWriter(folder, kind)
    writer.append(lines)
    sealed = writer.close()
    return 0 if sealed is None else sealed.stat().st_size


def main() -> None:
    """Search, write, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--lists", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    answers = first_documents(open_bundle(asked.bundle, verify=False), _QUERIES)
    with TemporaryDirectory(prefix="fullrank-clicks-") as folder:
        found = write_log(answers, asked.lists, Path(folder))
    show({"lists": asked.lists, "queries": len(answers), **found}, asked.json)


if __name__ == "__main__":
    main()
