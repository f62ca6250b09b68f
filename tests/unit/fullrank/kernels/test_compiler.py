"""Test that kept machine code is that of the sources."""

from __future__ import annotations

from pathlib import Path

from tests.compiling import outputs

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
    cold, warm, changed = outputs(tmp_path, _KERNEL, _HELPER, [1, 1, 5])
    assert (cold[:2], warm, changed[:2]) == (["2", "0"], ["2", "1"], ["6", "0"])
    # People at a terminal learn why they wait.
    assert " ".join(cold[2:]) == "fullrank compiles its kernels, once; about a minute"
