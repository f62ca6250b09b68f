"""What a worker has learned from the log, while people are erased from it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from fullrank.bundle import Bundle, find_bundle, open_bundle
from fullrank.events.log import EVENTS, LISTS, EventLog, erase
from fullrank.events.records import Event
from fullrank.events.segments import SegmentWriter
from fullrank.live import View
from fullrank.search.complete import Kind
from fullrank_service.base.metrics import Metrics
from fullrank_service.completion import usage
from fullrank_service.completion.usage import Usage, read_digest
from tests.bundles import make_bundle
from tests.clicking import MONDAY, click, listing

HOUR = 3600.0


class Worker:
    """A worker that reads the log once an hour."""

    def __init__(self, bundle: Bundle, log: Path) -> None:
        self.bundle = bundle
        self.usage = Usage(lambda: [View.of(bundle)], log, HOUR, Metrics())
        self.usage.start()

    def queries(self) -> list[str]:
        return [text for text, kind in self.completed() if kind == Kind.QUERY]

    def completed(self) -> list[tuple[str, Kind]]:
        return [(one.text, one.kind) for one in self.usage.complete(self.bundle, "c", 10)]

    def together(self) -> list[str]:
        return [found.document for found in self.usage.together(self.bundle.name, "linux/cp")]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three people search `copy it` and click two documents; three others search `count`."""
    model = "shop-20260101t000000z-0123abcd"
    lists = [
        listing(f"l{u}", ["linux/cp", "linux/scp"], "copy it", user=u, model=model) for u in "uvw"
    ]
    lists += [listing(f"m{u}", ["ls"], "count", user=u, model=model) for u in "xyz"]
    events = [click(f"l{u}", id, user=u) for u in "uvw" for id in ("linux/cp", "linux/scp")]
    for kind, records in ((LISTS, lists), (EVENTS, events)):
        writer = SegmentWriter(tmp_path / "log", kind)
        writer.append([record.line() for record in records])
        writer.close()
    return tmp_path / "log"


@pytest.fixture
def workers(tmp_path: Path, log: Path) -> Iterator[list[Worker]]:
    make_bundle(tmp_path, "shop")
    bundle = open_bundle(find_bundle(tmp_path, "shop"))
    started = [Worker(bundle, log) for _ in range(2)]
    yield started
    for worker in started:
        worker.usage._thread.close()


def until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_every_worker_leaves_an_erased_person_out_at_the_next_read(
    workers: list[Worker], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for worker in workers:
        until(lambda: worker.queries() == ["count", "copy it"])  # noqa: B023
        assert worker.together() == ["linux/scp"]
    with monkeypatch.context() as patch:
        # The log is not read again before this block ends.
        patch.setattr(usage, "read_digest", _fail)
        erase(log, ["v"], MONDAY + 60)
        for worker in workers:
            assert worker.queries() == worker.together() == []
            # Titles and words of documents stay.
            assert worker.completed() == [("cp", Kind.TITLE), ("copy", Kind.WORD)]
    for worker in workers:
        worker.usage._refreshed = -HOUR
        until(lambda: worker.queries() == ["count"])  # noqa: B023
        assert worker.together() == []


def test_a_worker_reads_the_log_again_after_an_erasure(workers: list[Worker], log: Path) -> None:
    for worker in workers:
        until(lambda: worker.queries() == ["count", "copy it"])  # noqa: B023
    erase(log, ["z"], MONDAY + 60)
    for worker in workers:
        until(lambda: worker.queries() == ["copy it"])  # noqa: B023
        assert worker.together() == ["linux/scp"]


def test_somebody_erased_while_the_log_is_read_is_noticed(
    workers: list[Worker], log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [worker, _] = workers
    until(lambda: worker.queries() == ["count", "copy it"])
    found = read_digest(EventLog(log), 0)
    erase(log, ["v"], MONDAY + 60)
    monkeypatch.setattr(usage, "read_digest", lambda *_: found)
    worker.usage._round()
    assert worker.queries() == []


def _fail(*_: object) -> None:
    raise OSError("not now")


def test_closing_ends_a_reading_of_a_large_log(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = threading.Event()

    def endless(log: EventLog, segments: Sequence[Path]) -> Iterator[Event]:
        reads.set()
        while True:
            yield Event("click", 0.0, {})

    monkeypatch.setattr(EventLog, "events", endless)
    reader = Usage(list, log, HOUR, Metrics())
    reader.start()
    assert reads.wait(10)
    began = time.monotonic()
    asyncio.run(reader.close())
    assert time.monotonic() - began < 4
    assert "usage" not in [thread.name for thread in threading.enumerate()]
