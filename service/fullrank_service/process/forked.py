"""A process forked from one that has imported the code that it needs: both share the memory of that code."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Collection
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

# Pause between two looks at a process that is about to end, seconds.
_LOOK_S = 0.005


def import_to_share(module: str) -> None:
    """Import a module for the processes that are forked afterwards, which then share its memory.

    An import runs no computation and so starts no pool of threads, which a fork would leave without its threads.
    Garbage is not searched for: a collection would leave holes in pages, and an object that a forked process puts into
    a hole copies the whole page. The garbage collector of a forked process does not visit, and so does not copy, what
    is frozen here.
    """
    gc.disable()
    try:
        import_module(module)
    finally:
        gc.freeze()
        gc.enable()


class Forked:
    """A forked process, with the methods of subprocess.Popen.

    As after an exec, the process has none of its parent's files but those listed, and signals that its parent handles
    do what they do by default.

    Args:
        work: What the process runs. It ends with code 0 when this returns, with that of SystemExit, or with 1 on
            another exception, which it prints.
        kept: Descriptors that stay open besides standard output and error.

    Raises:
        OSError: The system has no process or memory left.
    """

    def __init__(self, work: Callable[[], object], kept: Collection[int]) -> None:
        self.returncode: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        # A signal that reached the child before it has dropped the parent's handlers would be lost.
        allowed = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _run(work, kept, allowed)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, allowed)

    def poll(self) -> int | None:
        """Return the exit code, -n after signal n; None while the process runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code. Raises subprocess.TimeoutExpired."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if timeout is not None and end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(_LOOK_S)
        return code

    def terminate(self) -> None:
        """Ask the process to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        # Once its end is known, the id may be that of another process.
        if self.poll() is None:
            os.kill(self.pid, number)


def _run(work: Callable[[], object], kept: Collection[int], allowed: Collection[int]) -> NoReturn:
    """Run the work in the child and end the process."""
    code = 1
    try:
        _leave_parent(kept)
        signal.pthread_sigmask(signal.SIG_SETMASK, allowed)
        work()
        code = 0
    except SystemExit as ending:
        if ending.code is None or isinstance(ending.code, int):
            code = ending.code or 0
        else:
            print(ending.code, file=sys.stderr)  # noqa: T201
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        # The caller's frames are those of the parent: nothing of them may run here.
        os._exit(code)


def _leave_parent(kept: Collection[int]) -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    for descriptor in map(int, os.listdir("/dev/fd")):
        if descriptor not in (1, 2, *kept):
            with suppress(OSError):  # the list itself was one of them
                os.close(descriptor)
    os.open(os.devnull, os.O_RDONLY)  # gets the lowest number, that of standard input
