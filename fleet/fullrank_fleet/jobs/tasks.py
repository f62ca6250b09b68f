"""Run tasks on a cluster, or one after another in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from fullrank.errors import FullrankError
from fullrank.progress import Reporter

Result = TypeVar("Result")

# Of a core. Replicas that serve on a node have hundredths of its cores, so a task that asked for a whole one would wait
# forever on a node with one core.
_CORES = 0.9
# Runs of a task whose process or node dies. Errors of the task itself are not repeated.
_RETRIES = 3


class Runner(Protocol):
    """Runs independent tasks."""

    def run(
        self, task: Callable[..., Result], calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Result]]:
        """Call a function once for each tuple of arguments.

        Args:
            task: A function of a module, whose arguments and result can be pickled and are small: numpy arrays go
                through files.

        Yields:
            (number of the call, its result), in the order in which they end.

        Raises:
            FullrankError: Of a task, or because its process died again and again.
        """


def run_all(
    runner: Runner,
    task: Callable[..., Result],
    calls: Sequence[tuple[Any, ...]],
    reporter: Reporter,
    name: str,
) -> list[Result]:
    """Run tasks as a stage of a report; return their results in the order of the calls."""
    found: dict[int, Result] = {}
    with reporter.stage(name, total=len(calls)) as stage:
        for number, result in runner.run(task, calls):
            found[number] = result
            stage.advance()
    return [found[number] for number in range(len(calls))]


def _run_idle(task: Callable[..., Result], *arguments: Any) -> Result:
    """Run a task in the processor time that nothing else needs, such as replicas on the same node."""
    # Ray gives all its processes one niceness. Some containers forbid the call.
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    return task(*arguments)


class InProcess:
    """Runs tasks in this process, in their order."""

    def run(
        self, task: Callable[..., Result], calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Result]]:
        for number, arguments in enumerate(calls):
            yield number, task(*arguments)


class OnRay:
    """Runs tasks on a joined cluster, one for each core, wherever one is free; processes that serve there go first."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def run(
        self, task: Callable[..., Result], calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Result]]:
        remote = self._ray.remote(_run_idle).options(
            name=task.__name__, num_cpus=_CORES, max_retries=_RETRIES
        )
        number_of = {remote.remote(task, *own): number for number, own in enumerate(calls)}
        waiting = list(number_of)
        try:
            while waiting:
                [done], waiting = self._ray.wait(waiting, num_returns=1)
                yield number_of[done], self._result(done)
        finally:
            for reference in waiting:
                self._ray.cancel(reference, force=True)

    def _result(self, reference: Any) -> Any:
        exceptions = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, FullrankError):
                raise error.cause from None
            raise
        except exceptions.RayError as error:
            raise FullrankError(f"a task was lost {_RETRIES + 1} times: {error}") from error
