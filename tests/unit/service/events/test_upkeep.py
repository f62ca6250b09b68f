"""The thread of a worker: lists on disk, sealed segments, what is old, what cannot be written."""

from __future__ import annotations

import asyncio
import gzip
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fullrank.events.log import EventLog
from fullrank.events.records import Event, ServedList
from fullrank.events.segments import SegmentWriter, begun, list_segments, size_of
from fullrank_service.base.errors import EventsFull, EventsUnavailable
from fullrank_service.base.metrics import Metrics
from fullrank_service.events.recorder import Recorder
from fullrank_service.events.shown import Shown
from fullrank_service.events.upkeep import Capacity, Journal, clean
from fullrank_service.search.schemas import Asked

pytestmark = pytest.mark.anyio


def recorder(root: Path) -> Recorder:
    return Recorder(root / "events", root / "key", 90, 1 << 30, Metrics())


def shown(id: str = "q", asker: Asked | None = None, **changes: Any) -> Shown:
    served = ServedList(id, time.time(), "copy", ["a"], model="m", generation=1)
    asker = asker or Asked(client_id="c", user_id="")
    return Shown(replace(served, **changes), asker, [])


def soon(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


async def test_close_writes_and_seals_everything(tmp_path: Path) -> None:
    recording = recorder(tmp_path)
    recording.start()
    recording.record(shown("1"))
    recording.record(shown("2", asker=Asked(record=False)))
    await recording.store_events([Event("click", time.time(), {})], is_bot=True)
    await recording.close()
    log = EventLog(recording.folder)
    assert [served.query_id for served in log.lists()] == ["1"]
    assert [event.is_bot for event in log.events()] == [True]
    files = [path.name for path in recording.folder.iterdir() if "-" in path.name]
    assert len(files) == 4
    assert all(name.endswith((".jsonl.gz", ".sha256")) for name in files)
    with pytest.raises(EventsUnavailable):
        await recording.store_events([Event("click", time.time(), {})], is_bot=False)


async def test_segments_of_the_dead_are_sealed_at_start(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    writer = SegmentWriter(folder, "events")
    writer.append([Event("click", time.time(), {}).line()])
    [path] = list_segments(folder, "events")
    torn = path.read_bytes() + b'{"action'
    os.close(writer._file)  # as the end of its process does
    path.write_bytes(torn)
    recording = recorder(tmp_path)
    recording.start()
    soon(lambda: any(p.suffix == ".gz" for p in list_segments(folder, "events")))
    await recording.close()
    [sealed] = list_segments(folder, "events")
    assert gzip.decompress(sealed.read_bytes()) + b'{"action' == torn


@pytest.mark.sweep
async def test_a_segment_is_sealed_while_events_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SegmentWriter, "is_due", lambda self: self._path is not None)
    recording = recorder(tmp_path)
    recording.start()
    for number in range(20):
        await recording.store_events(
            [Event("click", time.time(), {"query_id": str(number)})], is_bot=False
        )
        recording.record(shown(str(number)))
        await asyncio.sleep(0.05)
    soon(lambda: len(list(recording.folder.glob("events-*.gz"))) > 0)
    await recording.close()
    log, expected = EventLog(recording.folder), {str(number) for number in range(20)}
    assert {event.texts["query_id"] for event in log.events()} == expected
    assert {served.query_id for served in log.lists()} == expected
    assert len(list(recording.folder.glob("events-*.gz"))) > 1


async def test_more_lists_than_may_wait_are_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_service.events.upkeep._MAX_WAITING", 3)
    recording = recorder(tmp_path)
    for number in range(5):
        recording.record(shown(str(number)))
    recording.start()
    await recording.close()
    assert recording.metrics.lists["overflow"]._value.get() == 2
    assert recording.metrics.lists["written"]._value.get() == 3


async def test_the_last_success_of_the_loop_is_shown(tmp_path: Path) -> None:
    (tmp_path / "loop").touch()
    os.utime(tmp_path / "loop", (5, 5))
    metrics = Metrics()
    recording = Recorder(tmp_path / "events", tmp_path / "key", 90, 1, metrics, tmp_path / "loop")
    recording.start()
    soon(lambda: metrics.loop_last_success._value.get() == 5)
    await recording.close()


async def test_a_damaged_key_stops_logging_alone(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"short")
    recording = recorder(tmp_path)
    recording.start()
    recording.record(shown())
    with pytest.raises(EventsUnavailable):
        await recording.store_events([Event("click", time.time(), {})], is_bot=False)
    with pytest.raises(EventsUnavailable):
        await recording.erase("c")
    await recording.close()
    assert recording.metrics.lists["unwritable"]._value.get() == 1
    assert not list_segments(recording.folder, "lists")


async def test_requests_that_wait_share_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs, sync = [], SegmentWriter.sync
    first, go = threading.Event(), threading.Event()

    def counted(self: SegmentWriter) -> None:
        syncs.append(1)
        first.set()
        go.wait(10)
        sync(self)

    monkeypatch.setattr(SegmentWriter, "sync", counted)
    journal = Journal(tmp_path, Capacity(tmp_path, 1 << 20, Metrics()))
    stores = [asyncio.create_task(journal.store("events", [b"0"]))]
    await asyncio.to_thread(first.wait, 10)
    stores += [asyncio.create_task(journal.store("events", [b"%d" % n])) for n in range(1, 30)]
    await asyncio.sleep(0.05)
    assert not any(task.done() for task in stores)
    go.set()
    await asyncio.gather(*stores)
    journal.close()
    assert len(syncs) == 2
    [path] = list_segments(tmp_path, "events")
    assert path.read_bytes().split() == [b"%d" % n for n in range(30)]


def test_what_is_old_is_removed_by_one_worker(tmp_path: Path) -> None:
    def segment(days: float) -> Path:
        at = datetime.now(UTC) - timedelta(days=days)
        writer = SegmentWriter(tmp_path, "events", clock=at.timestamp)
        writer.append([b"{}"])
        path = writer.seal()
        assert path is not None
        return path

    old, new = segment(90.5), segment(89)
    assert clean(tmp_path, 90, 1 << 20, 1800) is True
    assert not old.exists()
    assert new.exists()
    old = segment(90.6)
    assert clean(tmp_path, 90, 1 << 20, 1800) is False
    assert old.exists()
    os.utime(tmp_path / ".upkeep", (0, 0))
    assert clean(tmp_path, 90, 1 << 20, 1800) is True
    assert not old.exists()
    # A clock that was set back does not pause it.
    ahead = time.time() + 100 * 86_400
    os.utime(tmp_path / ".upkeep", (ahead, ahead))
    assert clean(tmp_path, 90, 1 << 20, 1800) is True


def test_a_restart_with_a_clock_that_is_ahead_keeps_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "events"
    writer = SegmentWriter(folder, "events")
    writer.append([Event("click", time.time(), {}).line()])
    writer.close()
    now = time.time() + 100 * 86_400
    monkeypatch.setattr(
        "fullrank_service.events.upkeep.time",
        SimpleNamespace(time=lambda: now, monotonic=time.monotonic),
    )
    clean(folder, 90, 1 << 20, 1800)
    assert len(list(EventLog(folder).events())) == 1
    metrics = Metrics()
    Capacity(folder, 1 << 30, metrics).measure()
    assert metrics.events_withheld._value.get() == 1


@pytest.mark.sweep
async def test_a_full_log_loses_its_oldest_and_takes_events_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_service.events.upkeep._MEASURE_S", 0.1)
    folder = tmp_path / "events"
    for day in range(10):
        at = datetime.now(UTC) - timedelta(days=day + 1)
        writer = SegmentWriter(folder, "events", clock=at.timestamp)
        writer.append([b'"%s"' % os.urandom(40_000).hex().encode()])
        writer.seal()
    before = size_of(folder)
    recording = Recorder(folder, tmp_path / "key", 90, before // 2, Metrics())
    recording.start()
    soon(lambda: size_of(folder) <= before // 2)
    began = time.monotonic()
    while True:  # until it is measured again
        try:
            await recording.store_events([Event("click", time.time(), {})], is_bot=False)
            break
        except EventsFull:
            assert time.monotonic() - began < 10
            await asyncio.sleep(0.05)
    await recording.close()
    left = sorted(begun(path) for path in list_segments(folder, "events"))
    assert len(left) == 5
    assert left[0] > datetime.now(UTC) - timedelta(days=4.5)


async def test_erased_people_leave_the_disk(tmp_path: Path) -> None:
    recording = recorder(tmp_path)
    recording.start()
    events = [Event("click", time.time(), {"client_id": who}) for who in ("anna", "bert")]
    await recording.store_events(events, is_bot=False)
    await recording.erase("anna")
    await recording.close()
    (recording.folder / ".upkeep").unlink(missing_ok=True)
    recording = recorder(tmp_path)
    recording.start()
    gone = recording.people().of("anna").encode()
    [path] = list_segments(recording.folder, "events")
    soon(lambda: gone not in gzip.decompress(path.read_bytes()))
    await recording.close()
    [left] = EventLog(recording.folder).events()
    assert left.person == recording.people().of("bert")


def test_a_large_filter_and_a_long_text_are_not_stored(tmp_path: Path) -> None:
    people = recorder(tmp_path).people()
    line = shown(filter={"a": "x" * 9_000}, text="y" * 5_000).line(people)
    assert len(line) < 2_500
    assert b"filter" not in line
    assert b'"user_id"' not in line
