"""One training at a time in a folder, also across processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fullrank.errors import TrainingError
from fullrank_trainer.training.checkpoint import training_folder

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
