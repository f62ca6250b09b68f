"""Runners of tasks that die."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fullrank_fleet.jobs.tasks import InProcess, Result


class Dying(InProcess):
    """Runs so many tasks, those of one function or all, then acts and dies.

    Attributes:
        names: Of the tasks that ended.
    """

    def __init__(
        self,
        allowed: int = 1 << 30,
        *,
        of: Callable[..., Any] | None = None,
        act: Callable[[], None] = lambda: None,
        error: BaseException | None = None,
    ) -> None:
        self._left, self._of, self._act = allowed, of, act
        self._error = error or KeyboardInterrupt()
        self.names: list[str] = []

    def run(
        self, task: Callable[..., Result], calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Result]]:
        is_counted = self._of in (None, task)
        for number, arguments in enumerate(calls):
            if is_counted and not self._left:
                break
            result = task(*arguments)
            self._left -= is_counted
            self.names.append(task.__name__)
            if self._left:
                yield number, result
        if is_counted and not self._left:
            self._act()
            raise self._error
