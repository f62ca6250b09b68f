"""How the threads of OpenMP and OpenBLAS wait; must be set before numpy and numba are imported."""

from __future__ import annotations

import os

SLEEPING = {
    "OMP_WAIT_POLICY": "passive",
    "OPENBLAS_THREAD_TIMEOUT": "4",  # 2⁴ cycles
}
"""Environment in which waiting threads sleep.

By default they spin, so the threads of one library take the cores from those of the other, and from other programs.
"""


def let_threads_sleep() -> None:
    """Let waiting threads sleep, unless the environment says otherwise."""
    for name, value in SLEEPING.items():
        os.environ.setdefault(name, value)
