"""Kill a program before each of its steps on files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select

from tests.waiting import LONG_S

_COUNTING = """
import os, sys
from pathlib import Path
left = 0

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


_SERVING = """
for line in sys.stdin:
    place, step = line.rstrip().split("\\t")
    sys.stdout.flush()
    child = os.fork()
    if not child:
        folder, left = Path(place), int(step)
        count()
        work(folder)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Killing:
    """Runs a program that is killed before its step-th call that changes or opens a file.

    One process imports what the program needs and forks for each step, because the imports take longer than the steps.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def killed_before(self, step: int, folder: Path) -> bool:
        """Run the program; return whether it was killed.

        Args:
            step: From 0.
            folder: To work on.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{folder}\t{step}\n")
        self._process.stdin.flush()
        assert select([self._process.stdout], [], [], LONG_S)[0], f"step {step} takes {LONG_S:g} s"
        code = int(self._process.stdout.readline())
        assert code in (0, -signal.SIGKILL)
        return code != 0


@contextmanager
def killing(program: str) -> Iterator[Killing]:
    """Start a program.

    Args:
        program: Python; it imports what it needs and defines `work(folder)`.
    """
    with subprocess.Popen(
        [sys.executable, "-c", _COUNTING + program + _SERVING],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:  # fmt: skip
        yield Killing(process)
    assert process.returncode == 0
