"""Progress of long work: bars on a terminal, JSON lines on anything else. Always on stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_EVERY_S = 5.0  # between two JSON lines of one stage


class Stage:
    """One piece of work with a known amount: ``advance`` it and show figures beside the bar."""

    def __init__(self, reporter: Reporter, name: str, total: int | None) -> None:
        self._reporter, self._name, self._total = reporter, name, total
        self._done, self._started, self._said = 0, time.monotonic(), time.monotonic()
        self._task = None
        if reporter.bars is not None:
            self._task = reporter.bars.add_task(name, total=total, figures="")

    def advance(self, amount: int = 1, **figures: float) -> None:
        """``amount`` more is done; figures such as loss=0.4 are shown as they are."""
        self._done += amount
        seconds = time.monotonic() - self._started
        figures["rate"] = self._done / max(seconds, 1e-9)
        if self._task is not None and self._reporter.bars is not None:
            text = "  ".join(f"{key} {value:.4g}" for key, value in figures.items())
            self._reporter.bars.update(self._task, advance=amount, figures=text)
        elif time.monotonic() - self._said >= _EVERY_S:
            self._said = time.monotonic()
            left = None
            if self._total and self._done:
                left = round(seconds * (self._total / self._done - 1), 1)
            self._reporter.say(
                self._name, done=self._done, total=self._total, left_s=left, **figures
            )

    def close(self) -> None:
        """The work is over; its bar goes."""
        if self._task is not None and self._reporter.bars is not None:
            self._reporter.bars.remove_task(self._task)


class Reporter:
    """Where training says what it does."""

    def __init__(self, stream: IO[str] | None = None, *, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._console = Console(file=self._stream, highlight=False)
        self.bars: Progress | None = None
        if self._stream.isatty() and not quiet:
            self.bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[figures]}"),
                console=self._console,
            )

    def say(self, event: str, **figures: Any) -> None:
        """One fact: a line of text on a terminal, else a JSON object with ``event`` first."""
        if self._quiet:
            return
        if self.bars is not None:
            text = "  ".join(f"{key} {_short(value)}" for key, value in figures.items())
            self._console.print(f"{event}  {text}", markup=False)
        else:
            rounded = {k: round(v, 5) if isinstance(v, float) else v for k, v in figures.items()}
            print(json.dumps({"event": event, **rounded}), file=self._stream, flush=True)

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        """A bar for as long as the block runs."""
        stage = Stage(self, name, total)
        try:
            yield stage
        finally:
            stage.close()

    @contextmanager
    def parts(self) -> Iterator[Callable[[str, int, int], None]]:
        """For work that tells (part, done, total) of one part after another: a bar for each."""
        part, told = "", 0
        stage: Stage | None = None

        def tell(name: str, done: int, total: int) -> None:
            nonlocal part, stage, told
            if name != part:
                if stage is not None:
                    stage.close()
                self.say("write", part=name)
                part, stage, told = name, Stage(self, name, total or None), 0
            if stage is not None and done > told:
                stage.advance(done - told)
                told = done

        try:
            yield tell
        finally:
            if stage is not None:
                stage.close()

    def __enter__(self) -> Reporter:
        if self.bars is not None:
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bars is not None:
            self.bars.stop()


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
