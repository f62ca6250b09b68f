"""Segments survive what may happen to their writer."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fullrank.events.segments import (
    SegmentError,
    SegmentWriter,
    begun,
    list_segments,
    read_lines,
    recover,
)
from tests.conftest import REPOSITORY


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def lines_in(folder: Path, kind: str = "events") -> list[bytes]:
    return [line for path in list_segments(folder, kind) for line in read_lines(path)]


def test_lines_come_back_open_and_sealed(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "new", "events")
    writer.append([b'{"a":1}', b"{}"])
    writer.append([])
    writer.sync()
    assert lines_in(tmp_path / "new") == [b'{"a":1}', b"{}"]
    sealed = writer.seal()
    assert sealed is not None
    assert lines_in(tmp_path / "new") == [b'{"a":1}', b"{}"]
    assert gzip.decompress(sealed.read_bytes()) == b'{"a":1}\n{}\n'
    again = writer.seal()
    assert again is None
    writer.append([b"3"])
    writer.close()
    assert sorted(lines_in(tmp_path / "new")) == [b"3", b'{"a":1}', b"{}"]
    checked = subprocess.run(
        ["sha256sum", "--check", *(p.name for p in (tmp_path / "new").glob("*.sha256"))],
        cwd=tmp_path / "new",
        capture_output=True,
        check=True,
    )
    assert checked.stdout.count(b": OK") == 2


def test_a_segment_is_due_by_size_and_by_age(tmp_path: Path) -> None:
    clock = Clock()
    writer = SegmentWriter(tmp_path, "events", max_bytes=10, max_age_s=60, clock=clock)
    assert not writer.is_due()
    writer.append([b"12345"])
    assert not writer.is_due()
    clock.now += 60
    assert writer.is_due()
    writer.seal()
    writer.append([b"123456789"])
    assert writer.is_due()
    writer.close()
    assert [begun(path).timestamp() for path in list_segments(tmp_path, "events")] == [
        1_800_000_000,
        1_800_000_060,
    ]


def test_a_segment_that_is_sealed_while_the_folder_is_listed_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SegmentWriter(tmp_path, "events")
    writer.append([b"1"])
    plain = Path.glob

    def glob(path: Path, pattern: str) -> list[Path]:
        found = list(plain(path, pattern))
        writer.close()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Path, "glob", glob)
        listed = list_segments(tmp_path, "events")
    assert [line for path in listed for line in read_lines(path)] == [b"1"]


@pytest.mark.parametrize("torn", [b"", b"{", b'{"half": "' + b"x" * (3 << 20)])
def test_recovery_cuts_a_torn_line(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "events-20270115T080000Z-0123abcd.jsonl"
    path.write_bytes(b"1\n2\n" + torn)
    assert lines_in(tmp_path) == [b"1", b"2"]
    [sealed] = recover(tmp_path)
    assert list(read_lines(sealed)) == [b"1", b"2"]
    assert not path.exists()
    assert recover(tmp_path) == []


def test_recovery_leaves_a_segment_to_its_writer(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "events")
    writer.append([b"1"])
    assert recover(tmp_path) == []
    writer.append([b"2"])
    writer.close()
    assert lines_in(tmp_path) == [b"1", b"2"]


def test_sealing_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    """A crash after the compressed file appeared and before the open one went."""
    path = tmp_path / "events-20270115T080000Z-0123abcd.jsonl"
    path.write_bytes(b"1\n2\n")
    [sealed] = recover(tmp_path)
    first = sealed.read_bytes()
    path.write_bytes(b"1\n2\n")
    assert lines_in(tmp_path) == [b"1", b"2"]
    assert recover(tmp_path) == [sealed]
    assert sealed.read_bytes() == first
    assert list(tmp_path.glob("*.tmp")) == []


def test_a_damaged_segment_is_refused(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "events")
    writer.append([b"1"])
    sealed = writer.seal()
    assert sealed is not None
    content = bytearray(sealed.read_bytes())
    content[-1] ^= 1
    sealed.write_bytes(content)
    with pytest.raises(SegmentError, match="damaged"):
        list(read_lines(sealed))
    sealed.with_name(f"{sealed.name}.sha256").unlink()
    with pytest.raises(SegmentError, match="checksum is missing"):
        list(read_lines(sealed))


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SegmentWriter(tmp_path, "events")
    writer.append([b"1"])
    real, calls = os.write, 0

    def full(file: int, content: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError(28, "No space left on device")
        return real(file, content[:3])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            writer.append([b"234567"])
    writer.append([b"8"])
    writer.close()
    assert lines_in(tmp_path) == [b"1", b"8"]


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_a_segment_whose_file_is_lost_is_begun_again(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "log"
    writer = SegmentWriter(folder, "events")
    writer.append([b"1"])
    [path] = list_segments(folder, "events")
    folder.rename(tmp_path / "old")
    if how == "removed":
        shutil.rmtree(tmp_path / "old")
    if how == "replaced":
        folder.mkdir()
        path.write_bytes(b"x\n")
    with pytest.raises(FileNotFoundError):
        writer.sync()
    writer.append([b"2"])
    writer.sync()
    assert b"2" in lines_in(folder)
    writer.close()
    assert sorted(lines_in(folder)) == ([b"2", b"x"] if how == "replaced" else [b"2"])
    if how == "moved":
        assert lines_in(tmp_path / "old") == [b"1"]


def test_sealing_a_lost_segment_ends_it(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "log", "events")
    writer.append([b"1"])
    shutil.rmtree(tmp_path / "log")
    assert writer.seal() is None


def test_a_clock_that_was_set_back_does_not_keep_a_segment_open(tmp_path: Path) -> None:
    clock = Clock()
    writer = SegmentWriter(tmp_path, "events", clock=clock)
    writer.append([b"1"])
    clock.now -= 86_400
    assert writer.is_due()
    writer.close()


_WRITES = """
import sys
from pathlib import Path
from fullrank.events.segments import SegmentWriter, recover
folder, number = Path(sys.argv[1]), int(sys.argv[2])
recover(folder)
writer = SegmentWriter(folder, "events", max_bytes=2000)
for i in range(10**6):
    writer.append([b"%d-%d-%s" % (number, i, b"x" * (i % 97))])
    writer.sync()
    print(number, i, flush=True)
    if writer.is_due():
        writer.seal()
"""


@pytest.mark.sweep
def test_no_acknowledged_line_is_lost_when_writers_are_killed(tmp_path: Path) -> None:
    """Each line that a writer reported after its sync is read again, once, whole."""
    acknowledged: set[bytes] = set()
    rng = random.Random(1)
    for number in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", _WRITES, str(tmp_path), str(number)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        read = [process.stdout.readline()]
        time.sleep(rng.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        read += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        assert read[0]
        for line in read:
            if line.endswith(b"\n"):
                one, i = line.split()
                acknowledged.add(b"%s-%s-%s" % (one, i, b"x" * (int(i) % 97)))
    recover(tmp_path)
    found = lines_in(tmp_path)
    assert len(found) == len(set(found))
    assert acknowledged <= set(found)
    assert all(path.name.endswith(".gz") for path in list_segments(tmp_path, "events"))
