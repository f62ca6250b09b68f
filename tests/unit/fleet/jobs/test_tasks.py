"""Tasks of a cluster, without Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from fullrank_fleet.jobs.tasks import OnRay


class Fake:
    """The module ``ray``: runs tasks in threads, which have a scheduling policy each, as its processes do."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(2)

    def remote(self, task: Callable[..., Any]) -> Any:
        pool = self._pool

        class Remote:
            def options(self, **_: Any) -> Remote:
                return self

            def remote(self, *arguments: Any) -> Future[Any]:
                return pool.submit(task, *arguments)

        return Remote()

    def wait(self, waiting: Sequence[Future[Any]], num_returns: int) -> tuple[Any, Any]:
        assert num_returns == 1
        return [waiting[0]], list(waiting[1:])

    def get(self, reference: Future[Any]) -> Any:
        return reference.result(20)

    class exceptions:
        RayError = RayTaskError = RuntimeError


def policy(number: int) -> tuple[int, int]:
    return number, os.sched_getscheduler(0)


def test_jobs_run_when_nothing_serves() -> None:
    found = dict(OnRay(Fake()).run(policy, [(5,), (6,)]))
    assert found == {0: (5, os.SCHED_IDLE), 1: (6, os.SCHED_IDLE)}
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
