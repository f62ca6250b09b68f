"""Freed memory goes back to the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Freed blocks below one that is in use stay with the process until the heap is trimmed.
PROGRAM = """
from pathlib import Path
from fullrank_service.base.background import trim_heap
import numpy as np

def anonymous() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) >> 10

blocks = [np.ones(12_500) for _ in range(1000)]  # 100 MB
last = np.ones(12_500)
del blocks
before = anonymous()
trim_heap()
print(before, anonymous())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has malloc_trim")
def test_a_trimmed_heap_is_small() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    before, after = map(int, done.stdout.split())
    assert before > 90
    assert after < before - 80
