"""A thread that repeats a step: pauses, rests, failures, its end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from fullrank_service.base.background import Repeater

LONG_S = 60.0


class Counter:
    """A step that counts its rounds."""

    def __init__(self, work: Callable[[], object] = lambda: None) -> None:
        self.rounds, self.work = 0, work
        self._changed = threading.Condition()

    def __call__(self) -> None:
        with self._changed:
            self.rounds += 1
            self._changed.notify_all()
        self.work()

    def reach(self, rounds: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.rounds >= rounds, 10)


def repeater(step: Callable[[], None], pause_s: Any, **options: Any) -> Repeater:
    found = Repeater("test", step, pause_s, **{"failure": "it failed", **options})
    found.start()
    return found


def test_a_step_is_repeated_until_it_is_closed() -> None:
    step, ends = Counter(), []
    thread = repeater(step, 0.001, ended=lambda: ends.append(threading.current_thread().name))
    step.reach(5)
    assert not thread.is_closing
    thread.close()
    rounds = step.rounds
    time.sleep(0.02)
    assert (step.rounds, ends) == (rounds, ["test"])
    assert "test" not in [other.name for other in threading.enumerate()]


@pytest.mark.parametrize("pause_s", [LONG_S, lambda: None])
def test_a_nudge_ends_a_pause_and_closing_does_so_without_a_round(pause_s: Any) -> None:
    step = Counter()
    thread = repeater(step, pause_s)
    time.sleep(0.02)
    assert step.rounds == 0
    for rounds in (1, 2):
        thread.nudge()
        step.reach(rounds)
    thread.close()
    assert step.rounds == 2


def test_a_thread_that_was_never_started_closes() -> None:
    Repeater("test", lambda: None, LONG_S, failure="").close()


def test_only_an_urgent_nudge_ends_the_rest_after_a_round() -> None:
    step = Counter(lambda: time.sleep(0.01))
    thread = repeater(step, 0.0, rest=1e6, max_rest_s=LONG_S)
    step.reach(1)
    time.sleep(0.1)
    thread.nudge()
    time.sleep(0.05)
    assert step.rounds == 1
    thread.nudge(is_urgent=True)
    step.reach(2)
    # Urgent while the step runs: it may have come too late for this round, so the next one follows at once.
    thread.nudge(is_urgent=True)
    step.reach(3)
    began = time.monotonic()
    thread.close()
    assert time.monotonic() - began < 10


def test_failures_end_nothing_and_are_logged_once_in_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fail = Mock(side_effect=OSError("no disk"))
    caplog.set_level(logging.ERROR)
    for expected, traceback in (((OSError,), False), ((), True)):
        caplog.clear()
        step = Counter(fail)
        failed: list[str] = []
        thread = repeater(step, 0.001, expected=expected, failed=failed.append)
        step.reach(5)
        thread.close()
        assert failed == ["test"] * step.rounds
        assert [record.getMessage() for record in caplog.records] == ["it failed: no disk"]
        assert bool(caplog.records[0].exc_info) == traceback


def test_closing_waits_no_longer_than_asked_for() -> None:
    go_on = threading.Event()
    step = Counter(lambda: go_on.wait(LONG_S))
    thread = repeater(step, 0.0)
    step.reach(1)
    began = time.monotonic()
    thread.close(0.05)
    assert time.monotonic() - began < 10
    go_on.set()
    thread.close()


def test_closing_ends_a_step_that_pauses() -> None:
    def pause() -> None:
        while True:
            thread.pause(0.001)

    step, ends, failed = Counter(pause), list[int](), list[str]()
    thread = Repeater(
        "test", step, 0.0, failure="", ended=lambda: ends.append(1), failed=failed.append
    )
    thread.start()
    step.reach(1)
    thread.close(LONG_S)
    assert (ends, failed, step.rounds) == ([1], [], 1)
