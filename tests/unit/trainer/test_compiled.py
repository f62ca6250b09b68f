"""Test that kept machine code of training is that of the sources."""

from __future__ import annotations

from pathlib import Path

from fullrank.kernels import arrays as prefetch
from fullrank_trainer.compiled import HELPERS
from fullrank_trainer.systems.linear import kernels
from tests.compiling import outputs

_HELPER = """
from numba import njit

@njit
def change(number):
    return number + {amount}
"""
_LOOP = """
from pathlib import Path
from fullrank_trainer import compiled

compiled.HELPERS = (Path("helpers.py"),)
from helpers import change

@compiled.compiled()
def changed(number):
    return change(number)

print(changed(1), sum(changed.stats.cache_hits.values()))
"""


def test_a_loop_is_compiled_again_when_a_helper_of_another_module_changes(tmp_path: Path) -> None:
    found = outputs(tmp_path, _LOOP, _HELPER, [1, 1, 5])
    assert found == [["2", "0"], ["2", "1"], ["6", "0"]]


def test_the_modules_of_helpers_are_known() -> None:
    for module in (kernels, prefetch):
        path = Path(str(module.__file__))
        assert path in HELPERS or path.parent in HELPERS
