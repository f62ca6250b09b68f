"""What a fresh clone relies on: pinned requirements without addresses, and a Makefile that explains itself."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))
COMMANDS = ("install", "demo", "test", "test-slow", "check", "bench", "serve", "clean")

PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)( ; [^\\]+)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


def pins(file: Path) -> dict[str, str]:
    found = {}
    for line in file.read_text("utf-8").splitlines():
        if match := PIN.match(line):
            found[match[1]] = match[2]
    return found


@pytest.mark.parametrize("file", REQUIREMENTS, ids=lambda file: file.name)
def test_every_line_is_a_hashed_pin_and_names_no_address(file: Path) -> None:
    for line in file.read_text("utf-8").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            assert PIN.match(line) or HASH.match(line), line
        assert "://" not in line
        assert not re.search(r"--(index|extra|find|trusted)|(^|\s)/|\bfile:/", line), line
    assert pins(file)


def test_the_files_agree_on_every_version() -> None:
    assert [file.name for file in REQUIREMENTS] == [
        "build.txt",
        "dev.txt",
        "service.txt",
        "trainer.txt",
    ]
    everything = pins(ROOT / "requirements" / "dev.txt")
    for file in REQUIREMENTS:
        assert pins(file).items() <= everything.items()


def test_the_serving_image_carries_no_numba_and_the_training_image_no_web_server() -> None:
    assert "numba" not in pins(ROOT / "requirements" / "service.txt")
    assert not {"fastapi", "uvicorn", "redis"} & set(pins(ROOT / "requirements" / "trainer.txt"))


@pytest.mark.skipif(shutil.which("make") is None, reason="no make on PATH")
def test_make_help_explains_every_command() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    explained = dict(re.findall(r"^  make (\S+) +(\S.*)$", done.stdout, re.MULTILINE))
    for command in COMMANDS:
        assert explained.get(command), f"make help does not explain {command}"
