"""Work that goes on in a thread while a test does something else."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self

from tests.waiting import join


class Background(ABC):
    """Run ``_run`` in a thread from the start of the block to its end; it returns once ``_stop`` is set."""

    def __init__(self) -> None:
        name = type(self).__name__
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_running(self) -> bool:
        """Whether ``_run`` has neither returned nor raised."""
        return self._thread.is_alive()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        join(self._thread)

    @abstractmethod
    def _run(self) -> None: ...
