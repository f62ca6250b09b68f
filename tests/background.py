"""Work that goes on in a thread while a test does something else."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self


class Background(ABC):
    """Run ``_run`` in a thread from the start of the block to its end; it returns once ``_stop`` is set."""

    def __init__(self) -> None:
        self._stop, self._thread = threading.Event(), threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @abstractmethod
    def _run(self) -> None: ...
