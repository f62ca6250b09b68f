"""Keep one or more worker processes running: start them, replace those that die, and end them on a signal.

A socket pair connects the supervisor and each worker. When either side dies, however it dies, the other sees its end
close: a dead worker is replaced at once, and workers whose supervisor died end by themselves. A worker sends a byte
when it has started and then one a second from its event loop. The supervisor kills a worker only when its loop has
not run for a minute, never one that is merely busy.

If a replacement cannot start, for example for lack of memory, the supervisor tries again with growing pauses and keeps
the other workers running. If no worker has ever started the service ends with code 3.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from logging import getLogger
from types import FrameType
from typing import Protocol

from fullrank.workers import describe_exit
from fullrank_service.telemetry.sharing import DIED, HUNG

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
    """One worker slot and its current process."""

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
        start: starts one worker.
        workers: how many to keep running.
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
