"""Kept machine code is that of the sources, in kernels and in loops of training."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from numba import njit

from fullrank.kernels import arrays as prefetch
from fullrank_trainer.compiled import HELPERS, clock
from fullrank_trainer.systems.linear import kernels

_HELPERS = """
from numba import njit
from fullrank.kernels.compiler import helper

@helper
def change(number):
    return number + {amount}

@njit
def plain(number):
    return number + {amount}
"""
# What is printed for people depends on a terminal, and machines without /dev/pts have none to open.
_PROGRAM = """
import sys
sys.stderr.isatty = lambda: True
from pathlib import Path
from fullrank.kernels.compiler import INT64, kernel
from fullrank.progress import Reporter
from fullrank_trainer import compiled

compiled.HELPERS = (Path("helpers.py"),)
from helpers import change, plain

@kernel(INT64, INT64)
def of_kernel(number):
    return change(number)

@compiled.compiled()
def of_loop(number):
    return plain(number)

with open("said.txt", "w") as said, compiled.announced(Reporter(said)):
    for found in (of_kernel, of_loop):
        print(found(1), sum(found.stats.cache_hits.values()))
"""


@pytest.mark.sweep
def test_code_is_compiled_again_when_a_helper_of_another_module_changes(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM)
    found = []
    for amount in (1, 1, 5):
        (tmp_path / "helpers.py").write_text(_HELPERS.format(amount=amount))
        # Python itself takes a module of the same size and second for unchanged, so it keeps no bytecode here.
        command = [sys.executable, "-B", "program.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        said = (tmp_path / "said.txt").read_text().splitlines()
        found.append((done.stdout.split(), " ".join(done.stderr.split()), said))
    cold, warm, changed = found
    # People at a terminal learn why they wait, and those who train.
    [training] = cold[2]
    assert training.startswith("compiling: the loops of training, once on this machine;")
    assert cold[:2] == (["2", "0"] * 2, "fullrank compiles its kernels, once; about a minute")
    assert warm == (["2", "1"] * 2, "", [])
    assert changed[0] == ["6", "0"] * 2


def test_the_modules_of_helpers_are_known() -> None:
    for module in (kernels, prefetch):
        path = Path(str(module.__file__))
        assert path in HELPERS or path.parent in HELPERS


def test_the_clock_of_training_stands_still_while_a_loop_is_compiled() -> None:
    inner = njit(lambda number: number + 1)
    outer = njit(lambda number: inner(number) * 2)
    began, wall = clock(), time.monotonic()
    assert outer(1) == 4
    assert clock() - began < (time.monotonic() - wall) / 2
    time.sleep(0.05)
    assert clock() - began >= 0.05
