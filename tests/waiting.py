"""Waits that have an end, and fail with what they waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LONG_S = 60.0
"""Far longer than what is waited for takes on a busy machine."""


def wait_until(
    condition: Callable[[], object], what: str, seconds: float = LONG_S, pause_s: float = 0.02
) -> None:
    """Wait until a condition holds; what: completes "waited until …"."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds:g} s until {what}"
        time.sleep(pause_s)


def join(*threads: threading.Thread, seconds: float = LONG_S) -> None:
    """Wait until all threads have ended."""
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
        assert not thread.is_alive(), f"waited {seconds:g} s for the thread {thread.name}"
