"""Checkpoints are complete or absent, and belong to one run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest

from fullrank.errors import TrainingError
from fullrank.measures import estimates
from fullrank_trainer.training.checkpoint import Checkpoint, load, save, training_folder
from fullrank_trainer.training.fitted import ResultRow

FACTS = {"identity": "me", "epoch": 3, "best_map": 0.25, "history": [{"loss": 1.5}], "none": None}


def example() -> Checkpoint:
    """A checkpoint with every dtype of a fit, and an empty array."""
    arrays = {
        "now.U": np.arange(12, dtype=np.float32).reshape(3, 4),
        "state.scale": np.array([1e-300, np.pi]),
        "now.V": np.zeros((0, 0), np.float32),
    }
    return Checkpoint(FACTS, arrays)


def test_a_checkpoint_round_trips(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "0.npz"
    save(path, example())
    found = load(path, identity="me")
    assert found is not None
    assert found.facts == FACTS
    assert found.arrays.keys() == example().arrays.keys()
    for name, array in example().arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)
        assert found.arrays[name].dtype == array.dtype
    assert [item.name for item in path.parent.iterdir()] == ["0.npz"]


def test_loading_a_missing_checkpoint_returns_none(tmp_path: Path) -> None:
    assert load(tmp_path / "0.npz", identity="me") is None


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "0.npz", example())
    with pytest.raises(TrainingError, match="another recipe, seed or collection; train without"):
        load(tmp_path / "0.npz", identity="you")
    assert load(tmp_path / "0.npz", identity="you", is_needed=False) is None


def test_a_failed_save_keeps_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "0.npz"
    save(path, example())

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        save(path, Checkpoint({"identity": "new"}, {}))
    assert load(path, identity="me") is not None


def damaged(whole: bytes) -> list[bytes]:
    """Return damaged versions of a file."""
    middle = len(whole) // 2
    flipped = bytearray(whole)
    flipped[whole.index(b"NUMPY") + 200] ^= 0xFF
    return [
        b"",
        b"PK",
        whole[:middle],
        whole[:-10],
        bytes(flipped),
        b"not a zip file at all",
        b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }".ljust(
            127
        )
        + b"\n",
    ]


@pytest.mark.parametrize("kind", range(7))
def test_a_damaged_checkpoint_is_named(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "0.npz"
    save(path, example())
    path.write_bytes(damaged(path.read_bytes())[kind])
    with pytest.raises(TrainingError, match=r"checkpoint .*0\.npz cannot be read"):
        load(path, identity="me")


@pytest.mark.parametrize("facts", [b"[1]", b"{", b"\xff", b""])
def test_unreadable_facts_are_refused(tmp_path: Path, facts: bytes) -> None:
    path = tmp_path / "0.npz"
    with path.open("wb") as file:
        np.savez(file, facts=np.frombuffer(facts, np.uint8))
    with pytest.raises(TrainingError, match=r"0\.npz cannot be read"):
        load(path, identity="me")
    with path.open("wb") as file:
        np.savez(file, other=np.zeros(3))
    with pytest.raises(TrainingError, match=r"0\.npz cannot be read"):
        load(path, identity="me")


HOLD = """
import sys
from pathlib import Path
from fullrank_trainer.training.checkpoint import training_folder
with training_folder(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_second_training_is_refused_until_the_first_one_ends_however_it_ends(
    tmp_path: Path,
) -> None:
    folder = tmp_path / ".training" / "shop"
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with (
            pytest.raises(TrainingError, match="another training of shop runs"),
            training_folder(folder),
        ):
            pass
        assert folder.is_dir()
        with training_folder(folder.with_name("other")):
            pass
        other.kill()
        other.wait()
        with training_folder(folder):
            (folder / "0.npz").write_bytes(b"x")
    assert (folder / "0.npz").is_file()


def test_an_empty_folder_is_removed_and_errors_pass(tmp_path: Path) -> None:
    folder = tmp_path / ".training" / "shop"
    with pytest.raises(FileNotFoundError), training_folder(folder):
        raise FileNotFoundError
    assert not list(tmp_path.iterdir())


def test_one_query_has_no_standard_error() -> None:
    row = ResultRow("auto", "valid", 1, estimates({"map": np.array([0.5])})).as_dict()
    assert row["map"] == 0.5
    assert row["map_se"] is None
    assert orjson.loads(orjson.dumps(row)) == row
