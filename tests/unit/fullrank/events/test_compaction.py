"""Compaction and merging remove what they should, and a kill at any moment loses nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.events import compaction as merging
from fullrank.events.compaction import WITHHELD, compact
from fullrank.events.log import EVENTS, LISTS, EventLog, erase, read_erased
from fullrank.events.records import Event
from fullrank.events.segments import (
    CHECKSUM,
    SEALED,
    SegmentError,
    SegmentWriter,
    imported_name,
    imported_remark,
    list_segments,
    read_all,
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


MERGING_NOW = 1_795_392_000.0 + 3_600  # an hour after midnight
MERGING_DAY, HOUR = 86_400.0, 3_600.0


def merging_write(
    folder: Path, at: float, name: str, user: str = "bob", kind: str = EVENTS
) -> Path:
    """Write a sealed segment with one click."""
    writer = SegmentWriter(folder, kind, clock=lambda: at)
    writer.append([Event("click", at, {"user_id": user, "query_id": name}).line()])
    sealed = writer.close()
    assert sealed is not None
    return sealed


def lines(folder: Path, kind: str = EVENTS) -> list[bytes]:
    """Return all lines that a reader gets, in any order; one that is there twice counts twice."""
    return sorted(line for _, line in read_all(list_segments(folder, kind)))


def files(folder: Path) -> int:
    return len(list(folder.glob(f"*{SEALED}")))


def test_small_segments_of_a_past_day_become_one(tmp_path: Path) -> None:
    for i in range(4):
        merging_write(tmp_path, MERGING_NOW - MERGING_DAY + i * HOUR, f"e{i}")
        merging_write(tmp_path, MERGING_NOW - MERGING_DAY + i * HOUR, f"l{i}", kind=LISTS)
        merging_write(tmp_path, MERGING_NOW - 60 * i, f"today{i}")
    merging_write(tmp_path, MERGING_NOW - 5 * MERGING_DAY, "alone")
    events, lists = lines(tmp_path), lines(tmp_path, LISTS)
    assert compact(tmp_path, 90, FOREVER, MERGING_NOW).merged == 8
    assert (lines(tmp_path), lines(tmp_path, LISTS)) == (events, lists)
    assert len(list_segments(tmp_path, EVENTS)) == 6
    assert len(list_segments(tmp_path, LISTS)) == 1
    assert compact(tmp_path, 90, FOREVER, MERGING_NOW + 2 * HOUR).merged == 0
    assert files(tmp_path) == 7
    assert (lines(tmp_path), lines(tmp_path, LISTS)) == (events, lists)
    checked = subprocess.run(
        ["sha256sum", "--check", *(path.name for path in tmp_path.glob(f"*{CHECKSUM}"))],
        cwd=tmp_path, capture_output=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.count(b": OK") == 7


def test_those_that_come_late_are_merged_with_the_others(tmp_path: Path) -> None:
    for turn in range(4):
        for i in range(3):
            merging_write(tmp_path, MERGING_NOW - MERGING_DAY + i, f"{turn}-{i}")
        assert compact(tmp_path, 90, FOREVER, MERGING_NOW + 2 * HOUR * turn).merged == 3 + (
            turn > 0
        )
        assert len(lines(tmp_path)) == 3 * turn + 3
        assert len(list_segments(tmp_path, EVENTS)) == 1
    compact(tmp_path, 90, FOREVER, MERGING_NOW + 8 * HOUR)
    assert files(tmp_path) == 1


def test_large_ones_stay_and_a_merged_one_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(Event("click", MERGING_NOW, {"user_id": "bob", "query_id": "00"}).line()) + 1
    monkeypatch.setattr(merging, "SMALL_BYTES", size + 1)
    monkeypatch.setattr(merging, "MAX_BYTES", 3 * size)
    large = merging_write(tmp_path, MERGING_NOW - MERGING_DAY, "a name that is longer")
    before = large.stat()
    for i in range(8):
        merging_write(tmp_path, MERGING_NOW - MERGING_DAY + i, f"{i:02}")
    wanted = lines(tmp_path)
    compact(tmp_path, 90, FOREVER, MERGING_NOW)
    assert lines(tmp_path) == wanted
    counts = sorted(len(list(read_lines(path))) for path in list_segments(tmp_path, EVENTS))
    assert counts == [1, 2, 3, 3]
    assert (large.stat().st_ino, large.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_reader_that_listed_the_segments_still_finds_them(tmp_path: Path) -> None:
    for i in range(3):
        merging_write(tmp_path, MERGING_NOW - MERGING_DAY + i, f"e{i}")
    listed = list_segments(tmp_path, EVENTS)
    compact(tmp_path, 90, FOREVER, MERGING_NOW)
    compact(tmp_path, 90, FOREVER, MERGING_NOW + HOUR / 2)
    assert sum(len(list(read_lines(path))) for path in listed) == 3


def test_what_is_copied_once_more_counts_once(tmp_path: Path) -> None:
    """One folder collects the segments of another; both are compacted, and files that are gone are copied again."""
    source, target = tmp_path / "source", tmp_path / "target"

    def copy() -> None:
        shutil.copytree(source, target, dirs_exist_ok=True)

    for i in range(3):
        merging_write(source, MERGING_NOW - MERGING_DAY + i, f"e{i}")
    copy()
    merging_write(target, MERGING_NOW - MERGING_DAY, "own")
    wanted = lines(target)
    compact(target, 90, FOREVER, MERGING_NOW)
    compact(target, 90, FOREVER, MERGING_NOW + 2 * HOUR)
    assert lines(target) == wanted
    copy()  # the three
    assert lines(target) == wanted
    compact(source, 90, FOREVER, MERGING_NOW)
    copy()  # those that the target holds, merged
    assert lines(target) == wanted
    compact(target, 90, FOREVER, MERGING_NOW + 4 * HOUR)
    assert lines(target) == wanted
    assert files(target) == 1


def test_segments_that_two_machines_merged_with_their_own_count_once(tmp_path: Path) -> None:
    """Either folder merges what both have with what it alone has, before one is copied into the other."""
    source, target = tmp_path / "source", tmp_path / "target"
    for i in range(3):
        merging_write(source, MERGING_NOW - MERGING_DAY + i, f"e{i}")
    shutil.copytree(source, target)
    merging_write(target, MERGING_NOW - MERGING_DAY, "own")
    merging_write(source, MERGING_NOW - MERGING_DAY, "late")
    wanted = sorted({*lines(source), *lines(target)})
    for folder in (source, target):
        compact(folder, 90, FOREVER, MERGING_NOW)
        compact(folder, 90, FOREVER, MERGING_NOW + 2 * HOUR)
        assert files(folder) == 1
    shutil.copytree(source, target, dirs_exist_ok=True)
    assert files(target) == 2
    assert sorted(lines(target)) == wanted
    assert len(list(EventLog(target).events())) == len(wanted) == 5
    merging_write(target, MERGING_NOW - MERGING_DAY, "later")
    compact(target, 90, FOREVER, MERGING_NOW + 4 * HOUR)
    compact(target, 90, FOREVER, MERGING_NOW + 6 * HOUR)
    assert files(target) == 1
    assert len(lines(target)) == len(set(lines(target))) == 6


def test_erased_people_leave_the_merged_segment_and_its_parts(tmp_path: Path) -> None:
    for i, user in enumerate(["ann", "bob", "ann"]):
        merging_write(tmp_path, MERGING_NOW - MERGING_DAY + i, f"e{i}", user)
    compact(tmp_path, 90, FOREVER, MERGING_NOW)
    erase(tmp_path, ["ann"], MERGING_NOW)
    assert compact(tmp_path, 90, FOREVER, MERGING_NOW + 60).erased == 2
    left = [line for path in tmp_path.glob(f"*{SEALED}") for line in read_lines(path)]
    assert not any(b"ann" in line for line in left)
    assert len(lines(tmp_path)) == 1
    compact(tmp_path, 90, FOREVER, MERGING_NOW + 2 * HOUR)
    assert len(lines(tmp_path)) == files(tmp_path) == 1


def test_nothing_leaves_before_its_time(tmp_path: Path) -> None:
    merging_write(tmp_path, MERGING_NOW - MERGING_DAY, "early")
    merging_write(tmp_path, MERGING_NOW - MERGING_DAY + 10 * HOUR, "late")
    compact(tmp_path, 90, FOREVER, MERGING_NOW)
    compact(
        tmp_path, 90, FOREVER, MERGING_NOW + 89.1 * MERGING_DAY
    )  # "early" is 90.1 days old, "late" is not
    assert len(lines(tmp_path)) == 2
    assert compact(tmp_path, 90, FOREVER, MERGING_NOW + 90 * MERGING_DAY).expired == 1
    assert lines(tmp_path) == []


def test_a_damaged_segment_is_named_and_kept(tmp_path: Path) -> None:
    path = merging_write(tmp_path, MERGING_NOW - MERGING_DAY, "a")
    merging_write(tmp_path, MERGING_NOW - MERGING_DAY, "b")
    path.write_bytes(path.read_bytes().replace(b"\0", b"\1", 1))
    with pytest.raises(SegmentError, match=path.name):
        compact(tmp_path, 90, FOREVER, MERGING_NOW)
    assert files(tmp_path) == 2


MERGING_KILLED = """
from fullrank.events.compaction import compact
def work(folder):
    compact(folder, 90, 10**12, float({now}))
"""


@pytest.mark.sweep
def test_a_kill_at_any_step_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Killed while it merges, and while it removes what was merged, before each call that changes or opens a file."""
    for later in (0.0, 2 * HOUR):
        with killing(MERGING_KILLED.format(now=MERGING_NOW + later)) as program:
            assert any(ends_whole(program, step, later, tmp_path) for step in range(200))


def ends_whole(program: Killing, step: int, later: float, root: Path) -> bool:
    """Kill the program before a step and check the log; return whether the program ended before that."""
    folder = root / f"{later}-{step}"
    for i in range(3):
        merging_write(folder, MERGING_NOW - MERGING_DAY + i, f"e{i}")
        merging_write(folder, MERGING_NOW - 2 * MERGING_DAY + i, f"f{i}")
    wanted = lines(folder)
    if later:
        compact(folder, 90, FOREVER, MERGING_NOW)
    ended = not program.killed_before(step, folder)
    assert lines(folder) == wanted
    for path in folder.glob(".*.tmp"):  # one of an earlier hour
        os.utime(path, (0, 0))
    for hours in (2, 4, 6):
        compact(folder, 90, FOREVER, MERGING_NOW + hours * HOUR)
        assert lines(folder) == wanted
    assert files(folder) == 2
    assert len(list(folder.glob(f"*{CHECKSUM}"))) == 2
    assert list(folder.glob(".*.tmp")) == []
    if ended:
        assert step > 10
    return ended


@pytest.mark.sweep
@given(
    days=st.lists(st.integers(0, 3), max_size=12),
    turns=st.lists(st.sampled_from(["compact", "write", "copy", "hour", "day"]), max_size=12),
)
def test_any_order_of_writing_copying_and_merging(
    tmp_path_factory: pytest.TempPathFactory, days: Sequence[int], turns: Sequence[str]
) -> None:
    folder, backup = tmp_path_factory.mktemp("log"), tmp_path_factory.mktemp("backup")
    now, written = MERGING_NOW, 0

    def add(day: int) -> None:
        nonlocal written
        merging_write(folder, now - day * MERGING_DAY, f"e{written}")
        written += 1

    for day in days:
        add(day)
    shutil.copytree(folder, backup, dirs_exist_ok=True)
    for turn in turns:
        if turn == "compact":
            compact(folder, 90, FOREVER, now)
        elif turn == "write":
            add(written % 3)
        elif turn == "copy":
            shutil.copytree(backup, folder, dirs_exist_ok=True)
        else:
            now += MERGING_DAY if turn == "day" else 1.5 * HOUR
        assert len(lines(folder)) == len(set(lines(folder))) == written
    shutil.rmtree(folder)
    shutil.rmtree(backup)


@pytest.mark.sweep
def test_readers_go_on_while_segments_are_merged(tmp_path: Path) -> None:
    errors: list[BaseException] = []
    counted = 0
    stop = threading.Event()

    def read() -> None:
        nonlocal counted
        try:
            while not stop.is_set():
                least = counted
                found = lines(tmp_path)
                assert len(found) == len(set(found)) >= least
        except BaseException as error:
            errors.append(error)

    merging_write(tmp_path, MERGING_NOW - MERGING_DAY, "first")
    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(40):
        for i in range(3):
            merging_write(tmp_path, MERGING_NOW - MERGING_DAY + turn + i, f"{turn}-{i}")
        counted = 3 * turn + 1
        compact(tmp_path, 90, FOREVER, MERGING_NOW)
    stop.set()
    reader.join()
    assert errors == []
