"""Compile the loops of training when they are called first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba.core import event

from fullrank import kernels
from fullrank.kernels.compiler import fingerprint, kept
from fullrank.progress import Reporter

HELPERS = (
    Path(kernels.__file__).parent,
    Path(__file__).parent / "systems" / "linear" / "kernels.py",
)
"""Modules whose helpers are compiled into loops of other modules; a change to them recompiles all loops."""


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function when it is called first, and keep the machine code on disk."""

    def wrap(function: Callable[..., Any]) -> Any:
        return kept(function, fingerprint(*HELPERS), **options)

    return wrap


class _Compiling(event.Listener):
    """Adds up the seconds of compiling; a loop compiles those that it calls within its own time."""

    def __init__(self) -> None:
        self.seconds, self.depth, self.began = 0.0, 0, 0.0

    def on_start(self, _: event.Event) -> None:
        if self.depth == 0:
            self.began = time.monotonic()
        self.depth += 1

    def on_end(self, _: event.Event) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.seconds += time.monotonic() - self.began


_compiling = _Compiling()
event.register("numba:compile", _compiling)  # type: ignore[no-untyped-call]


def clock() -> float:
    """Return seconds as ``time.monotonic`` does, without those of compiling, which no time limit counts.

    The first training on a machine would otherwise leave out most epochs.
    """
    return time.monotonic() - _compiling.seconds


@contextmanager
def announced(reporter: Reporter) -> Iterator[None]:
    """Report once if something is compiled in the block, before it is."""
    with event.install_listener("numba:compile", _Announcement(reporter)):
        yield


class _Announcement(event.Listener):
    def __init__(self, reporter: Reporter) -> None:
        self._reporter: Reporter | None = reporter

    def on_start(self, _: event.Event) -> None:
        if self._reporter is not None:
            self._reporter.say(
                "compiling",
                "the loops of training, once on this machine; this takes about a minute, and later trainings skip it",
            )
            self._reporter = None

    def on_end(self, _: event.Event) -> None:
        pass
