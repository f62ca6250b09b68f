"""What a page of a cursor costs after many documents of the list were rewritten.

    python -m benchmarks.performance.cursor_pages BUNDLE [--json]

In one process, without HTTP. Copies of documents of the bundle are live documents in a log in a file, and all of them
are rewritten, so what they were must be read from the log and encoded. The median of five times, in ms, after each
number of rewritten documents:

made        the view of the first page, for the first page that asks for it
again       the same view, for each later page of this worker
page        ten hits of that view
page_now    ten hits of the present view
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from benchmarks.harness.report import machine, show
from fullrank import open_bundle
from fullrank.bundle import Bundle
from fullrank.live import View
from fullrank_service.documents.follow import Tail
from fullrank_service.documents.log import Log
from fullrank_service.documents.logplace import LogPlace
from fullrank_service.documents.submission import Caps, Submission, Write

REWRITTEN = (100, 1_000, 10_000)
ROUNDS = 5
_BATCH = 1_000


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    given = parser.parse_args(arguments)
    found = {"machine": machine(("numpy", "numba")), "pages": measure(given.bundle, REWRITTEN)}
    show(found, given.json)


def measure(bundle_path: Path, rewritten: Sequence[int]) -> list[dict[str, Any]]:
    """Return the times after each number of rewritten documents."""
    bundle = open_bundle(bundle_path)
    rows = []
    for count in rewritten:
        times: dict[str, list[float]] = {}
        with tempfile.TemporaryDirectory() as folder:
            place = LogPlace.of_file(Path(folder) / "documents.sqlite")
            with closing(place.open()) as log:
                _write(log, bundle, count, 0)
                for number in range(1, ROUNDS + 1):
                    seq = log.head()
                    _write(log, bundle, count, number)
                    tail = Tail(place)
                    tail.prepare(bundle)
                    for name, took_ms in _times(tail, bundle, seq):
                        times.setdefault(name, []).append(took_ms)
        medians = {name: round(statistics.median(own), 2) for name, own in times.items()}
        rows.append({"rewritten": count, **medians})
    return rows


def _write(log: Log, bundle: Bundle, count: int, edited: int) -> None:
    """Write copies of documents of the bundle under other ids, always the same."""
    store = bundle.documents
    for first in range(0, count, _BATCH):
        writes = [
            Write(f"copy/{n}", orjson.dumps({**store.fields(n % len(store)), "edited": edited}))
            for n in range(first, min(first + _BATCH, count))
        ]
        log.commit([Submission(bundle.name, writes, lambda first: b"")], Caps())


def _times(tail: Tail, bundle: Bundle, seq: int) -> list[tuple[str, float]]:
    """Return names and ms."""
    views: list[View] = []
    text = bundle.model.query_text(bundle.documents.fields(0))[:40]

    def asked() -> None:
        views.append(tail.as_of(bundle, seq).view)

    def page(view: View) -> Callable[[], object]:
        return lambda: view.search(view.model.encode_queries([text]), 10)

    times = [("made", _ms(asked)), ("again", _ms(asked))]
    [now] = tail.views()
    page(now.view)()
    page(views[0])()
    return [*times, ("page", _ms(page(views[0]))), ("page_now", _ms(page(now.view)))]


def _ms(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


if __name__ == "__main__":
    main()
