"""Small segments become larger ones; at any moment each line is read once."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.events import compaction as merging
from fullrank.events.compaction import compact
from fullrank.events.log import EVENTS, LISTS, EventLog, erase
from fullrank.events.records import Event
from fullrank.events.segments import (
    CHECKSUM,
    SEALED,
    SegmentError,
    SegmentWriter,
    list_segments,
    read_all,
    read_lines,
)
from tests.killing import Killing, killing

NOW = 1_795_392_000.0 + 3_600  # an hour after midnight
DAY, HOUR = 86_400.0, 3_600.0
FOREVER = 10**12


def write(folder: Path, at: float, name: str, user: str = "bob", kind: str = EVENTS) -> Path:
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
        write(tmp_path, NOW - DAY + i * HOUR, f"e{i}")
        write(tmp_path, NOW - DAY + i * HOUR, f"l{i}", kind=LISTS)
        write(tmp_path, NOW - 60 * i, f"today{i}")
    write(tmp_path, NOW - 5 * DAY, "alone")
    events, lists = lines(tmp_path), lines(tmp_path, LISTS)
    assert compact(tmp_path, 90, FOREVER, NOW).merged == 8
    assert (lines(tmp_path), lines(tmp_path, LISTS)) == (events, lists)
    assert len(list_segments(tmp_path, EVENTS)) == 6
    assert len(list_segments(tmp_path, LISTS)) == 1
    assert compact(tmp_path, 90, FOREVER, NOW + 2 * HOUR).merged == 0
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
            write(tmp_path, NOW - DAY + i, f"{turn}-{i}")
        assert compact(tmp_path, 90, FOREVER, NOW + 2 * HOUR * turn).merged == 3 + (turn > 0)
        assert len(lines(tmp_path)) == 3 * turn + 3
        assert len(list_segments(tmp_path, EVENTS)) == 1
    compact(tmp_path, 90, FOREVER, NOW + 8 * HOUR)
    assert files(tmp_path) == 1


def test_large_ones_stay_and_a_merged_one_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(Event("click", NOW, {"user_id": "bob", "query_id": "00"}).line()) + 1
    monkeypatch.setattr(merging, "SMALL_BYTES", size + 1)
    monkeypatch.setattr(merging, "MAX_BYTES", 3 * size)
    large = write(tmp_path, NOW - DAY, "a name that is longer")
    before = large.stat()
    for i in range(8):
        write(tmp_path, NOW - DAY + i, f"{i:02}")
    wanted = lines(tmp_path)
    compact(tmp_path, 90, FOREVER, NOW)
    assert lines(tmp_path) == wanted
    counts = sorted(len(list(read_lines(path))) for path in list_segments(tmp_path, EVENTS))
    assert counts == [1, 2, 3, 3]
    assert (large.stat().st_ino, large.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_reader_that_listed_the_segments_still_finds_them(tmp_path: Path) -> None:
    for i in range(3):
        write(tmp_path, NOW - DAY + i, f"e{i}")
    listed = list_segments(tmp_path, EVENTS)
    compact(tmp_path, 90, FOREVER, NOW)
    compact(tmp_path, 90, FOREVER, NOW + HOUR / 2)
    assert sum(len(list(read_lines(path))) for path in listed) == 3


def test_what_is_copied_once_more_counts_once(tmp_path: Path) -> None:
    """One folder collects the segments of another; both are compacted, and files that are gone are copied again."""
    source, target = tmp_path / "source", tmp_path / "target"

    def copy() -> None:
        shutil.copytree(source, target, dirs_exist_ok=True)

    for i in range(3):
        write(source, NOW - DAY + i, f"e{i}")
    copy()
    write(target, NOW - DAY, "own")
    wanted = lines(target)
    compact(target, 90, FOREVER, NOW)
    compact(target, 90, FOREVER, NOW + 2 * HOUR)
    assert lines(target) == wanted
    copy()  # the three
    assert lines(target) == wanted
    compact(source, 90, FOREVER, NOW)
    copy()  # those that the target holds, merged
    assert lines(target) == wanted
    compact(target, 90, FOREVER, NOW + 4 * HOUR)
    assert lines(target) == wanted
    assert files(target) == 1


def test_segments_that_two_machines_merged_with_their_own_count_once(tmp_path: Path) -> None:
    """Either folder merges what both have with what it alone has, before one is copied into the other."""
    source, target = tmp_path / "source", tmp_path / "target"
    for i in range(3):
        write(source, NOW - DAY + i, f"e{i}")
    shutil.copytree(source, target)
    write(target, NOW - DAY, "own")
    write(source, NOW - DAY, "late")
    wanted = sorted({*lines(source), *lines(target)})
    for folder in (source, target):
        compact(folder, 90, FOREVER, NOW)
        compact(folder, 90, FOREVER, NOW + 2 * HOUR)
        assert files(folder) == 1
    shutil.copytree(source, target, dirs_exist_ok=True)
    assert files(target) == 2
    assert sorted(lines(target)) == wanted
    assert len(list(EventLog(target).events())) == len(wanted) == 5
    write(target, NOW - DAY, "later")
    compact(target, 90, FOREVER, NOW + 4 * HOUR)
    compact(target, 90, FOREVER, NOW + 6 * HOUR)
    assert files(target) == 1
    assert len(lines(target)) == len(set(lines(target))) == 6


def test_erased_people_leave_the_merged_segment_and_its_parts(tmp_path: Path) -> None:
    for i, user in enumerate(["ann", "bob", "ann"]):
        write(tmp_path, NOW - DAY + i, f"e{i}", user)
    compact(tmp_path, 90, FOREVER, NOW)
    erase(tmp_path, ["ann"], NOW)
    assert compact(tmp_path, 90, FOREVER, NOW + 60).erased == 2
    left = [line for path in tmp_path.glob(f"*{SEALED}") for line in read_lines(path)]
    assert not any(b"ann" in line for line in left)
    assert len(lines(tmp_path)) == 1
    compact(tmp_path, 90, FOREVER, NOW + 2 * HOUR)
    assert len(lines(tmp_path)) == files(tmp_path) == 1


def test_nothing_leaves_before_its_time(tmp_path: Path) -> None:
    write(tmp_path, NOW - DAY, "early")
    write(tmp_path, NOW - DAY + 10 * HOUR, "late")
    compact(tmp_path, 90, FOREVER, NOW)
    compact(tmp_path, 90, FOREVER, NOW + 89.1 * DAY)  # "early" is 90.1 days old, "late" is not
    assert len(lines(tmp_path)) == 2
    assert compact(tmp_path, 90, FOREVER, NOW + 90 * DAY).expired == 1
    assert lines(tmp_path) == []


def test_a_damaged_segment_is_named_and_kept(tmp_path: Path) -> None:
    path = write(tmp_path, NOW - DAY, "a")
    write(tmp_path, NOW - DAY, "b")
    path.write_bytes(path.read_bytes().replace(b"\0", b"\1", 1))
    with pytest.raises(SegmentError, match=path.name):
        compact(tmp_path, 90, FOREVER, NOW)
    assert files(tmp_path) == 2


KILLED = """
from fullrank.events.compaction import compact
def work(folder):
    compact(folder, 90, 10**12, float({now}))
"""


@pytest.mark.sweep
def test_a_kill_at_any_step_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Killed while it merges, and while it removes what was merged, before each call that changes or opens a file."""
    for later in (0.0, 2 * HOUR):
        with killing(KILLED.format(now=NOW + later)) as program:
            assert any(ends_whole(program, step, later, tmp_path) for step in range(200))


def ends_whole(program: Killing, step: int, later: float, root: Path) -> bool:
    """Kill the program before a step and check the log; return whether the program ended before that."""
    folder = root / f"{later}-{step}"
    for i in range(3):
        write(folder, NOW - DAY + i, f"e{i}")
        write(folder, NOW - 2 * DAY + i, f"f{i}")
    wanted = lines(folder)
    if later:
        compact(folder, 90, FOREVER, NOW)
    ended = not program.killed_before(step, folder)
    assert lines(folder) == wanted
    for path in folder.glob(".*.tmp"):  # one of an earlier hour
        os.utime(path, (0, 0))
    for hours in (2, 4, 6):
        compact(folder, 90, FOREVER, NOW + hours * HOUR)
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
    now, written = NOW, 0

    def add(day: int) -> None:
        nonlocal written
        write(folder, now - day * DAY, f"e{written}")
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
            now += DAY if turn == "day" else 1.5 * HOUR
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

    write(tmp_path, NOW - DAY, "first")
    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(40):
        for i in range(3):
            write(tmp_path, NOW - DAY + turn + i, f"{turn}-{i}")
        counted = 3 * turn + 1
        compact(tmp_path, 90, FOREVER, NOW)
    stop.set()
    reader.join()
    assert errors == []
