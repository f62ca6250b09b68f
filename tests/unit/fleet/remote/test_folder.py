"""Objects of a folder appear whole: on a disk too, where a reader, a full disk or a power cut may come between."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import termios
import threading
import time
from array import array
from pathlib import Path

import pytest

from fullrank_fleet.remote import Folder, RemoteError

OLD, NEW = b"old", bytes(range(256)) * 2048
NAME = "documents/weights.npy"
_WRITE_FOR_EVER = """
import sys, time
from pathlib import Path
from fullrank_fleet.remote.folder import write_as_file
from fullrank_fleet.remote import Folder
root, name = Path(sys.argv[1]), Path(sys.argv[2])
with write_as_file(Folder(str(root / name.parent)), name.name) as path:
    path.write_bytes(b"a part")
    print("written", flush=True)
    time.sleep(60)
"""


def noted_syncs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return a list that gets the path of each file and folder that is synced from now on."""
    synced: list[Path] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    return synced


@pytest.fixture
def source(tmp_path: Path) -> Path:
    found = tmp_path / "source"
    found.write_bytes(NEW)
    return found


@pytest.fixture
def target(tmp_path: Path) -> Path:
    found = tmp_path / "sets"
    (found / NAME).parent.mkdir(parents=True)
    (found / NAME).write_bytes(OLD)
    return found


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def wait_until_read(pipe: int) -> None:
    deadline, waiting = time.monotonic() + 10, array("i", [1])
    while waiting[0]:
        assert time.monotonic() < deadline, "nobody reads the file"
        fcntl.ioctl(pipe, termios.FIONREAD, waiting)
        time.sleep(0.001)


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_an_uploaded_object_is_read_back(kind: str, source: Path, tmp_path: Path) -> None:
    root = f"memory://{tmp_path.name}" if kind == "memory" else str(tmp_path / "new" / "sets")
    folder = Folder(root)
    assert folder.read(NAME) is None
    folder.upload(source, NAME)
    assert folder.read(NAME) == NEW
    assert folder.size(NAME) == len(NEW)
    folder.download(NAME, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == NEW
    source.write_bytes(OLD)
    folder.upload(source, NAME)
    assert folder.read(NAME) == OLD
    assert list((folder / "documents").files()) == ["weights.npy"]


def test_a_reader_finds_the_old_object_until_the_new_one_is_whole(
    target: Path, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Opened for both, a pipe keeps nobody waiting, and has no end before it is closed.
    descriptor = os.open(pipe, os.O_RDWR)
    upload = threading.Thread(target=Folder(str(target)).upload, args=(pipe, NAME), daemon=True)
    upload.start()
    for part in (NEW[:20_000], NEW[20_000:40_000]):
        os.write(descriptor, part)
        wait_until_read(descriptor)
        assert Folder(str(target)).read(NAME) == OLD
    os.close(descriptor)
    upload.join(30)
    assert Folder(str(target)).read(NAME) == NEW[:40_000]
    assert files(target) == [NAME]


def test_an_object_is_synced_before_it_gets_its_name_and_its_folder_after(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bytes]] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        kind = "folder" if os.path.isdir(path) else "file"
        synced.append((kind, (target / NAME).read_bytes()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    Folder(str(target)).upload(source, NAME)
    assert synced == [("file", OLD), ("folder", NEW)]


def test_a_new_folder_is_synced_into_the_one_above_it(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = noted_syncs(monkeypatch)
    Folder(f"{tmp_path}/a/b").upload(source, NAME)
    folders = [path for path in synced if path.is_dir()]
    assert folders == [tmp_path / part for part in ("", "a", "a/b", "a/b/documents")]


def test_a_full_disk_leaves_the_old_object(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RemoteError, match=rf"{NAME}: No space left on device$"):
        Folder(str(target)).upload(source, NAME)
    assert Folder(str(target)).read(NAME) == OLD
    assert files(target) == [NAME]


def test_a_missing_file_is_reported_and_changes_nothing(tmp_path: Path, target: Path) -> None:
    with pytest.raises(RemoteError, match=rf"{NAME}: No such file or directory$"):
        Folder(str(target)).upload(tmp_path / "absent", NAME)
    assert Folder(str(target)).read(NAME) == OLD
    assert files(target) == [NAME]


@pytest.mark.sweep
def test_what_a_killed_writer_left_is_removed_and_nothing_else(target: Path, source: Path) -> None:
    folder = Folder(str(target))
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITE_FOR_EVER, str(target), NAME], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.wait(60)
    process.stdout.close()
    (target / ".keep").write_bytes(OLD)
    assert len(files(target)) == 3
    folder.remove_unfinished()
    assert files(target) == [".keep", NAME]
    assert folder.read(NAME) == OLD
    Folder(str(target / "absent")).remove_unfinished()
    Folder("memory://absent").remove_unfinished()
