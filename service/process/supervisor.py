"""Keeps so many worker processes running: starts them, starts another at once where one has died, ends them when told.

Each worker holds one end of a pair of sockets. Its death closes that end however it dies, so it is seen at once; so is
ours, and then the workers end by themselves. A worker writes a byte when it is started and one a second from its event
loop: only one whose loop stood still for a minute is killed, never one that is merely busy.

Workers that cannot start are tried again, ever more slowly, as long as any has started before: what keeps one from
starting (memory, say) is no reason to end those that serve. Where none ever started the service ends with code 3.
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

NOT_STARTED = 3
HUNG_S = 60.0
_TICK_S = 1.0
# Between tries of a worker that died before it was started.
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0
_log = getLogger(__name__)

Start = Callable[[int], "subprocess.Popen[bytes]"]
"""Starts a worker that inherits the given descriptor, its end of the pair."""


class _Worker:
    """One place for a worker, and the process that has it now."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.socket: socket.socket | None = None
        self.started = False
        self.heard = 0.0
        self.failures = 0  # in a row, before it was started
        self.start_at = 0.0


class Supervisor:
    """hung_s: a started worker that says nothing for so long is killed. grace_s: a worker told to end gets so long."""

    def __init__(
        self, start: Start, workers: int, *, grace_s: float = 15.0, hung_s: float = HUNG_S
    ) -> None:
        self._start = start
        self._workers = [_Worker() for _ in range(workers)]
        self._grace_s = grace_s
        self._hung_s = hung_s
        self._selector = selectors.DefaultSelector()
        self._told = 0
        self._any_started = False
        self._ticked = time.monotonic()

    def run(self) -> int:
        """Until SIGTERM or SIGINT, again SIGINT to end at once; the exit code."""
        here, there = os.pipe()
        os.set_blocking(there, False)
        self._selector.register(here, selectors.EVENT_READ)
        former = {
            number: signal.signal(number, self._signal)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        wakeup = signal.set_wakeup_fd(there, warn_on_full_buffer=False)
        try:
            while not self._told:
                if not self._round(here):
                    return NOT_STARTED
            return 0
        finally:
            self._end()
            signal.set_wakeup_fd(wakeup)
            for number, handler in former.items():
                signal.signal(number, handler)
            self._selector.close()
            os.close(here)
            os.close(there)

    def _signal(self, number: int, frame: FrameType | None) -> None:
        self._told += 1

    def _round(self, wakeup: int) -> bool:
        """Start what is missing, wait for news; False when the service cannot start at all."""
        now = time.monotonic()
        for worker in self._workers:
            if worker.process is None and now >= worker.start_at:
                self._begin(worker)
        waits = [w.start_at - now for w in self._workers if w.process is None]
        for key, _ in self._selector.select(max(0.0, min([_TICK_S, *waits]))):
            if key.fd == wakeup:
                os.read(wakeup, 4096)
            elif not self._listen(key.data):
                return False
        self._kill_hung()
        return True

    def _begin(self, worker: _Worker) -> None:
        ours, theirs = socket.socketpair()
        try:
            worker.process = self._start(theirs.fileno())
        except OSError as error:
            # Out of processes or memory: those that run go on.
            _log.error("a worker could not be started: %s", error)
            ours.close()
            self._again(worker)
            return
        finally:
            theirs.close()
        ours.setblocking(False)
        worker.socket, worker.started = ours, False
        self._selector.register(ours, selectors.EVENT_READ, worker)

    def _listen(self, worker: _Worker) -> bool:
        """News of a worker; False when it ended and none has ever started."""
        assert worker.socket is not None
        try:
            said = worker.socket.recv(4096)
        except BlockingIOError:
            return True
        except OSError:
            said = b""
        if said:
            if not worker.started:
                worker.started, worker.failures, self._any_started = True, 0, True
            worker.heard = time.monotonic()
            return True
        code = self._reap(worker)
        if self._told:
            return True
        if not self._any_started:
            _log.error("a worker ended with %s before any was started", code)
            return False
        if worker.started:
            _log.warning("a worker died (%s); another is started", code)
        else:
            self._again(worker)
            _log.error("a worker ended (%s) before it was started; tried again", code)
        return True

    def _again(self, worker: _Worker) -> None:
        wait = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**worker.failures)
        worker.failures += 1
        worker.start_at = time.monotonic() + wait

    def _reap(self, worker: _Worker) -> int:
        """The worker has closed its end: it is dead, or as good as dead."""
        assert worker.process is not None
        assert worker.socket is not None
        self._selector.unregister(worker.socket)
        worker.socket.close()
        try:
            code = worker.process.wait(1)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            code = worker.process.wait()
        worker.process = worker.socket = None
        return code

    def _kill_hung(self) -> None:
        now = time.monotonic()
        if now - self._ticked > 5 * _TICK_S:
            # We stood still ourselves, and perhaps everybody did.
            for worker in self._workers:
                worker.heard = now
        self._ticked = now
        for worker in self._workers:
            if worker.process is not None and worker.started and now - worker.heard > self._hung_s:
                _log.error("process %d hangs and is killed", worker.process.pid)
                worker.process.kill()  # its end closes, and the next round sees it

    def _end(self) -> None:
        """Tell all, wait for all; who takes too long is killed, and so is everyone when told a second time."""
        told = self._told
        running = [worker.process for worker in self._workers if worker.process is not None]
        for process in running:
            with suppress(OSError):
                process.terminate()
        end = time.monotonic() + self._grace_s
        while any(process.poll() is None for process in running):
            if time.monotonic() > end or self._told > told:
                for process in running:
                    process.kill()
            time.sleep(0.02)
        for worker in self._workers:
            if worker.socket is not None:
                worker.socket.close()
