"""Keep one or more worker processes running: start them, replace those that die, and end them on a signal.

A socket pair connects the supervisor and each worker. When either side dies, however it dies, the other sees its end
close: a dead worker is replaced at once, and workers whose supervisor died end by themselves. A worker sends a byte
when it has started and then one a second from its event loop.

Three promises keep the managers of uvicorn and gunicorn out: workers share the memory of the imported code (uvicorn
spawns); one that is busy for less than a minute is never killed (uvicorn waits 5 s); and if a replacement cannot start,
for example for lack of memory, the others serve on while it is tried again with growing pauses (gunicorn ends, uvicorn
tries without a pause). If no worker has ever started the service ends with code 3.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Collection
from contextlib import suppress
from importlib import import_module
from logging import getLogger
from types import FrameType
from typing import NoReturn, Protocol

from fullrank.errors import describe_exit
from fullrank_service.base.sharing import DIED, HUNG

# Pause between two looks at a process that is about to end, seconds.
_LOOK_S = 0.005


def import_to_share(module: str) -> None:
    """Import a module for the processes that are forked afterwards, which then share its memory.

    An import starts no pool of threads, which a fork would leave without its threads. Garbage is not searched for:
    objects that a forked process puts into the holes of a collection, or visits in one, copy whole pages.
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
    do what they do by default. It ends with code 0 when `work` returns, with that of SystemExit, or with 1 on another
    exception, which it prints.

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


NOT_STARTED = 3
HUNG_S = 60.0
_TICK_S = 1.0
# Pauses between attempts to start a worker.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_log = getLogger(__name__)


class Process(Protocol):
    """What the supervisor needs of a process: methods of subprocess.Popen."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


Start = Callable[[int, int], Process]
"""Starts a worker, given the descriptor of its end of the socket pair, which it inherits, and its number."""


class _Worker:
    def __init__(self, number: int) -> None:
        self.number = number
        self.process: Process | None = None
        self.socket: socket.socket | None = None
        self.has_started = False
        self.last_beat = 0.0
        self.was_hung = False
        self.failures = 0  # attempts in a row that ended before the worker had started
        self.start_at = 0.0


class Supervisor:
    """Runs worker processes.

    Args:
        ended: called with the number of a worker that ended, and with DIED or HUNG, before another takes its place.
        stopping: called before workers are told to end: closes what the workers alone should have open.
        grace_s: how long workers may take to end after the signal.
        hung_s: a started worker that sends nothing for this long is killed.
    """

    def __init__(
        self,
        start: Start,
        workers: int,
        *,
        ended: Callable[[int, str], None] = lambda number, reason: None,
        stopping: Callable[[], None] = lambda: None,
        grace_s: float = 15.0,
        hung_s: float = HUNG_S,
    ) -> None:
        self._start = start
        self._ended, self._stopping = ended, stopping
        self._workers = [_Worker(number) for number in range(workers)]
        self._grace_s = grace_s
        self._hung_s = hung_s
        self._selector = selectors.DefaultSelector()
        self._stop_signals = 0
        self._any_started = False
        self._last_tick = time.monotonic()

    def run(self) -> int:
        """Run until SIGTERM, SIGINT or SIGHUP; a second one kills the workers. Return the exit code."""
        here, there = os.pipe()
        os.set_blocking(there, False)
        self._selector.register(here, selectors.EVENT_READ)
        former = {
            number: signal.signal(number, self._on_signal)
            for number in _STOP_SIGNALS
            # nohup: the service outlives its terminal.
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        wakeup = signal.set_wakeup_fd(there, warn_on_full_buffer=False)
        try:
            while not self._stop_signals:
                if not self._step(here):
                    return NOT_STARTED
            return 0
        finally:
            self._end_all()
            signal.set_wakeup_fd(wakeup)
            for number, handler in former.items():
                signal.signal(number, handler)
            self._selector.close()
            os.close(here)
            os.close(there)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop_signals += 1

    def _step(self, wakeup: int) -> bool:
        """Start missing workers and wait for events; return False when the service cannot start at all."""
        now = time.monotonic()
        for worker in self._workers:
            if worker.process is None and now >= worker.start_at:
                self._start_worker(worker)
        pauses = [w.start_at - now for w in self._workers if w.process is None]
        for key, _ in self._selector.select(max(0.0, min([_TICK_S, *pauses]))):
            if key.fd == wakeup:
                os.read(wakeup, 4096)
            elif not self._receive(key.data):
                return False
        self._kill_hung()
        return True

    def _start_worker(self, worker: _Worker) -> None:
        ours, theirs = socket.socketpair()
        try:
            worker.process = self._start(theirs.fileno(), worker.number)
        except OSError as error:
            # The system has no process or memory left; the running workers continue.
            _log.error("worker %d cannot be started: %s", worker.number, error)
            ours.close()
            self._try_later(worker)
            return
        finally:
            theirs.close()
        ours.setblocking(False)
        worker.socket, worker.has_started, worker.was_hung = ours, False, False
        self._selector.register(ours, selectors.EVENT_READ, worker)

    def _receive(self, worker: _Worker) -> bool:
        """Read what a worker sent; return False when it ended and no worker has ever started."""
        assert worker.socket is not None
        try:
            received = worker.socket.recv(4096)
        except BlockingIOError:
            return True
        except OSError:
            received = b""
        if received:
            if not worker.has_started:
                worker.has_started, worker.failures, self._any_started = True, 0, True
            worker.last_beat = time.monotonic()
            return True
        ending = self._reap(worker)
        if self._stop_signals:
            return True
        if not self._any_started:
            _log.error("%s before any worker had started", ending)
            return False
        if worker.has_started:
            _log.warning("%s; starting another", ending)
        else:
            self._try_later(worker)
            _log.error("%s before it had started; trying again", ending)
        return True

    def _try_later(self, worker: _Worker) -> None:
        pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**worker.failures)
        worker.failures += 1
        worker.start_at = time.monotonic() + pause

    def _reap(self, worker: _Worker) -> str:
        """Collect a worker that closed its end, so is dead or about to be; return a description for the log."""
        assert worker.process is not None
        assert worker.socket is not None
        self._selector.unregister(worker.socket)
        worker.socket.close()
        try:
            code = worker.process.wait(1)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            code = worker.process.wait()
        ending = f"worker {worker.number} (pid {worker.process.pid}) {describe_exit(code)}"
        worker.process = worker.socket = None
        self._ended(worker.number, HUNG if worker.was_hung else DIED)
        return ending

    def _kill_hung(self) -> None:
        now = time.monotonic()
        if now - self._last_tick > 5 * _TICK_S:
            # The supervisor itself was suspended, and perhaps the whole machine, so missed heartbeats are ignored.
            for worker in self._workers:
                worker.last_beat = now
        self._last_tick = now
        for worker in self._workers:
            silent = worker.has_started and now - worker.last_beat > self._hung_s
            if worker.process is not None and silent:
                _log.error(
                    "worker %d (pid %d) hangs; killing it", worker.number, worker.process.pid
                )
                worker.was_hung = True
                worker.process.kill()  # Its end of the pair closes, and the next step replaces it.

    def _end_all(self) -> None:
        """Ask all workers to end and wait; kill them after grace_s, or at another signal."""
        signals = self._stop_signals
        self._stopping()
        running = [worker.process for worker in self._workers if worker.process is not None]
        for worker in self._workers:
            if worker.socket is not None:
                with suppress(OSError):
                    worker.socket.send(
                        b"."
                    )  # Unlike after a signal to one worker, none will accept connections.
        for process in running:
            with suppress(OSError):
                process.terminate()
        end = time.monotonic() + self._grace_s
        while any(process.poll() is None for process in running):
            if time.monotonic() > end or self._stop_signals > signals:
                for process in running:
                    process.kill()
            time.sleep(0.02)
        for worker in self._workers:
            if worker.socket is not None:
                worker.socket.close()
