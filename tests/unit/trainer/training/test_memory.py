"""Arrays in files: equal to those in memory, out of the process after a release, gone with their last reference."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fullrank.errors import TrainingError
from fullrank.storage.encoding import Encoded, Rows
from fullrank_trainer.plan import resident_bytes
from fullrank_trainer.training.memory import ArrayFiles

LARGE = np.arange(1 << 22, dtype=np.float32).reshape(1 << 11, 1 << 11)


def test_an_array_in_a_file_is_equal_and_keeps_what_is_written_to_it(tmp_path: Path) -> None:
    files = ArrayFiles(tmp_path / "new")
    found = files.put(LARGE)
    assert found is not LARGE
    np.testing.assert_array_equal(found, LARGE)
    found[7, 9] = -1
    files.release()
    assert found[7, 9] == -1
    assert found.dtype == np.float32
    assert found.flags.writeable
    assert found.flags.c_contiguous
    assert not list((tmp_path / "new").iterdir()), "the file has a name"


def test_an_array_in_a_file_or_a_small_one_is_not_copied() -> None:
    files = ArrayFiles()
    found = files.put(LARGE)
    part, small = found[1:], np.arange(5)
    assert files.put(found) is found
    assert files.put(part) is part
    assert files.put(small) is small
    assert not files.zeros((3, 4)).any()
    assert not files.zeros((1000, 1000)).any()


def test_a_file_ends_with_its_last_array() -> None:
    files = ArrayFiles()
    gc.collect()  # of what other tests left
    open_files = len(os.listdir("/proc/self/fd"))
    found = files.put(LARGE)
    view = found[5:]
    del found
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == open_files + 1
    np.testing.assert_array_equal(view, LARGE[5:])
    del view
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == open_files


def test_rows_and_encoded_texts_keep_their_values() -> None:
    files = ArrayFiles()
    rng = np.random.default_rng(1)
    indptr = np.arange(0, 1 << 20, 8)
    indices = np.tile(np.arange(8, dtype=np.int32), len(indptr) - 1)
    rows = Rows(indptr, indices, rng.random(len(indices), np.float32), 8)
    dense, bias = rng.random((len(rows), 4), np.float32), rng.random(len(rows), np.float32)
    found = files.put_encoded(Encoded(dense, rows, bias))
    for name, array in Encoded(dense, rows, bias).arrays().items():
        np.testing.assert_array_equal(found.arrays()[name], array)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingError, match="file"):
        ArrayFiles(tmp_path / "file").put(LARGE)


def test_progress_is_reported_and_releases() -> None:
    files = ArrayFiles()
    found = files.put(LARGE)
    total = found.sum()
    before = resident_bytes()
    calls: list[tuple[str, int, int]] = []
    files.releasing(lambda *call: calls.append(call))("model", 1, 2)
    assert calls == [("model", 1, 2)]
    assert resident_bytes() <= before - found.nbytes // 2
    assert found.sum() == total


@pytest.mark.parametrize("entries", [0, 3, 1 << 17])
def test_stacked_blocks_are_the_rows_below_each_other(entries: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    files, blocks = ArrayFiles(tmp_path), []
    for rows in (3, 1, 5):
        indptr = np.linspace(0, entries, rows + 1).astype(np.int64)
        indices = rng.integers(0, 9, entries).astype(np.int32)
        blocks.append(Rows(indptr, indices, rng.random(entries, np.float32), 9))
    for parts in (blocks, blocks[:1]):
        found, wanted = files.stack(iter(parts)), Rows.vstack(parts)
        for mine, other in zip(found.arrays, wanted.arrays, strict=True):
            np.testing.assert_array_equal(mine, other)
        assert found.indices.dtype == np.dtype(np.int32)
        assert found.values.dtype == np.dtype(np.float32)
        files.release()
        np.testing.assert_array_equal(found.values, wanted.values)
    assert not list(tmp_path.iterdir()), "a file has a name"


def test_a_stack_names_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    block = Rows(np.array([0, 1]), np.zeros(1, np.int32), np.ones(1, np.float32), 1)
    with pytest.raises(TrainingError, match="file"):
        ArrayFiles(tmp_path / "file").stack([block, block])


@pytest.mark.sweep
def test_a_freed_block_of_several_megabytes_leaves_the_process() -> None:
    script = f"""
import numpy as np
from fullrank_trainer.training.memory import map_large_blocks

def resident() -> int:
    return int(open("/proc/self/statm").read().split()[1]) * {os.sysconf("SC_PAGE_SIZE")}

def kept() -> int:
    # The C library raises its own limit to the largest block that was freed.
    np.ones(24 << 20, np.int8)
    before = resident()
    large, small = [], []
    for _ in range(16):
        large.append(np.ones(6 << 20, np.int8))
        small.append(np.ones(100_000, np.int8))
    large.clear()
    return resident() - before

first = kept()
map_large_blocks()
print(first, kept())
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    before, after = map(int, found.stdout.split())
    assert before > 48 << 20
    assert after < 8 << 20
