"""The process: what help imports, exit codes, missing packages, and JSON where stdout is limited."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from fullrank.cli import output
from tests.unit.cli.running import Run


def test_help_imports_no_numerical_library_and_lists_every_command() -> None:
    code = (
        "import sys\n"
        "from fullrank.cli import main\n"
        "assert not {'fullrank_trainer', 'fullrank_service'} & set(sys.modules)\n"
        "sys.argv = ['fullrank', '--help']\n"
        "try:\n    main()\n"
        "except SystemExit as ended:\n    assert not ended.code\n"
        "heavy = {'numba', 'fastapi', 'pydantic', 'faiss', 'numpy', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *help_text, loaded = done.stdout.splitlines()
    assert loaded == "[]"
    listed = {line.split()[1] for line in help_text if re.match(r"│ \w", line)}
    assert {"search", "bundles", "train", "evaluate", "index", "recipes"} <= listed
    assert {"demo", "serve", "keys"} <= listed


def test_python_dash_m_fullrank_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fullrank", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"fullrank {version('fullrank')}\n"


@pytest.mark.parametrize(
    "arguments",
    [["search"], ["nonsense"], ["search", "x", "y", "--limit", "0"], ["train", "x"], ["bundles"]],
)
def test_wrong_usage_exits_with_2(run: Run, arguments: list[str]) -> None:
    got = run(*arguments)
    assert got.code == 2


def test_a_command_whose_package_is_missing_is_listed_and_says_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fullrank_trainer.commands.train", None)
    monkeypatch.setitem(sys.modules, "fullrank_service.commands.bundles", None)
    assert re.search(r"│ train .*needs the extra 'trainer'", run("--help").out)
    assert re.search(r"│ activate .*needs the extra 'service'", run("bundles", "--help").out)
    got = run("train", "collection", "--out", "x")
    assert (got.code, got.out) == (1, "")
    assert got.err.startswith(
        "fullrank: needs fullrank_trainer.commands.train; install it with: pip install"
    )
    assert run("bundles", "list", "nowhere").err == "fullrank: nowhere: no such folder\n"


def test_json_output_has_numbers_of_any_size_and_any_path(run: Run, root: Path) -> None:
    """What documents hold, and what folders are called, is not for this command to choose."""
    assert json.loads(output.as_json({"n": 2**70, "path": "\udcff"})) == {
        "n": 2**70,
        "path": "\udcff",
    }
    for seed in ("-1", str(2**63)):
        assert run("train", root, "--out", root, "--name", "x", "--seed", seed).code == 2
    assert run("index", root, root, "--out", root, "--batch", str(2**63)).code == 2


def show_json(root: Path, stdout: int, encoding: str = "utf-8") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fullrank", "bundles", "show", root / "mine", "--json"],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        check=False,
    )


def test_json_is_ascii_where_stdout_is(root: Path) -> None:
    done = show_json(root, subprocess.PIPE, "ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["card"]["author"] == "é"
    assert done.stdout.isascii()


def test_json_into_a_full_disk_is_one_line(root: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = show_json(root, full.fileno())
    assert (done.returncode, done.stderr) == (1, "fullrank: No space left on device\n")


def test_json_into_a_pipe_that_nobody_reads_ends_quietly(root: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = show_json(root, writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_json_into_a_closed_stdout_is_one_line(root: Path) -> None:
    command = shlex.join(
        [sys.executable, "-m", "fullrank", "bundles", "show", str(root / "mine"), "--json"]
    )
    done = subprocess.run(
        ["sh", "-c", f"{command} >&-"], stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "fullrank: stdout is closed; nothing can be printed\n"
