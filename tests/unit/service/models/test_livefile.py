"""Files of live writers and of dead ones."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from fullrank_service.models.livefile import LiveFile, read_live, read_or_sweep
from fullrank_service.models.workers import FOLDER, reports


def test_the_file_of_a_live_writer_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert read_live(path) is None
    file = LiveFile(path)
    for content in (b"one", b"", b"three"):
        file.write(content)
        assert read_live(path) == read_or_sweep(path) == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]
    file.close()
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_the_file_of_a_dead_writer_is_void(tmp_path: Path) -> None:
    path = tmp_path / "x"
    code = f"""
import os, signal
from pathlib import Path
from fullrank_service.models.livefile import LiveFile
LiveFile(Path({str(path)!r})).write(b"content")
os.kill(os.getpid(), signal.SIGKILL)
"""
    died = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[4])
    assert died.returncode == -9
    assert path.read_bytes() == b"content"
    assert read_live(path) is None
    assert path.exists()
    assert read_or_sweep(path) is None
    assert not path.exists()


def test_a_failed_write_leaves_the_former_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = LiveFile(tmp_path / "x")
    file.write(b"old")

    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr("fullrank_service.models.livefile.os.write", full)
    with pytest.raises(OSError, match="No space"):
        file.write(b"new")
    assert read_live(tmp_path / "x") == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


def test_a_reader_never_mistakes_a_live_writer_for_a_dead_one(tmp_path: Path) -> None:
    """A writer replaces its file without pause: each read finds one complete content, and no reader removes it."""
    path = tmp_path / "x"
    file = LiveFile(path)
    file.write(b"0" * 50)
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
            file.write(str(number % 10).encode() * 50)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2000):
            content = read_or_sweep(path)
            assert content is not None
            assert len(content) == 50
            assert len(set(content)) == 1
    finally:
        done.set()
        writer.join()
        file.close()


def test_temporary_files_that_no_writer_has_renamed_are_removed(tmp_path: Path) -> None:
    """Also one from before the clock was set back."""
    folder = tmp_path / FOLDER
    folder.mkdir()
    for name, age_s in (("now", 0), ("old", 3600), ("ahead", -3600)):
        path = folder / f"{name}.tmp"
        path.touch()
        os.utime(path, (time.time() - age_s,) * 2)
    assert reports(tmp_path) == []
    assert [path.name for path in folder.iterdir()] == ["now.tmp"]
