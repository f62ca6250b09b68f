"""Kill a program before each of its steps on files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

_COUNTING = """
import os, sys
from pathlib import Path
left = int(sys.argv[2])

def counting(function):
    def call(*args, **more):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), 9)
        return function(*args, **more)
    return call

def count():
    for name in ("replace", "unlink", "rename", "open", "mkdir"):
        setattr(Path, name, counting(getattr(Path, name)))
    os.fsync = counting(os.fsync)
"""


def killed_before(step: int, program: str, folder: Path) -> bool:
    """Run a program that is killed before its step-th call that changes or opens a file; return whether it was.

    Args:
        step: From 0.
        program: Python; it imports what it needs, calls `count()` and then works on `Path(sys.argv[1])`.
        folder: To work on.
    """
    done = subprocess.run(
        [sys.executable, "-c", _COUNTING + program, folder, str(step)],
        check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL)
    return done.returncode != 0
