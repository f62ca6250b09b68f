"""Compaction removes what it should, and a kill at any moment loses nothing else."""

from __future__ import annotations

import os
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fullrank.events.compaction import WITHHELD, compact
from fullrank.events.log import EVENTS, LISTS, EventLog, erase, read_erased
from fullrank.events.records import Event
from fullrank.events.segments import (
    CHECKSUM,
    SegmentError,
    SegmentWriter,
    imported_name,
    imported_remark,
    list_segments,
    read_lines,
    size_of,
    write_sealed,
)
from tests.killing import Killing, killing

NOW = 1_795_392_000.0
DAY = 86_400.0
FOREVER = 10**12


def write(folder: Path, at: float, names: list[str], users: list[str], kind: str = EVENTS) -> Path:
    """Write a sealed segment of clicks, begun at a time."""
    writer = SegmentWriter(folder, kind, clock=lambda: at)
    writer.append(
        Event("click", at, {"user_id": user, "event_id": name}).line()
        for name, user in zip(names, users, strict=True)
    )
    sealed = writer.close()
    assert sealed is not None
    return sealed


def names(folder: Path) -> list[str]:
    return sorted(event.texts["event_id"] for event in EventLog(folder).events())


def raw(folder: Path) -> bytes:
    return b"\n".join(line for path in list_segments(folder, EVENTS) for line in read_lines(path))


def test_old_segments_go_and_young_ones_stay(tmp_path: Path) -> None:
    write(tmp_path, NOW - 91 * DAY, ["old"], ["ann"])
    write(tmp_path, NOW - 89 * DAY, ["young"], ["ann"])
    done = compact(tmp_path, 90, FOREVER, NOW)
    assert names(tmp_path) == ["young"]
    assert done.expired == 1
    assert done.bytes == size_of(tmp_path)


def test_removals_are_logged_with_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for days in (92, 91, 3, 2):
        write(tmp_path, NOW - days * DAY, ["a", "b"], ["ann", "bob"])
    compact(tmp_path, 90, FOREVER, NOW)
    compact(tmp_path, 90, size_of(tmp_path) - 1, NOW)
    assert [record.message.partition("removing ")[2] for record in caplog.records] == [
        "2 segments with 4 lists and events of 2 days, 2026-08-23 to 2026-08-24: older than 90 days",
        "1 segments with 2 lists and events of 1 days, 2026-11-20 to 2026-11-20: the log is larger than 0 MB",
    ]


def test_a_clock_that_is_ahead_removes_nothing_for_a_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, NOW, ["a"], ["ann"])
    erase(tmp_path, ["bob"], NOW)
    ahead = NOW + 100 * DAY

    def hour(now: float) -> int:
        return compact(tmp_path, 90, FOREVER, now, wait_s=DAY).withheld

    assert [hour(NOW), hour(ahead), hour(ahead + 0.9 * DAY)] == [0, 1, 1]
    assert "Is the clock right?" in caplog.text
    assert (tmp_path / WITHHELD).exists()
    assert read_erased(tmp_path)
    # The clock is set right, and some day is ahead again.
    assert hour(NOW + DAY) == 0
    assert not (tmp_path / WITHHELD).exists()
    assert [hour(ahead + 2 * DAY), hour(ahead), hour(ahead + 0.9 * DAY)] == [1, 1, 1]
    assert names(tmp_path) == ["a"]
    assert compact(tmp_path, 90, FOREVER, ahead + DAY, wait_s=DAY).expired == 1
    assert names(tmp_path) == []


def test_hourly_compaction_removes_what_is_due_at_once(tmp_path: Path) -> None:
    write(tmp_path, NOW - 90.5 * DAY, ["old"], ["ann"])
    assert compact(tmp_path, 90, FOREVER, NOW, wait_s=DAY).expired == 1


def test_an_erasure_after_the_clock_was_set_back_leaves_the_disk(tmp_path: Path) -> None:
    write(tmp_path, NOW - DAY, ["a", "b"], ["ann", "bob"])
    erase(tmp_path, ["cay"], NOW + DAY)
    compact(tmp_path, 90, FOREVER, NOW)
    erase(tmp_path, ["ann"], NOW)
    assert compact(tmp_path, 90, FOREVER, NOW).erased == 1


def test_an_erasure_is_forgotten_only_once_it_left_the_disk(tmp_path: Path) -> None:
    path = tmp_path / imported_name(EVENTS, NOW - 200 * DAY)
    lines = [Event("click", NOW - 200 * DAY, {"user_id": "ann"}).line() + b"\n"]
    write_sealed(path, lines, imported_remark(NOW - DAY))
    erase(tmp_path, ["ann"], NOW - 92 * DAY)
    compact(tmp_path, 90, FOREVER, NOW)
    assert read_erased(tmp_path) == {}
    assert names(tmp_path) == []


def test_what_erased_people_did_leaves_the_disk(tmp_path: Path) -> None:
    write(tmp_path, NOW - 3 * DAY, ["a", "b", "c"], ["ann", "bob", "ann"])
    untouched = write(tmp_path, NOW - 2 * DAY, ["d"], ["bob"])
    alone = write(tmp_path, NOW - 1 * DAY, ["e"], ["ann"])
    before = untouched.stat()
    erase(tmp_path, ["ann"], NOW - 60)
    write(tmp_path, NOW - 30, ["f"], ["ann"])  # she came back
    assert b"ann" in raw(tmp_path)
    done = compact(tmp_path, 90, FOREVER, NOW)
    assert (done.rewritten, done.erased) == (2, 3)
    assert names(tmp_path) == ["b", "d", "f"]
    assert raw(tmp_path).count(b"ann") == 1
    assert not alone.exists()
    assert untouched.stat().st_mtime_ns == before.st_mtime_ns
    checked = subprocess.run(
        ["sha256sum", "--check", *(path.name for path in tmp_path.glob(f"*{CHECKSUM}"))],
        cwd=tmp_path, capture_output=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr


def test_segments_are_looked_through_once_an_erasure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, NOW - 3 * DAY, ["a", "b"], ["ann", "bob"])
    write(tmp_path, NOW - 4 * DAY, ["c"], ["bob"])
    erase(tmp_path, ["ann"], NOW - 60)
    read: list[Path] = []
    plain = read_lines

    def record(path: Path) -> object:
        read.append(path)
        return plain(path)

    monkeypatch.setattr("fullrank.events.compaction.read_lines", record)
    counts = []
    for step in range(4):
        if step == 2:
            write(tmp_path, NOW - 2 * DAY, ["late"], ["ann"])  # copied from another machine
        if step == 3:
            erase(tmp_path, ["bob"], NOW - 30)
        compact(tmp_path, 90, FOREVER, NOW)
        counts.append(len(read))
        read.clear()
    assert counts == [2, 0, 1, 2]
    assert names(tmp_path) == []


def test_the_oldest_segments_go_while_the_log_is_too_large(tmp_path: Path) -> None:
    for i in range(6):
        write(tmp_path, NOW - i * DAY, [f"e{i}"], ["ann"], EVENTS if i % 2 else LISTS)
    size = size_of(tmp_path)
    done = compact(tmp_path, 90, size * 2 // 3, NOW)
    assert 2 <= done.dropped <= 3
    assert done.bytes == size_of(tmp_path) <= size * 2 // 3
    left = [path.name for kind in (EVENTS, LISTS) for path in list_segments(tmp_path, kind)]
    youngest = {
        (datetime.fromtimestamp(NOW, UTC) - timedelta(days=i)).strftime("%Y%m%d")
        for i in range(6 - done.dropped)
    }
    assert {name.split("-")[1][:8] for name in left} == youngest


def test_names_of_the_erased_are_kept_for_the_retention(tmp_path: Path) -> None:
    tmp_path.mkdir(exist_ok=True)
    erase(tmp_path, ["ann"], NOW - 92 * DAY)
    erase(tmp_path, ["bob"], NOW - 80 * DAY)
    compact(tmp_path, 90, FOREVER, NOW)
    assert read_erased(tmp_path) == {"bob": NOW - 80 * DAY}


def test_a_damaged_segment_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, NOW - DAY, ["a"], ["ann"])
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    erase(tmp_path, ["bob"], NOW)
    with pytest.raises(SegmentError, match=path.name):
        compact(tmp_path, 90, FOREVER, NOW)


def test_a_file_that_is_no_segment_stops_readers_but_not_compaction(tmp_path: Path) -> None:
    write(tmp_path, NOW - 91 * DAY, ["old"], ["ann"])
    stray = tmp_path / "events-10101T000000Z-abcd.jsonl.gz"
    stray.write_bytes(b"x")
    assert compact(tmp_path, 90, FOREVER, NOW).expired == 1
    assert stray.exists()
    with pytest.raises(SegmentError, match=f"{stray.name}: is not the name of a segment"):
        list(EventLog(tmp_path).events())
    stray.unlink()
    assert names(tmp_path) == []


KILLED = f"""
from fullrank.events.compaction import compact
def work(folder):
    compact(folder, 90, 10**12, {NOW})
"""


@pytest.mark.sweep
def test_a_kill_at_any_step_loses_nothing(tmp_path: Path) -> None:
    """Killed before each call that changes or opens a file, the log reads as before, and the next run ends the work."""
    with killing(KILLED) as program:
        assert any(ends_clean(program, step, tmp_path / str(step)) for step in range(200))


def ends_clean(program: Killing, step: int, folder: Path) -> bool:
    """Kill the program before a step and check the log; return whether the program ended before that."""
    write(folder, NOW - 95 * DAY, ["old"], ["bob"])
    write(folder, NOW - 3 * DAY, ["a", "b"], ["ann", "bob"])
    write(folder, NOW - 2 * DAY, ["c"], ["ann"])
    write(folder, NOW - 1 * DAY, ["d"], ["bob"])
    erase(folder, ["ann"], NOW - 60)
    ended = not program.killed_before(step, folder)
    assert [name for name in names(folder) if name != "old"] == ["b", "d"]
    for path in folder.glob(".*.tmp"):  # one of an earlier hour
        os.utime(path, (0, 0))
    compact(folder, 90, FOREVER, NOW)
    assert names(folder) == ["b", "d"]
    assert b"ann" not in raw(folder)
    found = {path.name for path in folder.iterdir() if path.name.endswith(("tmp", "new"))}
    assert found == set()
    if ended:
        assert step > 15
    return ended


def test_readers_go_on_while_segments_are_rewritten(tmp_path: Path) -> None:
    people = [f"p{i}" for i in range(60)]
    for k in range(4):
        write(tmp_path, NOW - (k + 1) * DAY, [f"{k}-{p}" for p in people], people)
    errors: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                found = names(tmp_path)
                assert found[-1] == "3-p9"
                assert len(found) >= 4
            except BaseException as error:
                errors.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    for person in people[:9] + people[10:40]:
        erase(tmp_path, [person], NOW)
        compact(tmp_path, 90, FOREVER, NOW)
    stop.set()
    reader.join()
    assert errors == []
