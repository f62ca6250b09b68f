"""Compile the loops of training when they are called first."""

from __future__ import annotations

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
