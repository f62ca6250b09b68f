"""Processes forked from one that has imported their code."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fullrank_service.process.supervisor import Forked, import_to_share

# Python 3.12 warns of threads, which the test runner has.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


@contextmanager
def forked(work: Callable[[socket.socket], object]) -> Iterator[tuple[Forked, socket.socket]]:
    """A child that works with its end of a socket pair; and the other end."""
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    process = Forked(lambda: work(theirs), [theirs.fileno()])
    theirs.close()
    with ours:
        try:
            yield process, ours
        finally:
            process.kill()
            process.wait(20)


def ending(work: Callable[[], object]) -> int:
    with forked(lambda _: work()) as (process, _):
        return process.wait(20)


def read_all(end: socket.socket) -> str:
    return b"".join(iter(lambda: end.recv(4096), b"")).decode()


def test_the_exit_code_is_that_of_a_program() -> None:
    assert ending(lambda: None) == 0
    assert ending(lambda: sys.exit(4)) == 4
    assert ending(lambda: sys.exit()) == 0
    assert ending(lambda: os.kill(os.getpid(), signal.SIGKILL)) == -signal.SIGKILL


def test_lines_of_both_are_printed_once_and_errors_are_printed() -> None:
    code = (
        "import sys\n"
        "from fullrank_service.process.supervisor import Forked\n"
        "print('parent')\n"
        "works = [lambda: print('child'), lambda: 1 // 0, lambda: sys.exit('a reason')]\n"
        "print([Forked(work, []).wait() for work in works])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["parent", "child", "[0, 1, 1]"]
    assert "ZeroDivisionError" in done.stderr
    assert done.stderr.endswith("\na reason\n")


def test_a_child_has_no_file_of_its_parent_but_those_listed() -> None:
    def work(pair: socket.socket) -> None:
        found = sorted(map(int, os.listdir("/dev/fd")))
        there = [number for number in found if os.path.exists(f"/dev/fd/{number}")]
        pair.send(repr((there, pair.fileno(), os.readlink("/dev/fd/0"))).encode())

    with forked(work) as (_, end):
        found, pair, stdin = eval(read_all(end))
    assert found == [0, 1, 2, pair]
    assert stdin == os.devnull


def test_a_child_does_on_a_signal_what_is_the_default_and_ignores_what_its_parent_ignores() -> None:
    def work(pair: socket.socket) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        pair.send(b".")
        time.sleep(60)

    seen: list[int] = []
    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, _: seen.append(number)),
        signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    }
    try:
        with forked(work) as (process, end):
            assert end.recv(1) == b"."
            assert process.poll() is None
            process.terminate()
            assert process.wait(20) == -signal.SIGTERM
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert seen == []


def test_a_signal_sent_at_the_fork_is_not_lost() -> None:
    """The parent's handler would swallow a signal that comes before the child has dropped it."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        for _ in range(30):
            with forked(lambda _: time.sleep(60)) as (process, _):
                process.terminate()
                assert process.wait(20) == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_wait_has_a_limit_and_an_ended_process_gets_no_signal() -> None:
    with forked(lambda _: time.sleep(60)) as (process, _):
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        process.kill()
        assert process.wait(20) == process.poll() == -signal.SIGKILL
        process.terminate()


def test_random_numbers_of_two_children_differ() -> None:
    def work(pair: socket.socket) -> None:
        import random

        import numpy as np

        drawn = (random.random(), np.random.default_rng().random(), os.urandom(8))
        pair.send(repr(drawn).encode())

    drawn = []
    for _ in range(2):
        with forked(work) as (_, end):
            drawn.append(eval(read_all(end)))
    assert all(one != other for one, other in zip(*drawn, strict=True))


def test_an_imported_module_is_frozen_and_garbage_is_searched_for_again() -> None:
    frozen = gc.get_freeze_count()
    try:
        import_to_share("fullrank_service.process.supervisor")
        assert gc.get_freeze_count() > frozen
        assert gc.isenabled()
    finally:
        gc.unfreeze()
