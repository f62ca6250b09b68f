"""Test that kept machine code is that of the sources."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_HELPER = """
from fullrank.kernels.compiler import helper

@helper
def change(number):
    return number + {amount}
"""
_KERNEL = """
from fullrank.kernels.compiler import INT64, kernel
from helpers import change

@kernel(INT64, INT64)
def changed(number):
    return change(number)

print(changed(1), sum(changed.stats.cache_hits.values()))
"""


def test_a_kernel_is_compiled_again_when_a_helper_of_another_module_changes(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(_KERNEL)
    found = []
    # Python itself takes a module of the same size and second for unchanged, so it keeps no bytecode here.
    command = [sys.executable, "-B", "kernels.py"]
    for amount in (1, 1, 5):
        (tmp_path / "helpers.py").write_text(_HELPER.format(amount=amount))
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        found.append(done.stdout.split())
    assert found == [["2", "0"], ["2", "1"], ["6", "0"]]
