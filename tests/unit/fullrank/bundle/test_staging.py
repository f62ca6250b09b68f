"""The folder writer: what grows, what is created, what is read back, and that nothing is left."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from fullrank.bundle.staging import StagingFolder
from fullrank.errors import BundleError
from fullrank.storage.strings import StringTable


def saved(array: np.ndarray, path: Path) -> bytes:
    """What numpy itself writes."""
    np.save(path, array)
    return path.read_bytes()


ARRAYS = [
    np.arange(12, dtype=np.float32).reshape(4, 3),
    np.zeros((0, 3), np.float32),
    np.zeros((4, 0), np.float32),
    np.arange(7),
    np.array([], np.int64),
    np.array([True, False]),
    np.arange(24, dtype=np.int8).reshape(2, 3, 4),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
def test_arrays_have_the_bytes_that_numpy_writes(array: np.ndarray, tmp_path: Path) -> None:
    """Written whole, row by row, or through a memory map."""
    expected = saved(array, tmp_path / "expected.npy")
    with StagingFolder(tmp_path / "name") as folder:
        folder.write_array("a/whole.npy", array)
        rows = folder.growing_array("a/rows.npy", array.dtype, array.shape[1:])
        for row in range(len(array)):
            rows.append(array[row : row + 1])
        rows.finish()
        mapped = folder.create_array("a/created.npy", array.shape, array.dtype)
        assert not mapped.any()
        mapped[:] = array
        folder.finish_arrays()
        assert sorted(folder.files) == ["a/created.npy", "a/rows.npy", "a/whole.npy"]
        for name, entry in folder.files.items():
            content = (folder.path / name).read_bytes()
            assert content == expected
            assert entry.sha256 == hashlib.sha256(expected).hexdigest()
            assert (entry.bytes, entry.dtype) == (len(expected), array.dtype.str)
            assert entry.shape == array.shape
            np.testing.assert_array_equal(folder.map_array(name), array)


@pytest.mark.sweep
@pytest.mark.parametrize("strings", [[], [""], ["a", "", "é", "日本" * 3000, "🙂"] * 2000])
def test_written_strings_equal_a_table_in_memory(strings: list[str], tmp_path: Path) -> None:
    expected = StringTable.of(strings)
    with StagingFolder(tmp_path / "name") as folder:
        folder.write_strings("s", ".txt", iter(strings))
        table = folder.growing_strings("t", ".txt")
        for string in strings[:10]:
            table.extend([string])
        table.extend(strings[10:])
        table.finish()
        for stem in ("s", "t"):
            np.testing.assert_array_equal(folder.map_bytes(f"{stem}.txt"), expected.blob)
            np.testing.assert_array_equal(folder.map_array(f"{stem}.offsets.npy"), expected.offsets)


def test_rows_of_another_shape_or_dtype_are_refused(tmp_path: Path) -> None:
    with StagingFolder(tmp_path / "name") as folder:
        rows = folder.growing_array("a.npy", np.float32, (3,))
        for wrong in (np.zeros((1, 3)), np.zeros((1, 2), np.float32), np.zeros(3, np.float32)):
            with pytest.raises(BundleError, match=r"a\.npy: rows of"):
                rows.append(wrong)
        with pytest.raises(BundleError, match="two parts of the model use this file name"):
            folder.create_array("A.npy", (1,), np.int8)
        for dtype in (object, "<U3", ">f4", np.complex64):
            with pytest.raises(BundleError, match="cannot be stored"):
                folder.create_array("b.npy", (1,), dtype)


def test_a_full_disk_is_an_error_where_the_array_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a signal when a page of its memory map is first written."""

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"), StagingFolder(tmp_path / "name") as folder:
        folder.create_array("a.npy", (5,), np.int8)
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_folder_that_fails_leaves_nothing(error: type[BaseException], tmp_path: Path) -> None:
    root = tmp_path / "root" / "name"

    def fill() -> None:
        with StagingFolder(root) as folder:
            folder.growing_array("documents/a.npy", np.int8).append(np.zeros(9, np.int8))
            folder.create_array("b.npy", (1000,), np.int64)[:] = 1
            assert folder.path.is_dir()
            raise error

    with pytest.raises(error):
        fill()
    assert not root.exists()


def test_a_folder_that_is_published_stays(tmp_path: Path) -> None:
    with StagingFolder(tmp_path / "name") as folder:
        folder.write_text("a.txt", "é")
        folder.publish(tmp_path / "name" / "final")
    assert [p.name for p in (tmp_path / "name").iterdir()] == ["final"]
    assert (tmp_path / "name" / "final" / "a.txt").read_text("utf-8") == "é"
